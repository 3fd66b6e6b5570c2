# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From TFRecords
#
# In this tutorial, you read a graph that was written for TensorFlow in two ways: as a data set on disk, and with the
# classes that GiGL programs use. Both produce the same mini-batches, and you train a model on them. TensorFlow is not
# required.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.ingest import (
    FixedLenFeature,
    SerializedTFRecordInfo,
    TFRecordDataLoader,
    build_dataset,
    read_spec,
    write_tfrecords,
)
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # leave the other cores to the loader

# %% [markdown]
# ## An export
#
# You may have such files already. Here, we write them from WordNet, which is included in graphfeed: one record for each
# meaning (synset), with its id, features, subject field and split. To keep the files small, we fold 2,048 columns of
# zeros and ones into 64 counts.

# %%
wordnet = gf.datasets.wordnet()
feat = wordnet.feature.read("node", "synset", "feat")
count = len(feat)
split, label = torch.empty(2, count, dtype=torch.int64)
for number, items in enumerate((wordnet.train_set, wordnet.validation_set, wordnet.test_set)):
    synsets, labels = items[:]["synset"]
    split[synsets], label[synsets] = number, labels.long()
folded = feat.view(count, 32, 64).sum(1, dtype=torch.uint8).float()
columns = {"id": torch.arange(count), "feat": folded, "label": label, "split": split}

# %% [markdown]
# Large tables are written in shards. The `source` of an edge is the id of the more general synset, and its
# `destination` that of the synset itself. So messages flow from the general to the specific.

# %% tags=["exact"]
folder = Path("scratch/tfrecords")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
for shard, rows in enumerate(torch.arange(count).chunk(4)):
    part = {name: values[rows] for name, values in columns.items()}
    write_tfrecords(folder / f"synset-{shard:05}-of-00004.tfrecord", part)

ends = to_coo(wordnet.graph)["synset:hypernym:synset"]
edges = {"source": ends.destinations, "destination": ends.sources}
write_tfrecords(folder / "edge-00000-of-00001.tfrecord.gz", edges, compression="gzip")
for path in sorted(folder.iterdir()):
    print(path.name)

# %% [markdown]
# ## As a data set
#
# A specification lists the files and states how their features are used. `build_dataset` converts them to a folder,
# once. It verifies the checksum of each record.

# %%
text = """
name: wordnet
nodes:
  synset:
    files: synset-*.tfrecord
    id: id
    features: {feat: feat}
    label: label
    split: {column: split, train: 0, validation: 1, test: 2}
edges:
  more_general: {files: edge-*.tfrecord.gz, source: source, destination: destination}
"""
(folder / "spec.yaml").write_text(text)
build_dataset(read_spec(folder / "spec.yaml"), folder / "dataset")
dataset = gf.OnDiskDataset(folder / "dataset").load()
task = dataset.tasks[0]
dataset.graph

# %% [markdown]
# ## With GiGL's classes
#
# GiGL programs describe the records of an entity, and load its tensors. Only the import differs.

# %%
node_info = SerializedTFRecordInfo(
    tfrecord_uri_prefix=folder / "synset",
    feature_keys=["feat"],
    feature_spec={"feat": FixedLenFeature([64], torch.float32)},
    feature_dim=64,
    entity_key="id",
)
edge_info = SerializedTFRecordInfo(
    tfrecord_uri_prefix=folder / "edge",
    feature_keys=[],
    feature_spec={},
    feature_dim=0,
    entity_key=("source", "destination"),
)
reader = TFRecordDataLoader(rank=0, world_size=1)
node_ids, node_features = reader.load_as_torch_tensors(node_info)
edge_index, edge_features = reader.load_as_torch_tensors(edge_info)
assert node_features is not None
assert edge_features is None
print(node_ids.shape, node_features.shape, edge_index.shape)

# %% [markdown]
# The tensors become a graph and a feature store.

# %%
graph = gf.from_coo(edge_index, num_nodes=len(node_ids))
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(node_features)})


# %% [markdown]
# ## The same mini-batches


# %%
def make_pipe(items: gf.ItemSet, graph: gf.SamplingGraph, features: gf.FeatureStore) -> gf.Datapipe:
    """Return a pipeline of synsets, with up to 5 more general ones for each."""
    pipe = gf.ItemSampler(items, batch_size=1024, shuffle=True, seed=0)
    pipe = pipe.sample_neighbor(graph, fanouts=[5])
    return pipe.fetch_feature(features, node_feature_keys=["feat"])


train_set, test_set = task.train_set, task.test_set
assert isinstance(train_set, gf.ItemSet)
assert isinstance(test_set, gf.ItemSet)
first = next(iter(make_pipe(train_set, dataset.graph, dataset.feature)))
second = next(iter(make_pipe(train_set, graph, features)))
assert torch.equal(first.input_nodes, second.input_nodes)
assert torch.equal(first.node_features["feat"], second.node_features["feat"])
first


# %% [markdown]
# ## A model
#
# The task is to predict the subject field of a synset from its own features and the mean of the features of its more
# general synsets.


# %%
def describe(minibatch: gf.MiniBatch) -> torch.Tensor:
    """Return the features of each seed, concatenated with the mean of its neighbours' features."""
    rows, csc = minibatch.node_features["feat"], minibatch.sampled_subgraphs[0].sampled_csc
    degrees = csc.indptr.diff()
    sums = torch.zeros(len(degrees), rows.shape[1]).index_add(0, torch.repeat_interleave(degrees), rows[csc.indices])
    return torch.cat([rows[: len(degrees)], sums / degrees.clamp(min=1)[:, None]], dim=1)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, task.metadata["num_classes"]))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
with gf.DataLoader(make_pipe(train_set, graph, features), num_workers=1, seed=0) as loader:
    for _ in range(2):
        for minibatch in loader:
            loss = functional.cross_entropy(model(describe(minibatch)), minibatch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

# %%
with torch.no_grad(), gf.DataLoader(make_pipe(test_set, graph, features), num_workers=1, seed=0) as loader:
    pairs = [(model(describe(minibatch)).argmax(1), minibatch.labels) for minibatch in loader]
found, labels = (torch.cat(part) for part in zip(*pairs, strict=True))
accuracy = (found == labels).float().mean()
most = labels.bincount().max() / len(labels)
print(f"test accuracy {accuracy:.2f}; the most frequent subject field has {most:.2f}")

# %% tags=["remove-cell"]
assert accuracy > 2 * most

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(losses, color="#08519c")
axes.set(xlabel="mini-batch", ylabel="loss", title="Two epochs", ylim=(0, None))
plt.show()

# %% [markdown]
# ## Further reading
#
# - [docs/ingest.md](../docs/ingest.md) lists all keys of a specification, and explains what happens to damaged records.
# - [From tables](06_from_tables.ipynb) does the same for CSV and Parquet.
