# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Look inside, and write your own stages
#
# In this tutorial, you learn to read every field of a mini-batch, and you write a stage, a test for it, and a sampler.
# A loader runs them in its workers, and a small model trains on their mini-batches.
#
# The graph is small enough to draw: Zachary's karate club, with 34 members and 78 friendships.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
from collections.abc import Sequence
from dataclasses import replace

import matplotlib.pyplot as plt
import networkx as nx
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.storage import unique_and_compact_csc_formats
from graphfeed.storage.graph import ByType

# %% [markdown]
# ## A mini-batch
#
# We add each friendship twice, once per direction. Row $i$ of the feature contains $i$, so that we can recognise it.

# %%
club = nx.karate_club_graph()
pairs = torch.tensor(list(club.edges()))
sources, destinations = torch.cat([pairs, pairs.flip(1)]).T
graph = gf.from_coo((sources, destinations), num_nodes=34)
features = gf.BasicFeatureStore({("node", None, "number"): gf.TorchBasedFeature(torch.arange(34.0)[:, None])})

pipe = gf.ItemSampler(gf.ItemSet(34, names="seeds"), batch_size=2, shuffle=True, seed=13)
pipe = pipe.sample_neighbor(graph, fanouts=[2, 3])
pipe = pipe.fetch_feature(features, node_feature_keys=["number"])

# %% [markdown]
# You can iterate over a pipeline without a loader. Here is its first mini-batch.

# %% tags=["exact"]
minibatch = next(iter(pipe))
minibatch

# %% [markdown]
# | field | content |
# | --- | --- |
# | `seeds` | two members |
# | `sampled_subgraphs` | the sampled friendships: one subgraph per hop, outermost first |
# | `input_nodes` | all members in the outermost subgraph, seeds first |
# | `node_features` | the features of `input_nodes`, one row per node |
# | `key` | (random seed, epoch, index): the identity of the mini-batch, which alone determines its random numbers |
#
# A subgraph has columns, which receive messages, and rows, which send them. Both are numbered from 0, and two tensors
# map them to member ids. The friends of column `c` are the rows `indices[indptr[c] : indptr[c + 1]]`.

# %% tags=["exact"]
inner = minibatch.sampled_subgraphs[-1]
indptr, indices = inner.sampled_csc.indptr, inner.sampled_csc.indices
for column, member in enumerate(inner.original_column_node_ids.tolist()):
    rows = indices[indptr[column] : indptr[column + 1]]
    print(f"seed {member}: sampled friends {inner.original_row_node_ids[rows].tolist()}")

# %% [markdown]
# The rows begin with the columns, so the seeds are also the first rows. `original_edge_ids` are positions in the edge
# tensors from which the graph was built.

# %% tags=["exact"]
print(inner.original_row_node_ids[:2].tolist(), "are the seeds", minibatch.seeds.tolist())
for edge in inner.original_edge_ids[:3].tolist():
    print(f"edge {edge} leads from {sources[edge]} to {destinations[edge]}")

# %% tags=["remove-cell"]
assert minibatch.node_features["number"][:, 0].tolist() == minibatch.input_nodes.tolist()
for hop in minibatch.sampled_subgraphs:
    columns = torch.arange(len(hop.original_column_node_ids)).repeat_interleave(hop.sampled_csc.indptr.diff())
    assert torch.equal(sources[hop.original_edge_ids], hop.original_row_node_ids[hop.sampled_csc.indices])
    assert torch.equal(destinations[hop.original_edge_ids], hop.original_column_node_ids[columns])

# %% [markdown]
# The picture shows the whole club in grey, with the nodes and edges of the mini-batch on top.

# %%
places = nx.spring_layout(club, seed=4)


def draw(
    groups: dict[str, tuple[Sequence[int], str]], hops: Sequence[tuple[gf.SampledSubgraph, str]], title: str
) -> None:
    """Draw the club, with the given groups of members and the sampled edges of the given hops."""
    plt.figure(figsize=(7, 4.6))
    nx.draw_networkx_edges(club, places, edge_color="#dddddd")
    nx.draw_networkx_nodes(club, places, node_color="#e4e4e4", node_size=120, edgecolors="white")
    for label, (members, colour) in groups.items():
        nx.draw_networkx_nodes(club, places, members, node_color=colour, node_size=240, edgecolors="white", label=label)
    for hop, colour in hops:
        csc, rows, columns = hop.sampled_csc, hop.original_row_node_ids, hop.original_column_node_ids
        assert isinstance(csc, gf.CSCFormatBase)
        assert isinstance(rows, torch.Tensor)
        assert isinstance(columns, torch.Tensor)
        ends = zip(rows[csc.indices].tolist(), columns.repeat_interleave(csc.indptr.diff()).tolist(), strict=True)
        nx.draw_networkx_edges(nx.DiGraph(list(ends)), places, edge_color=colour, width=1.6, node_size=240)
    nx.draw_networkx_labels(club, places, font_size=8)
    plt.legend(fontsize=9, markerscale=0.7)
    plt.title(title)
    plt.axis("off")
    plt.show()


outer = minibatch.sampled_subgraphs[0]
first_hop = inner.original_row_node_ids[2:].tolist()
second_hop = minibatch.input_nodes[len(inner.original_row_node_ids) :].tolist()
draw(
    {
        "second hop": (second_hop, "#9ecae1"),
        "first hop": (first_hop, "#3182bd"),
        "seeds": (minibatch.seeds.tolist(), "#d94801"),
    },
    [(outer, "#9ecae1"), (inner, "#08519c")],
    "3 friends of each seed, then 2 of each member found so far",
)


# %% [markdown]
# ## Write a stage
#
# A stage is a dataclass with one method, `__call__`, which receives a mini-batch and returns another;
# `dataclasses.replace` makes a copy with some fields changed. `gf.Transform` already has a first field, the pipeline to
# read from, and your fields come after it: `HideRows(pipe, "number", share=0.5)`. You don't need to write `__init__`.
#
# This stage hides the features of random members, so that a model has to rely on their friends. Random numbers need no
# special care: while a stage runs, `torch.rand` is seeded by the key of the mini-batch.


# %%
class HideRows(gf.Transform):
    """Sets random rows of a feature to zero."""

    feature: str
    share: float

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        rows = minibatch.node_features[self.feature]
        hidden = torch.rand(len(rows), 1) < self.share
        features = {**minibatch.node_features, self.feature: rows.masked_fill(hidden, 0.0)}
        return replace(minibatch, node_features=features)


hiding = HideRows(pipe, "number", share=0.5)
print(next(iter(hiding)).node_features["number"][:, 0].tolist())

# %% [markdown]
# ## Test the stage
#
# A test creates a mini-batch by hand and needs neither a graph nor a loader: `IterableSource` is a pipeline that yields
# the given mini-batches.


# %%
def test_all_rows_or_none_are_hidden() -> None:
    given = gf.MiniBatch(node_features={"x": torch.ones(5, 2), "y": torch.ones(5, 1)})
    for share, left in ((0.0, 10), (1.0, 0)):
        (made,) = HideRows(gf.IterableSource([given]), "x", share)
        assert made.node_features["x"].sum() == left
        assert made.node_features["y"].sum() == 5
    assert given.node_features["x"].sum() == 10, "a stage must not modify its input"


test_all_rows_or_none_are_hidden()

# %% [markdown]
# Every stage deserves a second test: any number of workers should produce the same mini-batches.


# %%
def test_workers_make_no_difference() -> None:
    made = []
    for num_workers in (0, 3):
        with gf.DataLoader(hiding, num_workers=num_workers, seed=0) as loader:
            made.append([minibatch.node_features["number"].tolist() for minibatch in loader])
    assert made[0] == made[1]


test_workers_make_no_difference()

# %% [markdown]
# ## Write a sampler
#
# A sampler is a stage that derives from `SubgraphSampler`. It receives the seeds, and returns the sampled nodes and one
# subgraph per hop.
#
# This sampler starts random walks at each seed and keeps the members that they visit most often, as PinSAGE does. The
# graph performs the walks; `draw_key` returns the key of their random numbers. `unique_and_compact_csc_formats`
# relabels the sampled nodes, seeds first.


# %%
class MostVisited(gf.SubgraphSampler):
    """Samples the nodes that random walks from a seed visit most often."""

    graph: gf.SamplingGraph
    num_walks: int = 30
    length: int = 3
    num_neighbors: int = 4

    def sample_subgraphs(
        self, seeds: ByType, seeds_timestamp: ByType | None = None, seeds_pre_time_window: ByType | None = None
    ) -> tuple[ByType, list[gf.SampledSubgraph]]:
        assert isinstance(seeds, torch.Tensor)
        walks = self.graph.random_walks(seeds.repeat_interleave(self.num_walks), self.length, key=gf.draw_key())
        counts = torch.stack([row.bincount(minlength=34) for row in walks[:, 1:].reshape(len(seeds), -1)])
        visited = counts.scatter(1, seeds[:, None], 0).topk(self.num_neighbors).indices
        indptr = torch.arange(len(seeds) + 1) * self.num_neighbors
        nodes, csc, _ = unique_and_compact_csc_formats(gf.CSCFormatBase(indptr, visited.flatten()), seeds)
        return nodes, [gf.SampledSubgraph(csc, seeds, nodes)]


two_seeds = gf.ItemSampler(gf.ItemSet(torch.tensor([0, 33]), names="seeds"), batch_size=2)
minibatch = next(iter(gf.DataLoader(MostVisited(two_seeds, graph), num_workers=0, seed=0)))
draw(
    {"visited most": (minibatch.input_nodes[2:].tolist(), "#3182bd"), "seeds": ([0, 33], "#d94801")},
    [(minibatch.sampled_subgraphs[0], "#08519c")],
    "The members that walks from 0 and from 33 visit most",
)

# %% [markdown]
# ## Use both in a loader
#
# The club split up after a quarrel between member 0, the instructor, and member 33, the officer. We give a model the
# sides of these two, and let it predict the sides of all others. The feature of a member is a row of the identity
# matrix, so the model knows members only by their ids and by the members that their walks visit.


# %%
identity = gf.BasicFeatureStore({("node", None, "who"): gf.TorchBasedFeature(torch.eye(34))})
sides = torch.tensor([int(club.nodes[member]["club"] == "Officer") for member in club])


def make_pipe(members: Sequence[int], share: float) -> gf.Datapipe:
    """Return a pipeline of members and their sides that hides a share of the features."""
    ids = torch.tensor(members)
    pipe = gf.ItemSampler(gf.ItemSet((ids, sides[ids]), names=("seeds", "labels")), batch_size=34)
    pipe = MostVisited(pipe, graph, num_walks=50).fetch_feature(identity, node_feature_keys=["who"])
    return HideRows(pipe, "who", share)


loader = gf.DataLoader(make_pipe([0, 33], share=0.5), num_workers=2, seed=0)
print(loader.explain())

# %% [markdown]
# Your stages run in the workers, just like the built-in ones.


# %%
class Net(nn.Module):
    """A linear map of a member plus one of the mean over the members that its walks visit."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(34, 2)
        self.visited = nn.Linear(34, 2)

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        csc, x = minibatch.sampled_subgraphs[0].sampled_csc, minibatch.node_features["who"]
        means = torch.segment_reduce(self.visited(x)[csc.indices], "mean", offsets=csc.indptr)
        out: torch.Tensor = self.own(x[: len(means)]) + means
        return out


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
for _ in range(100):
    for minibatch in loader:
        loss = functional.cross_entropy(net(minibatch), minibatch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
loader.close()

with torch.no_grad(), gf.DataLoader(make_pipe(range(34), share=0.0), num_workers=0, seed=0) as everybody:
    (minibatch,) = everybody
    guessed = net(minibatch).argmax(1)
right = (guessed == sides).sum().item()
print(f"{right} of 34 sides are found")

# %% tags=["remove-cell"]
assert right >= 29

# %%
wrong = (guessed != sides).nonzero().flatten().tolist()
draw(
    {
        "with the instructor": ((guessed == 0).nonzero().flatten().tolist(), "#fdae6b"),
        "with the officer": ((guessed == 1).nonzero().flatten().tolist(), "#9ecae1"),
        "in truth on the other side": (wrong, "#f03b20"),
        "known": ([0, 33], "#74c476"),
    },
    [],
    "What the net makes of the club",
)

# %% [markdown]
# ## What next
#
# - [Heterogeneous graphs](03_heterogeneous_graphs.ipynb), where features and edges are stored by type.
# - [Write your own stage](../docs/how-to/own-stage.md): its fluent name, its random numbers, and where it runs.
# - [CONTRIBUTING.md](../CONTRIBUTING.md) shows a custom feature store and a custom rule, and how to contribute a stage.
#   A sampler that only calls methods of the graph, like this one, also works on partitioned graphs and on a GPU.
# - The club: W. W. Zachary, [An information flow model for conflict and fission in small
#   groups](https://www.jstor.org/stable/3629752), 1977. PinSAGE: Ying and others, [Graph convolutional neural networks
#   for web-scale recommender systems](https://arxiv.org/abs/1806.01973), KDD 2018.
