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
# At the end of this page you have measured a training that waits for its loader, found the stage that it waits for,
# changed it until the net itself is the limit, and seen how many workers the loader needs.
#
# The times on this page are those of one small machine. Yours will differ, and so may the advice.

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
torch.set_num_threads(1)  # the net is small, and leaves the other cores to the loader

# %% [markdown]
# ## A training that is slow
#
# The graph is that of [the first page](01_first_pipeline.ipynb). A definition has some 6 of 2,048 words, so we look up
# a vector for each of its words, rather than multiply 2,048 columns. A stage of our own lists the words. It is written
# as one would write it first: a loop over the rows.

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
    """Lists the words of all definitions, and where the words of each one begin."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        words: list[int] = []
        begins = []
        for row in minibatch.node_features["feat"]:
            begins.append(len(words))
            words += row.nonzero().flatten().tolist()
        return replace(minibatch, node_features={"words": torch.tensor(words), "begins": torch.tensor(begins)})


# %% [markdown]
# The net, and a loop over an epoch.


# %%
class Layer(nn.Module):
    """Maps a node's vector, and adds the mapped mean of its neighbours' vectors."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_size, out_size)
        self.neighbours = nn.Linear(in_size, out_size, bias=False)

    def forward(self, csc: gf.CSCFormatBase, h: torch.Tensor) -> torch.Tensor:
        means = torch.segment_reduce(self.neighbours(h)[csc.indices], "mean", offsets=csc.indptr, initial=0)
        out: torch.Tensor = self.own(h[: len(means)]) + means
        return out


class Net(nn.Module):
    """Adds up a vector for each word of a definition, and maps it by two layers."""

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
    """Train a new net for one epoch, and return the last loss."""
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
# `loader.profile()` measures the epochs that begin within its block. Printed, a profile begins with a verdict: who
# waits for whom, and what to try. Below it are the stages, and what each takes of a mini-batch.


# %%
def measure(pipe: gf.Datapipe, num_workers: int) -> tuple[Profile, float]:
    """Return the profile of an epoch, and the last loss."""
    with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader, loader.profile() as profile:
        loss = train(loader)
    return profile, loss


inline, loss = measure(ListWords(pipe), num_workers=0)

# %% tags=["volatile"]
print(inline)

# %% [markdown]
# Without workers, all stages run in the thread of the loop, and the step waits for all of them. The verdict names how
# many workers may help. It does so after each measurement: it also says when fewer would do, or when processes are
# better than threads. Without `num_workers`, a loader has one thread per core.
#
# ## Take workers
#
# Two workers make mini-batches ahead, while the net computes.

# %%
threads, same_loss = measure(ListWords(pipe), num_workers=2)

# %% tags=["volatile"]
print(threads)

# %% [markdown]
# They are busy, and yet the step waits. A line of the table says why: our stage takes nearly all of a mini-batch, and
# the CPU works on it for only a part of that time. Workers are threads, and Python runs one thread at a time. Stages
# that come with graphfeed let go of Python's lock while they compute; a loop over rows holds it.
#
# `to_dict()` has all figures of the table, so that a picture can show the same.

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
# ## Change the stage
#
# Few calls of torch do the same as the loop, and they release the lock.


# %%
class ListWordsAtOnce(gf.Transform):
    """Does the same as ListWords, for all rows at once."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        rows, words = minibatch.node_features["feat"].nonzero(as_tuple=True)
        begins = torch.searchsorted(rows, torch.arange(len(minibatch.input_nodes)))
        return replace(minibatch, node_features={"words": words, "begins": begins})


at_once, last_loss = measure(ListWordsAtOnce(pipe), num_workers=2)

# %% tags=["volatile"]
print(at_once)

# %% [markdown]
# Now the step hardly waits: it is the net that takes the time. A loader can do little more for it.
#
# If a stage can't be written like that, `gf.DataLoader(..., worker="process")` gives each worker a Python of its own.
#
# Each of these trainings has seen the same mini-batches:

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
# - `profile.to_chrome_trace("trace.json")` writes all of it for [Perfetto](https://ui.perfetto.dev), and
#   `loader.explain()` shows the measured times beside the plan.
# - `graphfeed doctor` checks the machine itself.
# - What a profile concludes from utilisation and demand is known as operational analysis: Denning and Buzen, [The
#   operational analysis of queueing network models](https://dl.acm.org/doi/10.1145/356733.356735), 1978.
