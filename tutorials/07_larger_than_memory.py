# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Data larger than memory
#
# In this tutorial, you sample mini-batches from a graph and features that stay in files, with a tenth of the rows in
# memory, and learn how the loader reads the rest. The files here are small, so that the tutorial runs anywhere. The
# program is the same for hundreds of gigabytes.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import shutil
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

import graphfeed as gf

# %% [markdown]
# ## A graph and features in files
#
# We generate a graph in which few nodes have most of the edges, like many real graphs, and 64 numbers for each node.
# `graph.save` and `numpy.save` write them to files. [`graphfeed ingest`](06_from_tables.ipynb) converts tables to such
# files in bounded memory.

# %%
NUM_NODES, NUM_EDGES = 200_000, 2_000_000
folder = Path("scratch/large")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

chance = np.random.default_rng(0)
popular = chance.permutation(NUM_NODES)  # popular nodes have random ids
sources = popular[(chance.random(NUM_EDGES) ** 3 * NUM_NODES).astype(np.int64)]
destinations = chance.integers(0, NUM_NODES, NUM_EDGES)
gf.from_coo((sources, destinations), num_nodes=NUM_NODES).save(folder / "graph")
np.save(folder / "feat.npy", chance.random((NUM_NODES, 64), np.float32))
for path in sorted(folder.iterdir()):
    print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB")

# %% [markdown]
# ## Open the files
#
# `load_graph` maps the file, and `DiskBasedFeature` reads rows directly from its file. Both take milliseconds for any
# size, because nothing is read before it is needed.

# %%
begin = time.perf_counter()
graph = gf.load_graph(folder / "graph")
on_disk = gf.DiskBasedFeature(folder / "feat.npy")
seconds = time.perf_counter() - begin

# %% tags=["volatile"]
print(f"{1000 * seconds:.1f} ms")

# %% [markdown]
# In an `OnDiskDataset`, entries of `metadata.yaml` with `in_memory: false` are opened in the same way.
#
# ## The usual pipeline
#
# Stages don't depend on where their data is stored.


# %%
def make_pipe(feature: gf.Feature) -> gf.Datapipe:
    """Return a pipeline of a fiftieth of the nodes, with the features of their neighbours."""
    features = gf.BasicFeatureStore({("node", None, "feat"): feature})
    pipe = gf.ItemSampler(gf.ItemSet(NUM_NODES // 50, names="seeds"), batch_size=16, shuffle=True)
    return pipe.sample_neighbor(graph, fanouts=[5, 10]).fetch_feature(features, node_feature_keys=["feat"])


# %% [markdown]
# The rows that the next mini-batches need are known before they are read, because a mini-batch depends only on the
# random seed, the epoch and its index. If a file exceeds the memory limit, the loader therefore samples a *window* of
# mini-batches ahead. It reads the rows of the whole window together, without duplicates and in file order, while the
# mini-batches of the previous window are in use.
#
# By default, the limit is a third of the available memory. Our file would fit many times over, so we set the limit to a
# tenth of the file.

# %%
limit = (folder / "feat.npy").stat().st_size // 10
loader = gf.DataLoader(make_pipe(on_disk), num_workers=2, memory_limit=limit, seed=0)
print([line.strip() for line in loader.explain().splitlines() if "fetch_in_windows" in line])

# %% [markdown]
# ## The mini-batches are the same
#
# The memory limit affects when rows are read, never which. We compare an epoch with one that has all rows in memory.

# %%
in_memory = gf.DataLoader(make_pipe(on_disk.read_into_memory()), num_workers=2, seed=0)
equal = [
    torch.equal(batch.node_features["feat"], other.node_features["feat"])
    for batch, other in zip(loader, in_memory, strict=True)
]

# %% tags=["exact"]
print(len(equal), "mini-batches, all of them equal:", all(equal))

# %% tags=["remove-cell"]
assert all(equal)

# %% [markdown]
# After an epoch, `loader.explain()` shows how many of the requested rows were already in memory.
#
# ## What it saves
#
# A disk reads whole pages of 4096 bytes, each with 16 of our rows. The more mini-batches are read together, the more
# rows of a page are useful, and the more pages are adjacent. To demonstrate this, we count the requested pages, for a
# feature that claims never to be in the page cache of the operating system, as would be the case for a file of 100 GB.


# %%
class Counted(gf.DiskBasedFeature):
    """Counts the pages that are read from the file."""

    pages = 0

    def is_in_page_cache(self) -> bool:
        return False

    def start_read(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> Any:
        self.count_pages(ids)
        return super().start_read(ids, out, positions)

    def count_pages(self, ids: torch.Tensor) -> None:
        self.pages += len(torch.unique(ids.long() * self.row_bytes // 4096))


class CountedAlone(Counted):
    """Counts reads for one mini-batch. A class that overrides `read` is not prefetched, as it may change rows."""

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        assert ids is not None
        self.count_pages(ids)
        return super().read(ids)


def count(cache_bytes: int = 0, **options: Any) -> float:
    """Return the number of pages read per mini-batch in an epoch."""
    feature = (CountedAlone if options.get("window") == 0 else Counted)(folder / "feat.npy")
    wrapped = gf.cpu_cached_feature(feature, cache_bytes) if cache_bytes else feature
    batches = sum(1 for _ in gf.DataLoader(make_pipe(wrapped), num_workers=2, seed=0, **options))
    return feature.pages / batches


pages = {
    "one mini-batch after the other": count(window=0),
    "the same, behind a cache": count(cache_bytes=limit, window=0),
    "windows in as much memory": count(memory_limit=limit),
    "windows in five times as much": count(memory_limit=5 * limit),
}

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
bars = axes.barh(list(pages), list(pages.values()), color="#2171b5", height=0.6)
axes.bar_label(bars, fmt="{:,.0f}", padding=4)
axes.invert_yaxis()
axes.set(xlim=(0, 1.15 * max(pages.values())), xlabel="pages read for a mini-batch")
axes.set_title("What is read from the disk")
plt.show()

# %% tags=["remove-cell"]
most, _, _, least = pages.values()
assert least < most / 2

# %% [markdown]
# ## Cache rows instead
#
# A cache is useful for reads in an unpredictable order, such as those of your own loop. `cpu_cached_feature` keeps rows
# that are requested often. It is bypassed while the system has the whole file in memory, as it does with small files.

# %%
cached = gf.cpu_cached_feature(Counted(folder / "feat.npy"), max_cache_size_in_bytes=limit)
for start in range(0, NUM_NODES // 5, 1000):
    subgraph = graph.in_subgraph(torch.arange(start, start + 1000, dtype=torch.int32))
    cached.read(subgraph.sampled_csc.indices)
print(f"{1 - cached.miss_rate:.0%} of the rows were in the cache")

# %% [markdown]
# ## Further reading
#
# - [Features larger than memory](../docs/how-to/larger-than-memory.md) describes the options.
# - [From tables to a trained model](06_from_tables.ipynb) writes data sets that open like these files.
# - [Many machines](10_many_machines.ipynb) partitions a graph among machines instead.
