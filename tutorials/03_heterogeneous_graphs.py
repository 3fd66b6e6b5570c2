# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Types of nodes and edges
#
# At the end of this page you have trained a net on a graph with two types of nodes and 38 types of edges, and seen
# which of them it needs.
#
# Such a graph is called heterogeneous. Nothing changes in the pipeline but this: where a graph has types, every value
# is a dict by type.

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

torch.set_num_threads(1)  # the net is small, and leaves the other cores to the loader

# %% [markdown]
# ## The graph
#
# WordNet has meanings (synsets) and words. An edge type is written "source:relation:destination". A word names a
# synset; a hypernym is a broader meaning, and a member belongs to a group. Each relation is there in reverse, too, so
# that messages flow both ways.

# %% tags=["exact"]
wordnet = gf.datasets.wordnet()
graph = wordnet.graph
print(graph)
print(*list(graph.edge_type_to_id)[:6], "...", sep="\n")

# %% [markdown]
# Here is how many edges each relation has. A type that is rare in a graph may still matter.

# %%
counts = graph.type_per_edge.bincount().tolist()
by_relation = {name.split(":")[1]: counts[number] for name, number in graph.edge_type_to_id.items()}
forward = sorted((count, relation) for relation, count in by_relation.items() if not relation.startswith("rev_"))
figure, axes = plt.subplots(figsize=(7, 4.2))
axes.barh([relation for _, relation in forward], [count for count, _ in forward], color="#6baed6")
axes.set(xscale="log", xlabel="edges", title="Relations of WordNet")
plt.show()

# %% [markdown]
# `from_coo` makes such a graph of your own edges: `gf.from_coo({"word:names:synset": (sources, destinations)},
# num_nodes={"word": ..., "synset": ...})`. Each node type counts its nodes from 0.
#
# ## The pipeline
#
# Item sets and features have a node type, too. Words have no features in WordNet, so we fetch those of synsets.


# %%
def make_pipe(items: gf.ItemSet | gf.HeteroItemSet, fanouts: Sequence[torch.Tensor], shuffle: bool) -> gf.Datapipe:
    """Return mini-batches of synsets with sampled neighbours."""
    pipe = gf.ItemSampler(items, batch_size=1024, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=fanouts)
    return pipe.fetch_feature(wordnet.feature, node_feature_keys={"synset": ["feat"]})


# %% [markdown]
# A fan-out per edge type is a tensor with a number for each, in the order of `edge_type_to_id`. It says how many
# neighbours are drawn of each type: here 3 of each, at both hops. With 0, a type is left out.

# %%
three_of_each = torch.full((len(counts),), 3)
pipe = make_pipe(wordnet.train_set, [three_of_each, three_of_each], shuffle=True)
loader = gf.DataLoader(pipe, num_workers=2, seed=0)
minibatch = next(iter(loader))

# %% [markdown]
# Ids are dicts by node type, features by type and name.

# %% tags=["exact"]
print("seeds      ", {node_type: len(ids) for node_type, ids in minibatch.seeds.items()})
print("input nodes", {node_type: len(ids) for node_type, ids in minibatch.input_nodes.items()})
print("features   ", {key: tuple(rows.shape) for key, rows in minibatch.node_features.items()})

# %% [markdown]
# A subgraph has its edges by edge type. Their rows and columns count the nodes of the type of their source and of their
# destination.

# %% tags=["exact"]
inner = minibatch.sampled_subgraphs[-1]
inner.sampled_csc["word:names:synset"]

# %% tags=["exact"]
print({node_type: len(ids) for node_type, ids in inner.original_row_node_ids.items()})
print({node_type: len(ids) for node_type, ids in inner.original_column_node_ids.items()})

# %% [markdown]
# ## A net
#
# A relational GraphSAGE: each edge type has weights of its own. A layer adds up what a node itself says, and for each
# type the mean of what its neighbours say. Words begin at zero; they carry from one synset to another.


# %%
class Layer(nn.Module):
    """Maps a node's vector, and adds the mapped mean of its neighbours' vectors, relation by relation."""

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
    """Adds up a vector for each word of a definition, and maps it by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(2048, 32, mode="sum")
        nn.init.normal_(self.words.weight, std=0.1)
        self.first = Layer(32, 32)
        self.second = Layer(32, wordnet.metadata["num_classes"])

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        feat = minibatch.node_features["synset", "feat"]
        rows, words = feat.nonzero(as_tuple=True)  # a definition has some 6 of the 2,048 words
        h = {"synset": self.words(words, torch.searchsorted(rows, torch.arange(len(feat))))}
        h["word"] = torch.zeros(len(minibatch.input_nodes["word"]), 32)
        outer, inner = minibatch.sampled_subgraphs
        h = {node_type: vectors.relu() for node_type, vectors in self.first(outer, h).items()}
        out: torch.Tensor = self.second(inner, h)["synset"]
        return out


# %% [markdown]
# ## What each relation adds
#
# We train with some relations only, in both directions. The others have a fan-out of 0, and cost nothing. The task is
# to tell in which of 45 fields a synset is.


# %%
def train(relations: Sequence[str]) -> float:
    """Train for one epoch, and return the share of test synsets whose field is found."""
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
# - [From PyG](13_from_pyg.ipynb): the same with `HeteroData` and PyG's layers.
# - Nets with weights per relation: Schlichtkrull and others, [Modeling relational data with graph convolutional
#   networks](https://arxiv.org/abs/1703.06103), 2018.
