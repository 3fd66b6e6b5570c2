# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first pipeline
#
# In this tutorial, you train a graph neural network to predict what a dictionary entry is about, from mini-batches that
# two workers sample. It takes seconds on a laptop and downloads nothing.

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

import graphfeed as gf
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader

# %% [markdown]
# ## The data
#
# Graphfeed includes WordNet, a dictionary of 117,659 meanings. An edge leads from a meaning to a broader one: from
# *dog* to *canine*, and from there to *carnivore*. We extract plain tensors, like those of your own data:
#
# - the source and the destination of each edge,
# - a feature row for each meaning, which marks the words of its definition among 2,048 words,
# - the ids of the training examples and their labels: the subject field of each, such as food or motion.

# %%
wordnet = gf.datasets.wordnet()
edges = to_coo(wordnet.graph)["synset:hypernym:synset"]
sources, destinations = edges.sources, edges.destinations
feat = wordnet.feature.read("node", "synset", "feat")
train_ids, train_labels = wordnet.train_set[:]["synset"]
test_ids, test_labels = wordnet.test_set[:]["synset"]
fields = wordnet.metadata["class_names"]
print(len(sources), "edges;", tuple(feat.shape), "features;", len(train_ids), "meanings to train on")

# %% [markdown]
# ## A graph
#
# `from_coo` builds a graph from the sources and destinations of its edges. An edge carries messages from its source to
# its destination. Here, messages should flow both ways, so we add each edge twice, once per direction.

# %%
both_ways = (torch.cat([sources, destinations]), torch.cat([destinations, sources]))
graph = gf.from_coo(both_ways, num_nodes=len(feat))
graph

# %% [markdown]
# Features go into a feature store. The key says that these features belong to nodes, that the nodes have no types, and
# that the feature is named `feat`.

# %%
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(feat)})

# %% [markdown]
# An item set contains the examples of an epoch. `names` assigns each tensor to a field of the mini-batch.

# %%
train_set = gf.ItemSet((train_ids, train_labels), names=("seeds", "labels"))
test_set = gf.ItemSet((test_ids, test_labels), names=("seeds", "labels"))


# %% [markdown]
# ## A pipeline
#
# A pipeline is a chain of stages: select some meanings as seed nodes, sample neighbours around them, and fetch the
# features of all these nodes. `fanouts` has one number per hop. The last one is for the hop at the seeds: up to 10
# neighbours of each seed, and then up to 5 of each neighbour. Defining a pipeline computes nothing.


# %%
def make_pipe(items: gf.ItemSet, fanouts: list[int], shuffle: bool) -> gf.Datapipe:
    """Return a pipeline that samples neighbours of the items and fetches features."""
    pipe = gf.ItemSampler(items, batch_size=1024, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=fanouts)
    return pipe.fetch_feature(features, node_feature_keys=["feat"])


pipe = make_pipe(train_set, [5, 10], shuffle=True)

# %% [markdown]
# ## A loader
#
# A loader runs a pipeline with workers. With a fixed `seed`, it produces the same mini-batches each time, for any
# number of workers. `explain()` shows where each stage runs, the last stage first.

# %%
loader = gf.DataLoader(pipe, num_workers=2, seed=0)
print(loader.explain())

# %% [markdown]
# This is a mini-batch that the training loop receives. Its features are those of `input_nodes`: the seeds and all nodes
# sampled around them. The next tutorial, [Look inside](02_look_inside.ipynb), explains the fields.

# %% tags=["exact"]
minibatch = next(iter(loader))
minibatch

# %% [markdown]
# ## A model
#
# The model has two GraphSAGE layers in plain PyTorch. Each adds a linear map of a node's own vector and one of the mean
# of its neighbours' vectors. A mini-batch has one sampled subgraph per layer, sorted by destination: the sources of
# destination `i` are the rows `indices[indptr[i] : indptr[i + 1]]`. The destinations are the first rows.


# %%
class Layer(nn.Module):
    """A linear map of a node's vector plus a linear map of its neighbours' mean."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_size, out_size)
        self.neighbours = nn.Linear(in_size, out_size, bias=False)

    def forward(self, csc: gf.CSCFormatBase, h: torch.Tensor) -> torch.Tensor:
        messages = self.neighbours(h)[csc.indices]
        means = torch.segment_reduce(messages, "mean", offsets=csc.indptr, initial=0)
        out: torch.Tensor = self.own(h[: len(means)]) + means
        return out


class Net(nn.Module):
    """Two GraphSAGE layers, one per hop."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Layer(2048, 64)
        self.second = Layer(64, len(fields))

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        outer, inner = minibatch.sampled_subgraphs
        h = self.first(outer.sampled_csc, minibatch.node_features["feat"].float())
        out: torch.Tensor = self.second(inner.sampled_csc, h.relu())
        return out


# %% [markdown]
# ## Train
#
# The training loop is not specific to graphs. Iterating over the loader once is an epoch, which is enough here. We
# train twice: with neighbours, and with fan-outs of 0, where the model sees only a meaning's own definition.


# %%
def train(fanouts: list[int]) -> tuple[list[float], float]:
    """Train for one epoch; return the loss of each step and the test accuracy."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    with gf.DataLoader(make_pipe(train_set, fanouts, shuffle=True), num_workers=2, seed=0) as loader:
        for minibatch in loader:
            loss = functional.cross_entropy(net(minibatch), minibatch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    with torch.no_grad(), gf.DataLoader(make_pipe(test_set, fanouts, shuffle=False), num_workers=2, seed=0) as loader:
        right = [net(minibatch).argmax(1) == minibatch.labels for minibatch in loader]
    return losses, torch.cat(right).float().mean().item()


with_neighbours, accuracy = train([5, 10])
without, accuracy_without = train([0, 0])
print(f"right with neighbours: {accuracy:.0%}; without: {accuracy_without:.0%}")

# %% tags=["remove-cell"]
assert accuracy > 0.75 > accuracy_without > 0.5

# %%
figure, axes = plt.subplots(figsize=(7, 3.6))
axes.plot(without, color="#d94801", label=f"definitions alone: {accuracy_without:.0%} right")
axes.plot(with_neighbours, color="#08519c", label=f"with neighbours: {accuracy:.0%} right")
axes.set(xlabel="step", ylabel="loss", title="Which of 45 fields is a meaning in?", ylim=(0, None))
axes.legend()
plt.show()

# %% [markdown]
# A loader owns threads. `close()` stops them, and so does leaving a `with` block, as above.

# %%
loader.close()

# %% [markdown]
# ## What next
#
# - [Look inside](02_look_inside.ipynb): the fields of a mini-batch, and how to write your own stage and sampler.
# - [Heterogeneous graphs](03_heterogeneous_graphs.ipynb): all of WordNet, with words and 38 relations.
# - [Find what is slow](08_find_what_is_slow.ipynb): what to do when training waits for the loader.
# - [From tables](06_from_tables.ipynb): how to load data from files.
# - GraphSAGE: Hamilton, Ying and Leskovec, [Inductive representation learning on large
#   graphs](https://arxiv.org/abs/1706.02216), NeurIPS 2017.
