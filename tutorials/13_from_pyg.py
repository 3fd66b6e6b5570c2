# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train PyG models with graphfeed
#
# In this tutorial, you train two PyG models with PyG's data classes and layers. Compared with a program for PyG alone,
# only the import of the loader differs.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv

import graphfeed as gf
from graphfeed.pyg import NeighborLoader  # was: from torch_geometric.loader import NeighborLoader
from graphfeed.storage.graph import to_coo

torch.manual_seed(0)
torch.set_num_threads(1)  # leave the other cores to the loader

# %% [markdown]
# ## One type of node
#
# Graphfeed includes WordNet. Its meanings of words (synsets) belong to 45 subject fields, which we predict. To save
# time, we fold the 2,048 feature columns into 256 and train on 10,240 synsets.
#
# In PyG's `Data`, one edge leads from a general synset to a more specific one, and another edge leads back.

# %%
wordnet = gf.datasets.wordnet()
feat = wordnet.feature.read("node", "synset", "feat")
y = torch.full((len(feat),), -1)
for items in (wordnet.train_set, wordnet.test_set):
    synsets, labels = items[:]["synset"]
    y[synsets] = labels.long()
ends = to_coo(wordnet.graph)
above = torch.stack([ends["synset:hypernym:synset"].sources, ends["synset:hypernym:synset"].destinations]).long()
data = Data(x=feat.view(-1, 8, 256).sum(1).float(), y=y, edge_index=torch.cat([above.flip(0), above], dim=1))
train_ids, test_ids = (items[:]["synset"][0] for items in (wordnet.train_set, wordnet.test_set))
train_ids, test_ids = (ids[torch.randperm(len(ids))].long() for ids in (train_ids, test_ids))
train_ids, test_ids = train_ids[:10_240], test_ids[:4_096]
data

# %% [markdown]
# The loader accepts PyG's arguments and returns PyG's `Data`. With `seed`, the mini-batches are the same in each run,
# for any number of workers.

# %%
train_loader = NeighborLoader(
    data, num_neighbors=[5, 5], input_nodes=train_ids, batch_size=256, shuffle=True, num_workers=1, seed=0
)
test_loader = NeighborLoader(data, num_neighbors=[5, 5], input_nodes=test_ids, batch_size=1024, seed=0)
next(iter(train_loader))

# %% [markdown]
# Internally, the loader runs a pipeline, and `explain()` shows where its stages run.

# %%
print(train_loader.explain())

# %% [markdown]
# `GraphSAGE` is PyG's model. The seeds come first in a mini-batch, so the first scores are theirs. Given the numbers of
# nodes and edges per hop, each layer of the model skips nodes and edges that can no longer reach the seeds.

# %%
model = GraphSAGE(data.num_features, hidden_channels=64, num_layers=2, out_channels=45)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def predict(batch: Data) -> torch.Tensor:
    """Return the scores of a mini-batch's seeds."""
    nodes, edges = batch.num_sampled_nodes, batch.num_sampled_edges
    scores: torch.Tensor = model(
        batch.x, batch.edge_index, num_sampled_nodes_per_hop=nodes, num_sampled_edges_per_hop=edges
    )
    return scores[: batch.batch_size]


losses: dict[str, list[float]] = {"one type": [], "two types": []}
for _ in range(2):
    for batch in train_loader:
        loss = functional.cross_entropy(predict(batch), batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses["one type"].append(loss.item())
train_loader.close()  # stops its threads, as does leaving a `with` block

# %%
with torch.no_grad():
    right = torch.cat([predict(batch).argmax(1) == batch.y[: batch.batch_size] for batch in test_loader])
accuracies = {"most frequent field": y[test_ids].bincount().max().item() / len(test_ids)}
accuracies["one type"] = right.float().mean().item()
print({name: round(accuracy, 2) for name, accuracy in accuracies.items()})

# %% tags=["remove-cell"]
assert accuracies["one type"] > 0.4

# %% [markdown]
# ## Types of nodes and edges
#
# Words name synsets, and adjectives are similar to each other. In PyG's `HeteroData`, we add each relation twice, once
# per direction.

# %%
words = HeteroData()
words["synset"].x, words["synset"].y = data.x, y
words["word"].num_nodes = wordnet.metadata["num_nodes"]["word"]
for source, relation, end in (
    ("synset", "hypernym", "synset"),
    ("synset", "similar_to", "synset"),
    ("word", "names", "synset"),
):
    pairs = ends[f"{source}:{relation}:{end}"]
    there = torch.stack([pairs.sources, pairs.destinations]).long()
    words[source, relation, end].edge_index = there
    words[end, f"rev_{relation}", source].edge_index = there.flip(0)
words

# %% [markdown]
# The seeds are of the type `synset`. Words have no features, so they start with zeros and pass on messages from their
# synsets.


# %%
def make_loader(ids: torch.Tensor, shuffle: bool = False) -> NeighborLoader:
    """Return a loader of the given synsets."""
    return NeighborLoader(
        words,
        num_neighbors=[5, 5],
        input_nodes=("synset", ids),
        batch_size=256,
        shuffle=shuffle,
        num_workers=1,
        seed=0,
    )


class Net(nn.Module):
    """Two layers, each with one SAGE convolution per relation."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.start = nn.Linear(data.num_features, size)
        self.layers = nn.ModuleList(
            HeteroConv({edge_type: SAGEConv(size, size) for edge_type in words.edge_types}) for _ in range(2)
        )
        self.end = nn.Linear(size, 45)

    def forward(self, batch: HeteroData) -> torch.Tensor:
        """Return the scores of the seeds."""
        synsets = self.start(batch["synset"].x)
        x = {"synset": synsets, "word": synsets.new_zeros(batch["word"].num_nodes, synsets.shape[1])}
        for layer in self.layers:
            x = {node_type: h.relu() for node_type, h in layer(x, batch.edge_index_dict).items()}
        scores: torch.Tensor = self.end(x["synset"][: batch["synset"].batch_size])
        return scores


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
with make_loader(train_ids, shuffle=True) as loader:
    for _ in range(2):
        for batch in loader:
            loss = functional.cross_entropy(net(batch), batch["synset"].y[: batch["synset"].batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses["two types"].append(loss.item())

# %%
with torch.no_grad(), make_loader(test_ids) as loader:
    parts = [net(batch).argmax(1) == batch["synset"].y[: batch["synset"].batch_size] for batch in loader]
accuracies["two types"] = torch.cat(parts).float().mean().item()

# %% tags=["remove-cell"]
assert accuracies["two types"] > 0.4

# %%
figure, (curves, bars) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=[1, 1.1])
for (name, values), colour in zip(losses.items(), ("#6baed6", "#08519c"), strict=True):
    curves.plot(values, color=colour, label=name)
curves.set(xlabel="mini-batch", ylabel="loss", title="Training", ylim=(0, None))
curves.legend()
shown = bars.barh(list(accuracies), list(accuracies.values()), color=["#bdbdbd", "#6baed6", "#08519c"], height=0.6)
bars.bar_label(shown, fmt=" %.2f")
bars.set(xlim=(0, 1), xlabel="test accuracy", title="Synsets that were not seen")
bars.invert_yaxis()
plt.show()

# %% [markdown]
# ## Further reading
#
# - [docs/from-pyg.md](../docs/from-pyg.md) has a table of every argument of every loader.
# - [docs/from-pyg-distributed.md](../docs/from-pyg-distributed.md) does the same for partitioned graphs.
