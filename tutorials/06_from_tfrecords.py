# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From TFRecords to a trained model
#
# Graphs that were made for TensorFlow lie in TFRecord files: one `tf.train.Example` per node, and one per edge. Here
# WordNet, which comes with graphfeed, is exported to such files. One command makes a data set of them, and a model is
# trained on it. TensorFlow is not needed for any of this. `docs/ingest.md` describes specifications.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.ingest import write_tfrecords
from graphfeed.storage.graph import to_coo

torch.manual_seed(0)
wordnet = gf.datasets.wordnet()
wordnet.graph

# %% [markdown]
# ## The export
#
# `write_tfrecords` writes a record for each row of some tensors. A record of a synset has its features, its label, and
# whether it is for training, validation or testing. To keep the files small, 2,048 columns of zeros and ones are folded
# to 64 counts. Large tables are best written in shards, which are then read in the order of their names.

# %%
folder = Path("wordnet_tfrecords")
folder.mkdir(exist_ok=True)
feat = wordnet.feature.read("node", "synset", "feat")
split, label = torch.zeros(len(feat), dtype=torch.int64), torch.zeros(len(feat), dtype=torch.int64)
for number, items in enumerate((wordnet.train_set, wordnet.validation_set, wordnet.test_set)):
    for minibatch in gf.ItemSampler(items, batch_size=len(feat)).transform():
        split[minibatch.seeds["synset"]] = number
        label[minibatch.seeds["synset"]] = minibatch.labels["synset"]
columns = {"feat": feat.view(len(feat), 32, 64).sum(1, dtype=torch.uint8).float(), "label": label, "split": split}
shards = 4
for shard, rows in enumerate(torch.arange(len(feat)).chunk(shards)):
    part = {name: values[rows] for name, values in columns.items()}
    write_tfrecords(folder / f"synset.tfrecord-{shard:05}-of-{shards:05}", part)

# %% [markdown]
# A record of an edge has the ids of its two ends. Each relation has a file of its own, here compressed by gzip. Those
# of the reverse direction need no files.

# %%
ends_by_type = to_coo(wordnet.graph)
edges = {kind: ends_by_type[kind] for kind in wordnet.graph.edge_type_to_id if ":rev_" not in kind}
for kind, ends in edges.items():
    path = folder / f"{kind.replace(':', '_')}.tfrecord.gz"
    write_tfrecords(path, {"source": ends.sources, "destination": ends.destinations}, compression="gzip")
print(len(list(folder.iterdir())), "files,", sum(path.stat().st_size for path in folder.iterdir()) >> 20, "MiB")

# %% [markdown]
# ## The specification, and one command
#
# Synsets are numbered by row. Words have no table: they are what the edges name. Every relation goes in twice, the
# second time with its source and its destination exchanged, so that messages flow both ways.

# %%
text = """name: wordnet
nodes:
  synset:
    files: synset.tfrecord-*
    features: {feat: feat}
    label: label
    split: {column: split, train: 0, validation: 1, test: 2}
edges:
"""
for kind in edges:
    source, relation, destination = kind.split(":")
    file = f"{kind.replace(':', '_')}.tfrecord.gz"
    text += f"  {kind}: {{files: {file}, source: source, destination: destination}}\n"
    text += f"  {destination}:rev_{relation}:{source}: {{files: {file}, source: destination, destination: source}}\n"
(folder / "spec.yaml").write_text(text)
command = [sys.executable, "-m", "graphfeed", "ingest", str(folder / "spec.yaml"), "wordnet"]
if not Path("wordnet").exists():
    subprocess.run(command, check=True)
print(text[:420], "...")

# %% [markdown]
# The data set opens in milliseconds, and holds what was exported.

# %%
dataset = gf.OnDiskDataset("wordnet").load()
graph, task = dataset.graph, dataset.tasks[0]
assert graph.num_nodes == wordnet.graph.num_nodes
assert graph.num_edges == wordnet.graph.num_edges
assert torch.equal(dataset.feature.read("node", "synset", "feat"), columns["feat"])
graph

# %% [markdown]
# ## A model
#
# A mini-batch holds up to 5 neighbours of each synset for each relation. A synset is described by its own features and
# by the mean of those of its neighbours.

# %%
kinds = sorted(kind for kind in graph.edge_type_to_id if kind.startswith("synset:") and kind.endswith(":synset"))


def describe(minibatch: gf.MiniBatch) -> torch.Tensor:
    """Return the features of each seed, and the mean of its neighbours of all relations, and the number of these."""
    rows = minibatch.node_features["synset", "feat"]
    seeds = len(minibatch.seeds["synset"])
    total, count = torch.zeros(seeds, rows.shape[1]), torch.zeros(seeds, 1)
    for kind in kinds:
        csc = minibatch.sampled_subgraphs[0].sampled_csc[kind]
        degrees = csc.indptr.diff()[:seeds]
        columns = torch.repeat_interleave(degrees)
        total.index_add_(0, columns, rows[csc.indices[: len(columns)]])
        count += degrees[:, None]
    return torch.cat([rows[:seeds], total / count.clamp(min=1), count.log1p()], dim=1)


def pipeline(items: gf.ItemSet | gf.HeteroItemSet, shuffle: bool) -> gf.Datapipe:
    """Return mini-batches of synsets with sampled neighbours."""
    pipe = gf.ItemSampler(items, batch_size=1024, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=[torch.full((len(graph.edge_type_to_id),), 5)])
    return pipe.fetch_feature(dataset.feature, node_feature_keys={"synset": ["feat"]})


width = describe(next(iter(pipeline(task.train_set, False)))).shape[1]
model = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, task.metadata["num_classes"]))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

# %%
losses = []
with gf.DataLoader(pipeline(task.train_set, True), num_workers=2, seed=0) as loader:
    for minibatch in loader:
        loss = functional.cross_entropy(model(describe(minibatch)), minibatch.labels["synset"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

right = total = 0
with torch.no_grad(), gf.DataLoader(pipeline(task.test_set, False), num_workers=2, seed=0) as loader:
    for minibatch in loader:
        right += (model(describe(minibatch)).argmax(1) == minibatch.labels["synset"]).sum().item()
        total += len(minibatch.labels["synset"])
most = label[split == 2].bincount().max() / (split == 2).sum()
print(f"test accuracy {right / total:.2f}; the most frequent subject field makes up {most:.2f}")
assert right / total > most

# %%
figure, (left, middle) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(losses)
left.set(xlabel="mini-batch", ylabel="loss", title="Training")
for kind, name in (("synset:hypernym:synset", "hyponyms"), ("word:names:synset", "words")):
    degrees = edges[kind].destinations.bincount(minlength=len(feat)).numpy()
    values, counts = np.unique(degrees[degrees > 0], return_counts=True)
    middle.loglog(values, counts[::-1].cumsum()[::-1] / len(degrees), label=name)
middle.set(xlabel="in-degree", ylabel="share of synsets with as many or more", title="How many of each a synset has")
middle.legend(frameon=False)
for axes in (left, middle):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
