# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Link prediction without leakage
#
# In this tutorial, you train a model to predict the hypernym (the more general term) of an animal: that a poodle is a
# dog. You rank the correct answer among all 7,509 animals, and see how omitting a single line makes the training look
# excellent and the model worse.

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
from graphfeed.storage.graph import CSCFormatBase, to_coo

torch.set_num_threads(1)  # leave the other cores to the loader

# %% [markdown]
# ## Animals in WordNet
#
# Graphfeed includes WordNet. A meaning of a word is called a synset, and edges of type `hypernym` lead from a synset to
# a more general one. The feature of a synset marks the words of its definition. We keep the synsets that are animals,
# and the words that occur in at least ten of their definitions.

# %%
wordnet = gf.datasets.wordnet()
fields = torch.empty(wordnet.metadata["num_nodes"]["synset"], dtype=torch.int64)
for items in (wordnet.train_set, wordnet.validation_set, wordnet.test_set):
    synsets, labels = items[:]["synset"]
    fields[synsets] = labels
is_animal = fields == wordnet.metadata["class_names"].index("noun.animal")
num_animals = int(is_animal.sum())
feat = wordnet.feature.read("node", "synset", "feat")[is_animal]
feat = feat[:, feat.sum(0) >= 10].float()
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(feat)})

# %% [markdown]
# We renumber the animals from 0. A row of `edges` contains an animal and its hypernym.

# %%
number = is_animal.cumsum(0) - 1
ends = to_coo(wordnet.graph)["synset:hypernym:synset"]
both = is_animal[ends.sources] & is_animal[ends.destinations]
edges = torch.stack([number[ends.sources[both]], number[ends.destinations[both]]], dim=1)
print(f"{num_animals} animals, {len(edges)} edges")

# %% [markdown]
# ## Hold out test edges first
#
# 1,000 edges are held out for the test. They are not in the graph at all: neither in training nor in the test may a
# message travel along an edge that is to be predicted. The remaining edges are added twice, once per direction.

# %%
torch.manual_seed(0)
test_edges, train_edges = edges[torch.randperm(len(edges))].split([1_000, len(edges) - 1_000])
graph = gf.from_coo(torch.cat([train_edges, train_edges.flip(1)]).T, num_animals)
graph

# %% [markdown]
# ## A pipeline for edges
#
# The seeds are edges. Each gets four negatives: the same animal with a random animal instead of its hypernym.
#
# The graph contains the edges to predict, since they are the training edges. A mini-batch must therefore not see them
# in either direction: `exclude_seed_edges` removes them from the sampled subgraphs.


# %%
def make_pipe(excludes: bool) -> gf.Datapipe:
    """Return a pipeline of edges, their negatives and sampled neighbours."""
    pipe = gf.ItemSampler(gf.ItemSet(train_edges, names="seeds"), batch_size=512, shuffle=True)
    pipe = pipe.sample_uniform_negative(graph, 4)
    pipe = pipe.sample_neighbor(graph, fanouts=[5, 10])
    if excludes:
        pipe = pipe.exclude_seed_edges(include_reverse_edges=True)
    return pipe.fetch_feature(features, node_feature_keys=["feat"])


# %% [markdown]
# A mini-batch contains 512 edges, followed by the negatives of the first edge, of the second, and so on.
# `compacted_seeds` contains the same pairs, relabelled to columns of the last subgraph.

# %% tags=["exact"]
minibatch = next(iter(make_pipe(excludes=True)))
print("seeds          ", tuple(minibatch.seeds.shape))
print("labels         ", minibatch.labels[510:514].tolist())
print("indexes        ", minibatch.indexes[510:518].tolist())
print("compacted seeds", tuple(minibatch.compacted_seeds.shape))


# %% [markdown]
# How many of the seed edges can be read off the subgraphs? We count the positive edges that were sampled.


# %%
def share_given_away(minibatch: gf.MiniBatch) -> float:
    """Return the share of the edges to predict that are among the sampled edges."""
    wanted = {tuple(pair) for pair in minibatch.seeds[minibatch.labels == 1].tolist()}
    found = set()
    for hop in minibatch.sampled_subgraphs:
        columns = torch.repeat_interleave(hop.sampled_csc.indptr.diff())
        ends = hop.original_row_node_ids[hop.sampled_csc.indices], hop.original_column_node_ids[columns]
        pairs = torch.stack(ends, dim=1)
        found |= wanted & {tuple(pair) for pair in torch.cat([pairs, pairs.flip(1)]).tolist()}
    return len(found) / len(wanted)


for excludes in (False, True):
    print(f"exclude_seed_edges: {excludes!s:5}  given away: {share_given_away(next(iter(make_pipe(excludes)))):.0%}")

# %% tags=["remove-cell"]
assert share_given_away(next(iter(make_pipe(excludes=False)))) > 0.9
assert share_given_away(minibatch) == 0


# %% [markdown]
# ## A model
#
# GraphSAGE computes a vector for each animal. The score of a pair is the dot product of their vectors, after a linear
# map of the first one. The map makes the score asymmetric: a poodle is a dog, but a dog is not a poodle.


# %%
class SAGELayer(nn.Module):
    """A linear map of a node's vector plus a linear map of its neighbours' mean."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.node = nn.Linear(size, size)
        self.neighbours = nn.Linear(size, size, bias=False)

    def forward(self, csc: CSCFormatBase, h: torch.Tensor) -> torch.Tensor:
        """Return a vector for each column."""
        degrees = csc.indptr.diff()
        sums = torch.zeros(len(degrees), h.shape[1]).index_add(0, torch.repeat_interleave(degrees), h[csc.indices])
        out: torch.Tensor = self.node(h[: len(degrees)]) + self.neighbours(sums / degrees.clamp(min=1)[:, None])
        return out


class Net(nn.Module):
    """Computes vectors of equal norm; `above` is the linear map for the scores of pairs."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.words = nn.Linear(feat.shape[1], size)
        self.layers = nn.ModuleList([SAGELayer(size), SAGELayer(size)])
        self.above = nn.Linear(size, size)

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        """Return a vector for each column of the last hop."""
        first, second = self.layers
        outer, inner = minibatch.sampled_subgraphs
        h = first(outer.sampled_csc, self.words(minibatch.node_features["feat"])).relu()
        return 4 * functional.normalize(second(inner.sampled_csc, h))


# %% [markdown]
# In training, the true edge competes with its four negatives: of the five scores, the first should be the highest.


# %%
def train(net: Net, excludes: bool, epochs: int = 3) -> list[float]:
    """Train the model and return the loss of each mini-batch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    losses = []
    with gf.DataLoader(make_pipe(excludes), num_workers=1, seed=0) as loader:
        for _ in range(epochs):
            for minibatch in loader:
                h = net(minibatch)
                animals, above = minibatch.compacted_seeds.T
                scores = (net.above(h[animals]) * h[above]).sum(1)
                count = int(minibatch.labels.sum())
                scores = torch.cat([scores[:count, None], scores[count:].view(count, 4)], dim=1)
                loss = functional.cross_entropy(scores, torch.zeros(count, dtype=torch.int64))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses


# %% [markdown]
# ## A proper evaluation
#
# Four random negatives are easy to beat. Therefore, each test edge competes with all animals: the rank of the true
# answer is one more than the number of animals with a higher score. Other true answers for the same animal are ignored.


# %%
def ranks_of(net: Net) -> torch.Tensor:
    """Return, for each test edge, the rank of its destination among all animals."""
    pipe = gf.ItemSampler(gf.ItemSet(num_animals, names="seeds"), batch_size=2048)
    pipe = pipe.sample_neighbor(graph, fanouts=[5, 10]).fetch_feature(features, node_feature_keys=["feat"])
    with torch.no_grad(), gf.DataLoader(pipe, num_workers=1, seed=0) as loader:
        h = torch.cat([net(minibatch) for minibatch in loader])
        scores = net.above(h[test_edges[:, 0]]) @ h.T
    true_scores = scores.gather(1, test_edges[:, 1:])
    is_true = torch.zeros(num_animals, num_animals, dtype=torch.bool)
    is_true[edges[:, 0], edges[:, 1]] = True
    scores[is_true[test_edges[:, 0]]] = -torch.inf
    ranks: torch.Tensor = 1 + (scores > true_scores).sum(1)
    return ranks


# %% [markdown]
# Two metrics summarise the ranks. MRR is the mean of 1 / rank. Hits@k is the share of edges with a rank of k or better.
#
# We train twice: once as above, and once without `exclude_seed_edges`.

# %%
losses, ranks = {}, {}
for excludes in (True, False):
    torch.manual_seed(0)
    net = Net()
    losses[excludes] = train(net, excludes)
    ranks[excludes] = ranks_of(net)
    hits = [(ranks[excludes] <= k).float().mean().item() for k in (1, 10, 100)]
    print(
        f"excluded: {excludes!s:5}  last loss {losses[excludes][-1]:.2f}  MRR {(1 / ranks[excludes]).mean():.2f}",
        end="",
    )
    print("  Hits@1 {:.2f}  Hits@10 {:.2f}  Hits@100 {:.2f}".format(*hits))

# %% tags=["remove-cell"]
assert losses[False][-1] < losses[True][-1] / 2
assert (1 / ranks[True]).mean() > 1.5 * (1 / ranks[False]).mean()
assert (ranks[True] <= 100).float().mean() > 0.45

# %% [markdown]
# Without that line, the final loss is over ten times smaller, so the model seems far better. In fact, its MRR is less
# than half as high: it has learnt to check whether the edge exists, and in the test it never does.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for excludes, label, colour in ((True, "edges excluded", "#08519c"), (False, "not excluded", "#d94801")):
    left.plot(losses[excludes], color=colour)
    best = torch.arange(1, 1001)
    right.semilogx(best, (ranks[excludes] <= best[:, None]).float().mean(1), color=colour, label=label)
right.semilogx(best, best / num_animals, color="#969696", linestyle=":", label="guessing")
left.set(xlabel="mini-batch", ylabel="loss", title="In training: low is good", ylim=(0, None))
right.set(xlabel="k", ylabel="Hits@k", title="In the test: high is good", ylim=(0, 1))
right.legend()
plt.show()

# %% [markdown]
# ## Further reading
#
# - [docs/from-graphbolt.md](../docs/from-graphbolt.md) and [docs/from-pyg.md](../docs/from-pyg.md) describe how the
#   link loaders of other libraries map to these stages.
# - [Temporal graphs](05_temporal_graphs.ipynb) shows the other common leak: the future.
# - W. Hu and others, "Open Graph Benchmark" (NeurIPS 2020), defines MRR and Hits@k as used here.
