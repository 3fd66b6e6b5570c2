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
# From arrays to a trained model: make a graph, look inside a mini-batch, see what the loader makes of a pipeline,
# train, stop and resume, and write stages of your own. Everything here runs on a CPU and downloads nothing.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import json
from collections.abc import Sequence
from dataclasses import replace

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf

# %% [markdown]
# ## A graph from arrays
#
# Zachary's karate club has 34 members and 78 friendships. `from_coo` takes sources and destinations, as NumPy arrays or
# tensors. An edge carries messages from its source to its destination, so each friendship goes in twice, once per
# direction.

# %%
club = nx.karate_club_graph()
pairs = np.array(club.edges())
sources = np.concatenate([pairs[:, 0], pairs[:, 1]])
destinations = np.concatenate([pairs[:, 1], pairs[:, 0]])

graph = gf.from_coo((sources, destinations), num_nodes=34)
graph

# %% [markdown]
# Features go into a store, under the key (domain, type, name). The type is `None` where the graph has one type of node.
# Here row $i$ holds the number of friends of member $i$, and $i$ itself, so that we can recognise it later.

# %%
degrees = np.bincount(destinations, minlength=34)
feat = torch.from_numpy(np.stack([degrees, np.arange(34)], axis=1)).float()
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(feat)})

# %% [markdown]
# An epoch goes through the items. Their names say which field of the mini-batch each tensor fills.

# %%
sides = torch.tensor([int(club.nodes[node]["club"] == "Officer") for node in club])
members = gf.ItemSet((torch.arange(34), sides), names=("seeds", "labels"))

# %% [markdown]
# A pipeline is a chain of stages. Writing it down computes nothing.
#
# Fan-outs are given outermost hop first: we sample 3 friends of each seed, and then 2 of each member found so far.

# %%
pipe = gf.ItemSampler(members, batch_size=2, shuffle=True, seed=13)
pipe = pipe.sample_neighbor(graph, fanouts=[2, 3])
pipe = pipe.fetch_feature(features, node_feature_keys=["feat"])
print(str(pipe).replace(" -> ", "\n-> "))

# %% [markdown]
# ## Inside a mini-batch
#
# Any pipeline can be iterated without a loader.

# %%
minibatch = next(iter(pipe))
minibatch

# %% [markdown]
# | field | what it is |
# | --- | --- |
# | `seeds`, `labels` | two members, and their labels in the same order |
# | `sampled_subgraphs` | one per hop, the outermost first |
# | `input_nodes` | the nodes that the outermost hop reads from, which need features |
# | `node_features` | features of `input_nodes`, row by row |
# | `key` | (seed, epoch, index): which mini-batch this is; its random numbers depend on nothing else |
#
# A subgraph holds edges as compressed sparse columns. Column $c$ is the node `original_column_node_ids[c]`; its sampled
# neighbours are `indices[indptr[c] : indptr[c + 1]]`, which are positions in `original_row_node_ids`. The rows begin
# with the columns, so the vectors of the destinations are the first of the vectors of the sources.

# %%
inner = minibatch.sampled_subgraphs[-1]  # the hop at the seeds
csc = inner.sampled_csc
for column, node in enumerate(inner.original_column_node_ids.tolist()):
    rows = csc.indices[csc.indptr[column] : csc.indptr[column + 1]]
    print(f"seed {node} has {degrees[node]} friends; sampled: {inner.original_row_node_ids[rows].tolist()}")

# %% [markdown]
# `original_edge_ids` are positions in the arrays that the graph was made of. The rows of the features are the input
# nodes; we wrote the number of each node into its second column.

# %%
for subgraph in minibatch.sampled_subgraphs:
    csc, edges = subgraph.sampled_csc, subgraph.original_edge_ids
    columns = torch.arange(len(csc.indptr) - 1).repeat_interleave(csc.indptr.diff())
    assert sources[edges].tolist() == subgraph.original_row_node_ids[csc.indices].tolist()
    assert destinations[edges].tolist() == subgraph.original_column_node_ids[columns].tolist()
assert minibatch.node_features["feat"][:, 1].tolist() == minibatch.input_nodes.tolist()

# %% [markdown]
# The picture shows the whole club in grey, and on top of it what this mini-batch has sampled: dark arrows for the hop
# at the seeds, light ones for the outer hop.

# %%
first_hop = inner.original_row_node_ids[len(minibatch.seeds) :].tolist()
second_hop = minibatch.input_nodes[len(inner.original_row_node_ids) :].tolist()
groups = {
    "not in this mini-batch": (sorted(set(club) - set(minibatch.input_nodes.tolist())), "#e4e4e4", 120),
    "second hop": (second_hop, "#9ecae1", 200),
    "first hop": (first_hop, "#3182bd", 260),
    "seeds": (minibatch.seeds.tolist(), "#d94801", 340),
}
places = nx.spring_layout(club, seed=4)

plt.figure(figsize=(8, 5.5))
nx.draw_networkx_edges(club, places, edge_color="#dddddd")
for label, (nodes, colour, size) in groups.items():
    nx.draw_networkx_nodes(club, places, nodes, node_color=colour, node_size=size, edgecolors="white", label=label)
for subgraph, colour in zip(minibatch.sampled_subgraphs, ("#6baed6", "#08519c"), strict=True):
    ids = subgraph.original_edge_ids
    arrows = nx.DiGraph(list(zip(sources[ids].tolist(), destinations[ids].tolist(), strict=True)))
    nx.draw_networkx_edges(arrows, places, edge_color=colour, width=1.8, arrowsize=14, node_size=260)
nx.draw_networkx_labels(club, places, font_size=8)
plt.title("3 friends of each seed, then 2 of each member found so far")
plt.legend(frameon=False, fontsize=9, markerscale=0.7)
plt.axis("off")
plt.show()

# %% [markdown]
# ## What the loader makes of it
#
# The training below uses a larger graph: 4,000 nodes in 5 groups. Most edges stay inside a group, and the features say
# little about it.

# %%
rng = np.random.default_rng(0)
num_nodes, num_groups = 4_000, 5
group = rng.integers(num_groups, size=num_nodes)
sources, destinations = rng.integers(num_nodes, size=(2, 120_000))
kept = (group[sources] == group[destinations]) | (rng.random(120_000) < 0.1)
noisy = rng.normal(size=(num_nodes, 16)) + rng.normal(size=(num_groups, 16))[group] * 0.3

graph = gf.from_coo((sources[kept], destinations[kept]), num_nodes)
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.from_numpy(noisy).float())})
labels = torch.from_numpy(group)
train_set, test_set = (
    gf.ItemSet((ids, labels[ids]), names=("seeds", "labels")) for ids in torch.arange(num_nodes).split(2_000)
)
graph


# %%
def make_pipe(items: gf.ItemSet, fanouts: Sequence[int], shuffle: bool) -> gf.Datapipe:
    """Write a pipeline down."""
    pipe = gf.ItemSampler(items, batch_size=100, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=fanouts)
    return pipe.fetch_feature(features, node_feature_keys=["feat"])


pipe = make_pipe(train_set, [5, 10], shuffle=True)
loader = gf.DataLoader(pipe, num_workers=2, seed=0)

# %% [markdown]
# A loader plans the pipeline: it rewrites a copy, rule by rule, and leaves yours alone. `explain()` shows the plan, the
# last stage first. The column on the left says where a stage runs. The rules that changed something are listed below.

# %%
print(loader.explain())

# %% [markdown]
# `rewritten=False` shows the same pipeline as it was written.

# %%
print(loader.explain(rewritten=False))


# %% [markdown]
# ## Train
#
# A GraphSAGE layer (Hamilton and others, NeurIPS 2017) in plain PyTorch: a node's own vector, and the mean of its
# sampled neighbours. The rows begin with the columns, so `h[: len(degrees)]` is what the columns had before.


# %%
class SAGELayer(nn.Module):
    """Adds the mapped mean of the neighbours to the mapped vector of the node."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_size, out_size)
        self.neighbours = nn.Linear(in_size, out_size, bias=False)

    def forward(self, csc: gf.CSCFormatBase, h: torch.Tensor) -> torch.Tensor:
        degrees = csc.indptr.diff()
        columns = torch.arange(len(degrees)).repeat_interleave(degrees)
        sums = torch.zeros(len(degrees), h.shape[1]).index_add(0, columns, h[csc.indices])
        means = sums / degrees.clamp(min=1)[:, None]
        out: torch.Tensor = self.own(h[: len(degrees)]) + self.neighbours(means)
        return out


class SAGE(nn.Module):
    """One layer of the model per hop."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SAGELayer(16, 32), SAGELayer(32, num_groups)])

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        h: torch.Tensor = minibatch.node_features["feat"]
        for layer, subgraph in zip(self.layers, minibatch.sampled_subgraphs, strict=True):
            h = layer(subgraph.sampled_csc, h if layer is self.layers[0] else h.relu())
        return h


# %% [markdown]
# The training loop knows nothing of sampling. We train the same net twice: once with sampled neighbours, and once with
# fan-outs of 0, where a node has only its own features.


# %%
def train(fanouts: Sequence[int], epochs: int = 6) -> tuple[list[float], list[float]]:
    """Return the loss of each step and the test accuracy after each epoch."""
    torch.manual_seed(0)
    net = SAGE()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses, accuracies = [], []
    with (
        gf.DataLoader(make_pipe(train_set, fanouts, shuffle=True), num_workers=2, seed=0) as train_loader,
        gf.DataLoader(make_pipe(test_set, fanouts, shuffle=False), num_workers=2, seed=0) as test_loader,
    ):
        for _ in range(epochs):
            for minibatch in train_loader:
                loss = functional.cross_entropy(net(minibatch), minibatch.labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            with torch.no_grad():
                hits = [net(minibatch).argmax(1) == minibatch.labels for minibatch in test_loader]
            accuracies.append(torch.cat(hits).float().mean().item())
    return losses, accuracies


runs = {"with neighbours": train([5, 10]), "without": train([0, 0])}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for (label, (losses, accuracies)), colour in zip(runs.items(), ("#08519c", "#d94801"), strict=True):
    left.plot(losses, color=colour)
    right.plot(range(1, len(accuracies) + 1), accuracies, color=colour, marker="o")
    right.text(len(accuracies), accuracies[-1] - 0.04, label, color=colour, ha="right", va="top")
left.set(xlabel="training step", ylabel="loss", title="Loss of each mini-batch", ylim=(0, None))
right.set(xlabel="epoch", ylabel="share of test nodes", title="Test accuracy", ylim=(0, 1.02))
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Stop and resume
#
# A mini-batch depends on the pipeline, the seed, the epoch and its index, and on nothing else. So three integers say
# where an epoch stands, and it makes no difference who goes on. A fingerprint of the pipeline comes with them.

# %%
batches = iter(loader)
seen = [next(batches) for _ in range(8)]
state = json.dumps(loader.state_dict())
rest = list(batches)
print(f"{len(state)} characters of state; {len(seen)} of {len(loader)} mini-batches were made, {len(rest)} are left")

# %% [markdown]
# Another loader, with another number of workers, goes on from there. It makes only the mini-batches that are left.


# %%
def equal(one: gf.MiniBatch, other: gf.MiniBatch) -> bool:
    """Tell whether two mini-batches are the same, bit for bit."""
    layers = zip(one.sampled_subgraphs, other.sampled_subgraphs, strict=True)
    return (
        torch.equal(one.seeds, other.seeds)
        and torch.equal(one.labels, other.labels)
        and torch.equal(one.input_nodes, other.input_nodes)
        and torch.equal(one.node_features["feat"], other.node_features["feat"])
        and all(torch.equal(a.original_edge_ids, b.original_edge_ids) for a, b in layers)
    )


for num_workers in (0, 1, 3):
    with gf.DataLoader(pipe, num_workers=num_workers) as resumed:
        resumed.load_state_dict(json.loads(state))
        again = list(resumed)
    same = sum(equal(*both) for both in zip(rest, again, strict=True))
    print(f"{num_workers} workers: {same} of {len(rest)} mini-batches are equal")
    assert same == len(rest)


# %% [markdown]
# ## Stages of your own
#
# `transform` makes a stage from a function of a mini-batch. The function returns a new mini-batch and leaves its
# argument unchanged; `dataclasses.replace` makes the copy.


# %%
def scale_rows(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Give each row of the features length 1."""
    feat = minibatch.node_features["feat"]
    return replace(minibatch, node_features={"feat": functional.normalize(feat, dim=1)})


scaled = pipe.transform(scale_rows)
print(next(iter(scaled)).node_features["feat"].norm(dim=1)[:4])


# %% [markdown]
# A stage with settings is a class: its fields and one method. Its first argument is the pipeline that it reads from.
# `name` also makes it a method of every pipeline, as in `pipe.hide_columns(share=0.25)`, which type checkers don't see.
#
# A stage that draws random numbers says so with `needs_key`, and derives them from the mini-batch's key. Then its
# mini-batches, too, are the same wherever they are made.


# %%
class HideColumns(gf.Transform, name="hide_columns"):
    """Sets random columns of the features to zero."""

    share: float
    """How likely a column is hidden."""

    needs_key = True

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        generator = torch.Generator().manual_seed(minibatch.key.at(self.number))
        feat = minibatch.node_features["feat"]
        hidden = torch.rand(feat.shape[1], generator=generator) < self.share
        return replace(minibatch, node_features={"feat": feat.masked_fill(hidden, 0.0)})


own = gf.ItemSampler(train_set, batch_size=100, shuffle=True).sample_neighbor(graph, fanouts=[5, 10])
own = HideColumns(own.fetch_feature(features, node_feature_keys=["feat"]).transform(scale_rows), share=0.25)
with gf.DataLoader(own, num_workers=0, seed=0) as inline, gf.DataLoader(own, num_workers=3, seed=0) as threads:
    assert all(equal(*both) for both in zip(inline, threads, strict=True))
    print(threads.explain())

# %% [markdown]
# Your own stages run in the workers too. With `copy_to("cuda")` at the end, those before it would still do so, and the
# copy would run in the main process.

# %% [markdown]
# ## A graph with types
#
# WordNet comes with the package: meanings (synsets) and words, joined by 38 relations. Where a graph has types, every
# value is a dict: nodes by node type, edges by "source:relation:destination", features by (type, name).

# %%
dataset = gf.datasets.wordnet()
typed = gf.ItemSampler(dataset.train_set, batch_size=1024, shuffle=True, seed=0)
typed = typed.sample_neighbor(dataset.graph, fanouts=[5, 10])
typed = typed.fetch_feature(dataset.feature, node_feature_keys={"synset": ["feat"]})
minibatch = next(iter(typed))

print("seeds      ", {kind: len(ids) for kind, ids in minibatch.seeds.items()})
print("input nodes", {kind: len(ids) for kind, ids in minibatch.input_nodes.items()})
print("features   ", {key: tuple(rows.shape) for key, rows in minibatch.node_features.items()})
edges = minibatch.sampled_subgraphs[-1].sampled_csc
print("edges at the seeds", {kind: len(edges[kind].indices) for kind in list(edges)[:4]}, "...")

# %% [markdown]
# `make demo` trains on this graph.

# %%
loader.close()  # ends its threads; so does the end of a `with` block
