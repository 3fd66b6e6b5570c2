# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Heterogeneous graphs
#
# In this tutorial, you train a model on a graph with two types of nodes and 38 types of edges, and find out which of
# them it needs.
#
# Such a graph is called heterogeneous. The pipeline stays the same, with one difference: where the graph has types,
# every value is a dict with the types as keys.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
from collections.abc import Sequence

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader

# %% [markdown]
# ## The graph
#
# WordNet has two types of nodes: meanings (synsets) and words. An edge type is written "source:relation:destination". A
# word names a synset, a hypernym is a broader meaning, and a member belongs to a group. Each relation also exists in
# reverse, so that messages flow both ways.

# %% tags=["exact"]
wordnet = gf.datasets.wordnet()
graph = wordnet.graph
print(graph)
print(*list(graph.edge_type_to_id)[:6], "...", sep="\n")

# %% [markdown]
# The chart shows how many edges each relation has. A rare relation may still matter.

# %%
counts = graph.type_per_edge.bincount().tolist()
by_relation = {name.split(":")[1]: counts[number] for name, number in graph.edge_type_to_id.items()}
forward = sorted((count, relation) for relation, count in by_relation.items() if not relation.startswith("rev_"))
figure, axes = plt.subplots(figsize=(7, 4.2))
axes.barh([relation for _, relation in forward], [count for count, _ in forward], color="#6baed6")
axes.set(xscale="log", xlabel="edges", title="Relations of WordNet")
plt.show()

# %% [markdown]
# `from_coo` builds such a graph from your own edges: `gf.from_coo({"word:names:synset": (sources, destinations)},
# num_nodes={"word": ..., "synset": ...})`. The nodes of each type are numbered from 0.
#
# ## The pipeline
#
# Item sets and features also have a node type. Words have no features in WordNet, so we only fetch those of synsets.


# %%
def make_pipe(items: gf.ItemSet | gf.HeteroItemSet, fanouts: Sequence[torch.Tensor], shuffle: bool) -> gf.Datapipe:
    """Return a pipeline of synsets with sampled neighbours."""
    pipe = gf.ItemSampler(items, batch_size=1024, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=fanouts)
    return pipe.fetch_feature(wordnet.feature, node_feature_keys={"synset": ["feat"]})


# %% [markdown]
# To set a fan-out per edge type, pass a tensor with one number per type, in the order of `edge_type_to_id`. Here, we
# sample up to 3 neighbours for each type, at both hops. A fan-out of 0 excludes a type.

# %%
three_of_each = torch.full((len(counts),), 3)
pipe = make_pipe(wordnet.train_set, [three_of_each, three_of_each], shuffle=True)
loader = gf.DataLoader(pipe, num_workers=2, seed=0)
minibatch = next(iter(loader))

# %% [markdown]
# The keys of ids are node types; those of features are pairs of a node type and a feature name.

# %% tags=["exact"]
print("seeds      ", {node_type: len(ids) for node_type, ids in minibatch.seeds.items()})
print("input nodes", {node_type: len(ids) for node_type, ids in minibatch.input_nodes.items()})
print("features   ", {key: tuple(rows.shape) for key, rows in minibatch.node_features.items()})

# %% [markdown]
# A subgraph stores its edges by edge type. Row and column numbers are positions among the nodes of the source type and
# of the destination type, respectively.

# %% tags=["exact"]
inner = minibatch.sampled_subgraphs[-1]
inner.sampled_csc["word:names:synset"]

# %% tags=["exact"]
print({node_type: len(ids) for node_type, ids in inner.original_row_node_ids.items()})
print({node_type: len(ids) for node_type, ids in inner.original_column_node_ids.items()})

# %% [markdown]
# ## A model
#
# In a relational GraphSAGE, each edge type has its own weights. A layer adds a linear map of a node's own vector and,
# per edge type, one of the mean of its neighbours' vectors. Words start with zeros and pass messages between synsets.


# %%
class Layer(nn.Module):
    """A linear map of a node's vector plus, per edge type, a linear map of its neighbours' mean."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.ModuleDict({node_type: nn.Linear(in_size, out_size) for node_type in ("synset", "word")})
        self.neighbours = nn.ModuleDict(
            {edge_type: nn.Linear(in_size, out_size, bias=False) for edge_type in graph.edge_type_to_id}
        )

    def forward(self, hop: gf.SampledSubgraph, h: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        columns, edges = hop.original_column_node_ids, hop.sampled_csc
        assert isinstance(columns, dict)
        assert isinstance(edges, dict)
        out = {node_type: self.own[node_type](h[node_type][: len(ids)]) for node_type, ids in columns.items()}
        for edge_type, csc in edges.items():
            if len(csc.indices):
                source, _, destination = edge_type.split(":")
                means = torch.segment_reduce(h[source][csc.indices], "mean", offsets=csc.indptr, initial=0)
                out[destination] = out[destination] + self.neighbours[edge_type](means)
        return out


class Net(nn.Module):
    """Sums a vector for each word of a definition, then applies two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(2048, 32, mode="sum")
        nn.init.normal_(self.words.weight, std=0.1)
        self.first = Layer(32, 32)
        self.second = Layer(32, wordnet.metadata["num_classes"])

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        feat = minibatch.node_features["synset", "feat"]
        rows, words = feat.nonzero(as_tuple=True)  # a definition has about 6 of the 2,048 words
        h = {"synset": self.words(words, torch.searchsorted(rows, torch.arange(len(feat))))}
        h["word"] = torch.zeros(len(minibatch.input_nodes["word"]), 32)
        outer, inner = minibatch.sampled_subgraphs
        h = {node_type: vectors.relu() for node_type, vectors in self.first(outer, h).items()}
        out: torch.Tensor = self.second(inner, h)["synset"]
        return out


# %% [markdown]
# ## What each relation contributes
#
# We train with only some of the relations, each in both directions. The others have a fan-out of 0 and cost nothing.
# The task is to predict which of 45 fields a synset belongs to.


# %%
def train(relations: Sequence[str]) -> float:
    """Train for one epoch with the given relations, and return the test accuracy."""
    taken = [name.split(":")[1].removeprefix("rev_") in relations for name in graph.edge_type_to_id]
    fanouts = [3 * torch.tensor(taken)] * 2
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with gf.DataLoader(make_pipe(wordnet.train_set, fanouts, shuffle=True), num_workers=2, seed=0) as loader:
        for minibatch in loader:
            loss = functional.cross_entropy(net(minibatch), minibatch.labels["synset"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad(), gf.DataLoader(make_pipe(wordnet.test_set, fanouts, False), num_workers=2, seed=0) as loader:
        right = [net(minibatch).argmax(1) == minibatch.labels["synset"] for minibatch in loader]
    return torch.cat(right).float().mean().item()


accuracies = {
    "no edges": train([]),
    "words": train(["names"]),
    "hypernyms": train(["hypernym", "instance_hypernym"]),
    "all 38 types": train(list(by_relation)),
}
print({name: f"{accuracy:.2f}" for name, accuracy in accuracies.items()})

# %% tags=["remove-cell"]
assert accuracies["no edges"] < accuracies["hypernyms"] < accuracies["all 38 types"]
assert accuracies["all 38 types"] > 0.85

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
bars = axes.barh(list(accuracies), list(accuracies.values()), color="#08519c", height=0.6)
axes.bar_label(bars, fmt="{:.0%}", padding=4)
axes.invert_yaxis()
axes.set(xlim=(0, 1), xlabel="share of test synsets whose field is found", title="What a net may see")
plt.show()

# %%
loader.close()

# %% [markdown]
# ## What next
#
# - [Link prediction](04_link_prediction.ipynb): seeds that are edges.
# - [Inference](14_inference.ipynb): embeddings of all nodes.
# - [PyG models](13_from_pyg.ipynb): the same with `HeteroData` and PyG's layers.
# - Models with weights per relation: Schlichtkrull and others, [Modeling relational data with graph convolutional
#   networks](https://arxiv.org/abs/1703.06103), 2018.
