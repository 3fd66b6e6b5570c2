# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # PyG's models, fed by graphfeed
#
# Two programs with PyG's data and PyG's layers. Only the import of the loader differs from what you would write for PyG
# alone. `docs/from-pyg.md` has a table of every argument.
#
# The first part needs Cora: set `GRAPHFEED_DATA` to the folder that holds `cora/cora.npz`. Without it, this notebook
# makes a random graph of the same kind, so that everything can be tried.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import os
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv

import graphfeed as gf
from graphfeed.pyg import NeighborLoader  # was: from torch_geometric.loader import NeighborLoader

torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## One type of node
#
# Cora has 2,708 papers in 7 classes. A paper's features say which of 1,433 words it has. The labels of 140 papers are
# known.

# %%
path = Path(os.environ.get("GRAPHFEED_DATA", "data")) / "cora" / "cora.npz"
if path.is_file():
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
else:
    rng = np.random.default_rng(0)
    label = np.arange(700) % 7
    src, dst = (7 * rng.integers(0, 100, (2, 3000))) + rng.integers(0, 7, 3000)
    has_word = 100 * label[:, None] + rng.integers(0, 300, (700, 10))
    arrays = {"src": np.r_[src, dst], "dst": np.r_[dst, src], "label": label, "feat_shape": np.array([700, 900])}
    arrays |= {"feat_indptr": 10 * np.arange(701), "feat_indices": has_word.ravel()}
    arrays |= {"train_idx": np.arange(140), "test_idx": np.arange(140, 700)}

count, width = arrays["feat_shape"]
x = torch.zeros(count, width)
x[np.repeat(np.arange(count), np.diff(arrays["feat_indptr"])), arrays["feat_indices"].astype(np.int64)] = 1
ends = np.stack([arrays["src"], arrays["dst"]]).astype(np.int64)
y = torch.from_numpy(arrays["label"].astype(np.int64))
data = Data(x=x, y=y, edge_index=torch.from_numpy(ends))
train_idx, test_idx = (torch.from_numpy(arrays[name].astype(np.int64)) for name in ("train_idx", "test_idx"))
data

# %% [markdown]
# A loader takes PyG's arguments and gives PyG's `Data`. With `seed`, the mini-batches are the same in each run, with
# any number of workers. `explain()` shows the stages underneath, and where they run.

# %%
train_loader = NeighborLoader(
    data, num_neighbors=[10, 10], input_nodes=train_idx, batch_size=32, shuffle=True, num_workers=2, seed=0
)
test_loader = NeighborLoader(data, num_neighbors=[-1, -1], input_nodes=test_idx, batch_size=500, seed=0)
print(next(iter(train_loader)))
print(train_loader.explain())

# %% [markdown]
# The seeds come first in a mini-batch. `GraphSAGE` is PyG's. Given the numbers of nodes and edges per hop, it leaves
# out in each layer what no longer reaches the seeds.

# %%
model = GraphSAGE(data.num_features, hidden_channels=64, num_layers=2, out_channels=int(y.max()) + 1, dropout=0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def predict(batch: Data) -> torch.Tensor:
    """Return the scores of a mini-batch's seeds."""
    nodes, edges = batch.num_sampled_nodes, batch.num_sampled_edges
    scores: torch.Tensor = model(
        batch.x, batch.edge_index, num_sampled_nodes_per_hop=nodes, num_sampled_edges_per_hop=edges
    )
    return scores[: batch.batch_size]


def accuracy(loader: NeighborLoader) -> torch.Tensor:
    """Return the share of a loader's seeds whose class gets the highest score."""
    model.eval()
    with torch.no_grad():
        return torch.cat([predict(batch).argmax(1) == batch.y[: batch.batch_size] for batch in loader]).float().mean()


losses, found = [], []
for _ in range(8):
    model.train()
    for batch in train_loader:
        loss = functional.cross_entropy(predict(batch), batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found.append(accuracy(test_loader).item())
train_loader.close()  # ends its threads; so does the end of a `with` block
print(f"test accuracy {found[-1]:.2f}")
assert found[-1] > 0.7

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(losses)
left.set(xlabel="mini-batch", ylabel="loss", title="Training")
right.plot(range(1, 9), found, marker="o")
right.set(xlabel="epoch", ylabel="test accuracy", title="Papers that were not seen", ylim=(0, 1))
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Types of nodes and edges
#
# WordNet comes with graphfeed. The task is to tell in which of 45 subject fields a meaning (synset) is. Here are three
# of its relations as PyG's `HeteroData`: what is more general, what is similar, and which words name a synset. Each
# goes in once per direction. `csc_indptr` and `indices` are the graph's arrays, by destination.

# %%
dataset = gf.datasets.wordnet()
graph = dataset.graph
first = {"synset": 0, "word": dataset.metadata["num_nodes"]["synset"]}
columns = torch.repeat_interleave(graph.csc_indptr.diff())

words = HeteroData()
words["synset"].x = dataset.feature.read("node", "synset", "feat")
words["synset"].y = torch.full((len(words["synset"].x),), -1)
for part in (dataset.train_set, dataset.test_set):
    seeds, labels = part[:]["synset"]
    words["synset"].y[seeds] = labels.long()
words["word"].num_nodes = dataset.metadata["num_nodes"]["word"]
relations = [("synset", "hypernym", "synset"), ("synset", "similar_to", "synset"), ("word", "names", "synset")]
for source, relation, end in relations:
    for kind in ((source, relation, end), (end, f"rev_{relation}", source)):
        chosen = graph.type_per_edge == graph.edge_type_to_id[":".join(kind)]
        words[kind].edge_index = torch.stack([graph.indices[chosen] - first[kind[0]], columns[chosen] - first[kind[2]]])
words

# %% [markdown]
# The seeds are some of the synsets. Words have no features, so they begin with zeros and carry what their synsets
# tell them.

# %%
train_seeds, test_seeds = (part[:]["synset"][0] for part in (dataset.train_set, dataset.test_set))
train_seeds, test_seeds = (ids[torch.randperm(len(ids))] for ids in (train_seeds, test_seeds))
make_loader = partial(NeighborLoader, words, num_neighbors=[5, 5], batch_size=512, num_workers=2, seed=0)
loader = make_loader(input_nodes=("synset", train_seeds[:15360]), shuffle=True)
test_loader = make_loader(input_nodes=("synset", test_seeds[:4096]))


class Net(nn.Module):
    """Two layers, each with a SAGE convolution for each relation."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.start = nn.Linear(words["synset"].x.shape[1], width)
        self.layers = nn.ModuleList(
            HeteroConv({kind: SAGEConv(width, width) for kind in words.edge_types}) for _ in range(2)
        )
        self.end = nn.Linear(width, num_classes)

    def forward(self, batch: HeteroData) -> torch.Tensor:
        """Return the scores of the seeds."""
        synsets = self.start(batch["synset"].x.float())
        x = {"synset": synsets, "word": synsets.new_zeros(batch["word"].num_nodes, synsets.shape[1])}
        for layer in self.layers:
            x = {kind: h.relu() for kind, h in layer(x, batch.edge_index_dict).items()}
        scores: torch.Tensor = self.end(x["synset"][: batch["synset"].batch_size])
        return scores


net = Net(64, dataset.metadata["num_classes"])
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
losses = []
for batch in loader:
    loss = functional.cross_entropy(net(batch), batch["synset"].y[: batch["synset"].batch_size])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
loader.close()

# %%
with torch.no_grad(), test_loader:
    pairs = [(net(batch).argmax(1), batch["synset"].y[: batch["synset"].batch_size]) for batch in test_loader]
scores, labels = (torch.cat(parts) for parts in zip(*pairs, strict=True))
right = (scores == labels).float().mean()
print(f"test accuracy {right:.2f}; the most frequent field makes up {labels.bincount().max() / len(labels):.2f}")
assert right > 2 * labels.bincount().max() / len(labels)

# %%
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.plot(losses)
axes.set(xlabel="mini-batch", ylabel="loss", title="One pass over 15,360 synsets")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
