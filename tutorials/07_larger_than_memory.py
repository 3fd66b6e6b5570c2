# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Larger than memory
#
# At the end of this page you have mini-batches of a graph and of features that stay in files, with a tenth of the rows
# in memory, and know how the loader reads the rest. The files here are small, so that the page runs anywhere. With
# hundreds of gigabytes the program is the same.

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
# ## A graph and rows in files
#
# We make a graph in which few nodes have most of the edges, as in most graphs, and 64 numbers for each node.
# `graph.save` and `numpy.save` write them. Tables become such files by
# [`graphfeed ingest`](06_from_tables.ipynb), in bounded memory.

# %%
NUM_NODES, NUM_EDGES = 200_000, 2_000_000
folder = Path("scratch/large")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

chance = np.random.default_rng(0)
popular = chance.permutation(NUM_NODES)  # the popular nodes lie anywhere
sources = popular[(chance.random(NUM_EDGES) ** 3 * NUM_NODES).astype(np.int64)]
destinations = chance.integers(0, NUM_NODES, NUM_EDGES)
gf.from_coo((sources, destinations), num_nodes=NUM_NODES).save(folder / "graph")
np.save(folder / "feat.npy", chance.random((NUM_NODES, 64), np.float32))
for path in sorted(folder.iterdir()):
    print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB")

# %% [markdown]
# ## Open them
#
# `load_graph` maps the file, and a `DiskBasedFeature` reads rows where they lie. Both take milliseconds, whatever the
# size: nothing is read before it is needed.

# %%
begin = time.perf_counter()
graph = gf.load_graph(folder / "graph")
on_disk = gf.DiskBasedFeature(folder / "feat.npy")
seconds = time.perf_counter() - begin

# %% tags=["volatile"]
print(f"{1000 * seconds:.1f} ms")

# %% [markdown]
# In an `OnDiskDataset`, entries of `metadata.yaml` with `in_memory: false` are opened like that.
#
# ## A pipeline as any other
#
# Stages don't know where their data lies.


# %%
def make_pipe(feature: gf.Feature) -> gf.Datapipe:
    """Return mini-batches of a fiftieth of the nodes, with the rows of their neighbours."""
    features = gf.BasicFeatureStore({("node", None, "feat"): feature})
    pipe = gf.ItemSampler(gf.ItemSet(NUM_NODES // 50, names="seeds"), batch_size=16, shuffle=True)
    return pipe.sample_neighbor(graph, fanouts=[5, 10]).fetch_feature(features, node_feature_keys=["feat"])


# %% [markdown]
# Which rows the next mini-batches need is known before they are read, because a mini-batch depends on the seed, the
# epoch and its index alone. So where a file exceeds the memory that there is for it, the loader samples a *window* of
# mini-batches ahead. It reads the rows that all of them need at once, each of them once and in the order of the file,
# while the mini-batches of the window before are used.
#
# By default it takes a third of the memory that is left. That would hold our file many times, so we allow it a tenth of
# the file.

# %%
limit = (folder / "feat.npy").stat().st_size // 10
loader = gf.DataLoader(make_pipe(on_disk), num_workers=2, memory_limit=limit, seed=0)
print([line.strip() for line in loader.explain().splitlines() if "fetch_in_windows" in line])

# %% [markdown]
# ## The mini-batches are the same
#
# Memory decides when rows are read, and never which. Here is an epoch beside one with all rows in memory.

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
# After an epoch, `loader.explain()` shows how many rows were in memory when a window asked for them.
#
# ## What it saves
#
# A disk reads whole pages of 4096 bytes, each with 16 of our rows. The more mini-batches are read for at once, the more
# of a page's rows are of use, and the more pages lie side by side. To see it, we count the pages that are asked for: by
# a feature that is never in the system's memory, as a file of 100 GB is not.


# %%
class Counted(gf.DiskBasedFeature):
    """Counts the pages of the file that are read."""

    pages = 0

    def is_in_page_cache(self) -> bool:
        return False

    def start_read(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> Any:
        self.count_pages(ids)
        return super().start_read(ids, out, positions)

    def count_pages(self, ids: torch.Tensor) -> None:
        self.pages += len(torch.unique(ids.long() * self.row_bytes // 4096))


class CountedAlone(Counted):
    """Counts reads for one mini-batch. A class with a `read` of its own is not read ahead, as it may change rows."""

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        assert ids is not None
        self.count_pages(ids)
        return super().read(ids)


def count(cache_bytes: int = 0, **options: Any) -> float:
    """Return the pages per mini-batch in an epoch."""
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
# ## A cache beside
#
# A cache is for reads whose order nobody knows, such as those of a loop of your own. `cpu_cached_feature` keeps rows
# that are asked for often. It steps aside as long as the system has the file in memory, as it always has a small one.

# %%
cached = gf.cpu_cached_feature(Counted(folder / "feat.npy"), max_cache_size_in_bytes=limit)
for start in range(0, NUM_NODES // 5, 1000):
    subgraph = graph.in_subgraph(torch.arange(start, start + 1000, dtype=torch.int32))
    cached.read(subgraph.sampled_csc.indices)
print(f"{1 - cached.miss_rate:.0%} of the rows were in the cache")

# %% [markdown]
# ## Further reading
#
# - [Features that are larger than the memory](../docs/how-to/larger-than-memory.md) has the options.
# - [From tables to a trained model](06_from_tables.ipynb) writes data sets that open like these files.
# - [Many machines](10_many_machines.ipynb) splits a graph among machines instead.
