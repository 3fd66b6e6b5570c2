# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From tables to a trained model
#
# Tables in, a data set out, and a model on top of it: a graph of Debian's packages in Parquet files, with three types
# of nodes and five relations. `docs/ingest.md` describes everything that a specification can say.
#
# The files are not part of graphfeed. Set `GRAPHFEED_DATA` to the folder that holds `debian_packages`. Without them,
# this notebook makes small tables of the same columns, so that everything can be tried.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.ingest import guess_spec, inspect_dataset

torch.manual_seed(0)
data = Path(os.environ.get("GRAPHFEED_DATA", "data")) / "debian_packages"
if not data.is_dir():
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = Path("debian_packages")
    data.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    section = rng.integers(0, 5, 2000).astype(np.int32)
    nodes = {"name": [f"package{number}" for number in range(2000)], "section": section}
    nodes |= {"installed_kib": rng.integers(1, 9000, 2000), "size_bytes": rng.integers(1, 9_000_000, 2000)}
    nodes |= {"priority": rng.integers(0, 5, 2000).astype(np.int8), "split": rng.integers(0, 3, 2000).astype(np.int8)}
    pq.write_table(pa.table(nodes), data / "nodes_package.parquet")
    pq.write_table(pa.table({"name": ["admin", "comm", "games", "libs", "net"]}), data / "nodes_section.parquet")
    relations = (
        "depends_package",
        "recommends_package",
        "suggests_package",
        "built_from_source",
        "maintained_by_maintainer",
    )
    for relation in relations:
        src = rng.integers(0, 2000, 4000)
        dst = section[src] * 40 + rng.integers(0, 40, 4000)
        ends = {"src": src.astype(np.int32), "dst": dst.astype(np.int32)}
        pq.write_table(pa.table(ends), data / f"edges_package_{relation}.parquet")

# %% [markdown]
# ## A specification
#
# `graphfeed ingest --guess *.parquet` prints a first specification. Here is the same in Python, with the remarks about
# what it guessed.

# %%
spec, remarks = guess_spec(sorted(data.glob("*.parquet")))
print("\n".join(remark.replace(f"{data}/", "") for remark in remarks))

# %% [markdown]
# An edge carries messages from its source to its destination. Neighbours of a package should also be those that depend
# on it, its source and its maintainer, so each relation goes in twice, once per direction: an entry with `source` and
# `destination` exchanged. The specification is a YAML file, and one command makes the data set.

# %%
text = spec.to_yaml()
for kind, table in spec.edges.items():
    source, relation, destination = kind.split(":")
    text += f"  {destination}:rev_{relation}:{source}:\n"
    text += f"    {{files: {table.files[0]}, source: {table.destination}, destination: {table.source}}}\n"
Path("debian.yaml").write_text(text)
command = [sys.executable, "-m", "graphfeed", "ingest", "debian.yaml", "debian"]
if not Path("debian").exists():
    subprocess.run(command, check=True)
print(text[:700], "...")

# %% [markdown]
# `graphfeed inspect debian` tells what is in it.

# %%
report = inspect_dataset("debian")
print(report)

# %% [markdown]
# ## Features
#
# The data set opens in milliseconds: the graph is mapped, and features stay on disk. The sizes of packages differ by a
# factor of a billion, so we take logarithms, scale them, and keep the result in memory. Sources and maintainers have no
# features of their own.

# %%
dataset = gf.OnDiskDataset("debian").load()
graph, task = dataset.graph, dataset.tasks[0]
sizes = torch.log1p(dataset.feature.read("node", "package", "feat").float())
sizes = (sizes - sizes.mean(0)) / sizes.std(0)
features = gf.BasicFeatureStore({("node", "package", "feat"): gf.TorchBasedFeature(sizes)})
graph

# %% [markdown]
# ## A model
#
# A mini-batch holds the sampled neighbours of some packages by relation. Each package is described by how many
# neighbours of each relation were sampled, and by the mean features of its neighbours that are packages.


# %%
def describe(minibatch: gf.MiniBatch) -> torch.Tensor:
    """Return for each seed its own features, and the mean of its neighbours and their number for each relation."""
    rows = minibatch.node_features["package", "feat"]
    seeds = len(minibatch.seeds["package"])
    parts = [rows[:seeds]]
    layer = minibatch.sampled_subgraphs[0]
    for kind in kinds:
        csc = layer.sampled_csc[kind]
        degrees = csc.indptr.diff().float()[:seeds, None]
        parts.append(torch.log1p(degrees))
        if kind.startswith("package:"):
            columns = torch.repeat_interleave(csc.indptr.diff())
            total = torch.zeros(len(csc.indptr) - 1, rows.shape[1]).index_add_(0, columns, rows[csc.indices])
            parts.append(total[:seeds] / degrees.clamp(min=1))
    return torch.cat(parts, dim=1)


kinds = sorted(kind for kind in graph.edge_type_to_id if kind.endswith(":package"))


def pipeline(items: gf.ItemSet | gf.HeteroItemSet, shuffle: bool) -> gf.Datapipe:
    """Return mini-batches of packages, with up to 10 neighbours for each relation."""
    pipe = gf.ItemSampler(items, batch_size=1024, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=[torch.full((len(graph.edge_type_to_id),), 10)])
    return pipe.fetch_feature(features, node_feature_keys={"package": ["feat"]})


width = describe(next(iter(pipeline(task.train_set, False)))).shape[1]
model = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, task.metadata["num_classes"]))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

# %%
losses = []
with gf.DataLoader(pipeline(task.train_set, True), num_workers=2, seed=0) as loader:
    for epoch in range(4):
        loader.set_epoch(epoch)
        for minibatch in loader:
            loss = functional.cross_entropy(model(describe(minibatch)), minibatch.labels["package"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


def accuracy(items: gf.ItemSet | gf.HeteroItemSet) -> float:
    """Return the share of packages whose section is found."""
    right = total = 0
    with torch.no_grad(), gf.DataLoader(pipeline(items, False), num_workers=2, seed=0) as loader:
        for minibatch in loader:
            labels = minibatch.labels["package"]
            right += (model(describe(minibatch)).argmax(1) == labels).sum().item()
            total += len(labels)
    return right / total


labels = torch.cat([batch.labels["package"] for batch in gf.ItemSampler(task.test_set, batch_size=4096).transform()])
most = labels.bincount().max() / len(labels)
print(f"test accuracy {accuracy(task.test_set):.2f}; the most frequent section makes up {most:.2f}")
assert losses[-1] < losses[0]

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(losses)
left.set(xlabel="mini-batch", ylabel="loss", title="Training")
for kind in ("package:depends:package", "package:suggests:package"):
    degrees = report.edges[kind].in_degrees
    values, counts = np.unique(degrees[degrees > 0], return_counts=True)
    right.loglog(values, counts[::-1].cumsum()[::-1] / len(degrees), label=kind)
right.set(xlabel="in-degree", ylabel="share of packages with as many or more", title="Who is needed")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
