# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Find what is slow
#
# In this tutorial, you profile a training loop that waits for its loader, find the stage that causes the wait, rewrite
# it until the model itself is the bottleneck, and see how many workers the loader needs.
#
# The times were measured on one small machine. Yours will differ, and so may the advice.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.loader.profile import Profile
from graphfeed.storage.graph import to_coo

# %matplotlib inline
torch.set_num_threads(1)  # the model is small; leave the other cores to the loader

# %% [markdown]
# ## A slow training loop
#
# The graph is the one from [the first tutorial](01_first_pipeline.ipynb). A definition has about 6 of 2,048 words, so
# we look up a vector for each of its words instead of multiplying 2,048 columns. Our own stage lists the words. Its
# first version is a simple loop over the rows.

# %%
wordnet = gf.datasets.wordnet()
edges = to_coo(wordnet.graph)["synset:hypernym:synset"]
ends = (torch.cat([edges.sources, edges.destinations]), torch.cat([edges.destinations, edges.sources]))
feat = wordnet.feature.read("node", "synset", "feat")
graph = gf.from_coo(ends, num_nodes=len(feat))
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(feat)})
train_set = gf.ItemSet(wordnet.train_set[:]["synset"], names=("seeds", "labels"))

pipe = gf.ItemSampler(train_set, batch_size=1024, shuffle=True)
pipe = pipe.sample_neighbor(graph, fanouts=[5, 10])
pipe = pipe.fetch_feature(features, node_feature_keys=["feat"])


class ListWords(gf.Transform):
    """Lists the words of all definitions, and the position at which each definition begins."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        words: list[int] = []
        begins = []
        for row in minibatch.node_features["feat"]:
            begins.append(len(words))
            words += row.nonzero().flatten().tolist()
        return replace(minibatch, node_features={"words": torch.tensor(words), "begins": torch.tensor(begins)})


# %% [markdown]
# The model, and a training loop for one epoch:


# %%
class Layer(nn.Module):
    """A linear map of a node's vector plus a linear map of its neighbours' mean."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_size, out_size)
        self.neighbours = nn.Linear(in_size, out_size, bias=False)

    def forward(self, csc: gf.CSCFormatBase, h: torch.Tensor) -> torch.Tensor:
        means = torch.segment_reduce(self.neighbours(h)[csc.indices], "mean", offsets=csc.indptr, initial=0)
        out: torch.Tensor = self.own(h[: len(means)]) + means
        return out


class Net(nn.Module):
    """Sums a vector for each word of a definition, then applies two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(2048, 64, mode="sum")
        self.first = Layer(64, 64)
        self.second = Layer(64, wordnet.metadata["num_classes"])
        nn.init.normal_(self.words.weight, std=0.1)

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        outer, inner = minibatch.sampled_subgraphs
        h = self.words(minibatch.node_features["words"], minibatch.node_features["begins"])
        out: torch.Tensor = self.second(inner.sampled_csc, self.first(outer.sampled_csc, h.relu()).relu())
        return out


def train(loader: gf.DataLoader) -> float:
    """Train a new model for one epoch and return the last loss."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for minibatch in loader:
        loss = functional.cross_entropy(net(minibatch), minibatch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[-1]


# %% [markdown]
# ## Measure
#
# `loader.profile()` measures the epochs that begin within its block. A printed profile begins with a verdict: what
# waits for what, and what to try. It is followed by the stages, with the time that each spends on a mini-batch.


# %%
def measure(pipe: gf.Datapipe, num_workers: int) -> tuple[Profile, float]:
    """Return the profile of an epoch and the last loss."""
    with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader, loader.profile() as profile:
        loss = train(loader)
    return profile, loss


inline, loss = measure(ListWords(pipe), num_workers=0)

# %% tags=["volatile"]
print(inline)

# %% [markdown]
# Without workers, all stages run in the thread of the loop, and the step waits for all of them. The verdict recommends
# a number of workers. After each measurement, it also reports when fewer would be enough, or when processes are better
# than threads. Without `num_workers`, a loader has one thread per core.
#
# ## Add workers
#
# Two workers prepare mini-batches ahead of time, while the model computes.

# %%
threads, same_loss = measure(ListWords(pipe), num_workers=2)

# %% tags=["volatile"]
print(threads)

# %% [markdown]
# The workers are busy, and yet the step waits. The table shows why: our stage takes nearly all of the time, and the CPU
# works on it for only part of that time. Workers are threads, and Python runs one thread at a time. Built-in stages
# release Python's global interpreter lock while they compute; a loop over rows holds it.
#
# `to_dict()` returns all figures of the table, for example for a plot.

# %% tags=["volatile"]
figures = threads.to_dict()
rows = [(stage["row"].name, stage["ms"], stage["ms"] * stage["cpu"]) for stage in figures["stages"]]
names, times, computing = zip(*rows, strict=True)
figure, axes = plt.subplots(figsize=(7, 2.4))
axes.barh(names, times, color="0.85", label="waits")
axes.barh(names, computing, color="#d94801", label="computes")
axes.axvline(figures["step_ms"], color="black", label="your step")
axes.invert_yaxis()
axes.set(xlabel="ms of a mini-batch", title="Where the time of a worker goes")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## Rewrite the stage
#
# A few calls of torch do the same as the loop, and they release the lock.


# %%
class ListWordsAtOnce(gf.Transform):
    """Does the same as ListWords for all rows at once."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        rows, words = minibatch.node_features["feat"].nonzero(as_tuple=True)
        begins = torch.searchsorted(rows, torch.arange(len(minibatch.input_nodes)))
        return replace(minibatch, node_features={"words": words, "begins": begins})


at_once, last_loss = measure(ListWordsAtOnce(pipe), num_workers=2)

# %% tags=["volatile"]
print(at_once)

# %% [markdown]
# Now the step hardly waits: the model takes most of the time. A loader can do little more for it.
#
# If you can't rewrite a stage like that, `gf.DataLoader(..., worker="process")` runs each worker in a separate process.
#
# All of these runs have seen the same mini-batches:

# %% tags=["exact"]
print("the same loss:", loss == same_loss == last_loss)

# %% tags=["remove-cell"]
assert loss == same_loss == last_loss < 1

# %% tags=["volatile"]
waits = {"no workers": inline, "two workers": threads, "two workers, and another stage": at_once}
shares = [profile.to_dict()["waits"] for profile in waits.values()]
figure, axes = plt.subplots(figsize=(7, 2.4))
bars = axes.barh(list(waits), shares, color="#d94801", height=0.6)
axes.bar_label(bars, fmt="{:.0%}", padding=4)
axes.invert_yaxis()
axes.set(xlim=(0, 1), xlabel="share of its time that the step waits", title="Before and after")
plt.show()

# %% [markdown]
# ## What next
#
# - `profile.to_chrome_trace("trace.json")` writes a trace for [Perfetto](https://ui.perfetto.dev), and
#   `loader.explain()` shows the measured times next to the plan.
# - `graphfeed doctor` checks the machine itself.
# - Drawing such conclusions from utilisation and demand is known as operational analysis: Denning and Buzen, [The
#   operational analysis of queueing network models](https://dl.acm.org/doi/10.1145/356733.356735), 1978.
