# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A stream of events
#
# In this tutorial, you train a model to predict which song a listener plays next. It reads a stream of events in
# batches, stops and resumes in the middle of an epoch, and is tested as in the Temporal Graph Benchmark (TGB): by the
# mean reciprocal rank of each true song among twenty others.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
from pathlib import Path
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.datapipes import FixedNegatives, NeighborMatrix
from graphfeed.loader import TemporalDataLoader
from graphfeed.testing import assert_same

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader

# %% [markdown]
# ## Events
#
# An event is a listener, a song and a time. We generate 8,000 events of 400 listeners and 100 songs, which are on ten
# albums. With a probability of 60%, a listener goes on to the next song of the album. With 20%, it is one of the last
# five songs again, and with 20% any song. The model doesn't know the albums.

# %%
num_listeners, num_songs, num_events, album_size = 400, 100, 8000, 10
rng = np.random.default_rng(0)


def next_song(played: list[int]) -> int:
    """Return the number of the song that follows those that a listener has played."""
    chance = rng.random()
    if not played or chance < 0.2:
        return int(rng.integers(num_songs))
    if chance < 0.4:
        return int(rng.choice(played[-5:]))
    album, track = divmod(played[-1], album_size)
    return album * album_size + (track + 1) % album_size


listeners = rng.integers(num_listeners, size=num_events)
times = torch.from_numpy(np.sort(rng.integers(30 * 1440, size=num_events)))  # minutes of a month
history: list[list[int]] = [[] for _ in range(num_listeners)]
songs = []
for listener in listeners:
    songs.append(next_song(history[listener]))
    history[listener].append(songs[-1])

# %% [markdown]
# Listeners are the nodes 0 to 399, and songs the nodes 400 to 499. The plot shows the events of four listeners. Rising
# lines are albums that are played in order.

# %%
pairs = torch.stack([torch.from_numpy(listeners), torch.tensor(songs) + num_listeners], dim=1)

figure, axes = plt.subplots(figsize=(8, 3.2))
for listener in range(4):
    own = pairs[:, 0] == listener
    axes.plot(times[own] / 1440, pairs[own, 1], marker="o", markersize=4, linewidth=0.8, label=f"listener {listener}")
axes.set(xlabel="day", ylabel="song", title="What four listeners play")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## A graph of events
#
# Each event becomes two edges with the same time, so that the listener sees the song, and the song the listener. The
# first 6,000 events are for training, and the last 2,000 for the test.

# %%
both_ways = torch.cat([pairs, pairs.flip(1)]).T
num_nodes = num_listeners + num_songs
graph = gf.from_coo(both_ways, num_nodes, edge_attributes={"time": times.repeat(2)})
num_train, names = 6000, ("seeds", "timestamp")
train_events = gf.ItemSet((pairs[:num_train], times[:num_train]), names=names)
test_events = gf.ItemSet((pairs[num_train:], times[num_train:]), names=names)

# %% [markdown]
# ## Batches of events
#
# TGB divides a stream into batches of 200 events, and so do we. With `every=`, a mini-batch is a span of time instead,
# such as a day of 1,440 minutes if the model is updated once a day. Here are the numbers of events on the days of the
# test, which begins in the middle of a day:

# %% tags=["exact"]
by_day = gf.ItemSampler(test_events, every=1440)
print([len(minibatch.seeds) for minibatch in by_day])

# %% [markdown]
# ## Negatives
#
# The model learns to distinguish the true song from ten others. With `"seen"`, these are songs that the listener has
# played before. If there are fewer than ten, random ones follow. `strict=True` avoids duplicates, and songs that the
# listener plays at the same time. With `as_columns=True`, each row of the seeds is an event: the listener, the song and
# its negatives.


# %% tags=["exact"]
def with_negatives(items: gf.ItemSet, ratio: int) -> gf.Datapipe:
    """Return a pipeline of batches of 200 events with negatives."""
    pipe, only_songs = gf.ItemSampler(items, batch_size=200), (num_listeners, num_nodes)
    return pipe.sample_temporal_negative(
        graph, "seen", ratio, strict=True, destinations=only_songs, as_columns=True, edge_timestamp_attr_name="time"
    )


print(next(iter(with_negatives(train_events, 10))).seeds[0])

# %% [markdown]
# This is the first event, so no song has been played before, and all ten negatives are random.
#
# ## Neighbours
#
# We sample two hops for listeners and songs alike:
#
# - `strategy="latest"` takes the latest five neighbours of each seed, and the latest three of each of these.
# - With `hop_time="edge"`, the second hop is earlier than the event that led to it. From a song, the first hop leads to
#   its latest listeners, and the second one to the songs that they had played before it.
# - With `visible="batch"`, a seed sees only events from before its batch, as in TGB: a model with a memory is updated
#   after a batch, not during it.
#
# `to_matrix()` arranges the result as a matrix per hop, with the newest neighbour in the last place.


# %%
def with_neighbors(pipe: gf.Datapipe, visible: Literal["batch", "seed"] = "batch") -> gf.Datapipe:
    """Return a pipeline that also samples the latest neighbours."""
    pipe = pipe.temporal_sample_neighbor(
        graph, [3, 5], edge_timestamp_attr_name="time", strategy="latest", hop_time="edge", visible=visible
    )
    return pipe.to_matrix()


train_pipe = with_neighbors(with_negatives(train_events, 10))
*_, minibatch = train_pipe
near, far = minibatch.matrices
print(near)
print(far)

# %% [markdown]
# `near` has a row for each of the 200 · 12 seeds, in the order of `minibatch.seeds`. `far` has a row for each place in
# `near`. The first row of `near` has the songs that the listener of the first event played last, and the times. All
# times are earlier than the batch.

# %% tags=["exact"]
print("event:   ", minibatch.seeds[0, :2].tolist(), "at", int(minibatch.timestamp[0]))
print("before:  ", near.ids[0].tolist(), "at", near.times[0].tolist())
print("all before the batch:", bool(near.times.max() < minibatch.timestamp.min()))

# %% [markdown]
# ## The same mini-batches
#
# The stages keep no state between batches. So two workers can produce an epoch, or another process can produce the rest
# of it. We interrupt an epoch after 12 mini-batches, and compare all of it with an epoch without workers.
# `assert_same` compares every tensor bit by bit, and would raise an error that names the first difference.

# %% tags=["exact"]
expected = list(gf.DataLoader(train_pipe, num_workers=0, seed=0))

with gf.DataLoader(train_pipe, num_workers=2, seed=0) as loader:
    epoch = iter(loader)
    found = [next(epoch) for _ in range(12)]
    state = loader.state_dict()

with gf.DataLoader(train_pipe, num_workers=2, seed=0) as loader:
    loader.load_state_dict(state)
    found += loader

assert_same(found, expected)
print(len(found), "mini-batches are bit-identical")

# %% [markdown]
# ## A model
#
# Each song has a vector. A listener is the mean of the latest songs' vectors. A song is its own vector, plus the mean
# of the songs that its latest listeners had played before it. The score of a pair is an inner product.
#
# A weight of the mean depends on the place in the row and on the age of the event. The newest neighbour is always in
# the last place, so the model can learn how much more it matters.


# %%
class WeightedMean(nn.Module):
    """The mean over the neighbours in a row of a matrix, with trained weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(width))
        self.rate = nn.Parameter(torch.tensor(0.1))

    def forward(self, matrix: NeighborMatrix, rows: torch.Tensor) -> torch.Tensor:
        """Return a vector for each seed of a matrix from one for each of its places."""
        hours = (matrix.seed_times[:, None] - matrix.times) / 60
        weights = torch.exp(self.place - self.rate * torch.log1p(hours)) * matrix.mask
        return (weights[:, :, None] * rows).sum(1) / weights.sum(1, keepdim=True).clamp(min=1e-9)


class Net(nn.Module):
    """Scores the songs of an event: the true one, and its negatives."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.vectors = nn.Embedding(num_nodes, size)
        self.near, self.far = WeightedMean(5), WeightedMean(3)
        self.listener, self.song, self.before = (nn.Linear(size, size, bias=False) for _ in range(3))

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        """Return the scores, with a row per event."""
        seeds, (near, far) = minibatch.seeds, minibatch.matrices
        ids, far_ids = near.ids.clamp(min=0), far.ids.clamp(min=0)  # the mask removes what is padded
        played = self.near(near, self.vectors(ids)).view(*seeds.shape, -1)
        before = self.far(far, self.vectors(far_ids)).view(*ids.shape, -1)
        before = self.near(near, before).view(*seeds.shape, -1)
        candidates = self.song(self.vectors(seeds[:, 1:])) + self.before(before[:, 1:])
        scores: torch.Tensor = (self.listener(played[:, :1]) * candidates).sum(-1)
        return scores


# %% [markdown]
# ## Train, stop and resume
#
# The loss is the cross-entropy of the true song, in column 0, against its negatives. First, we train for five epochs of
# 30 steps without interruption.


# %%
class Training:
    """A model, its optimizer, and the losses so far."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.losses: list[float] = []

    def run(self, loader: gf.DataLoader, steps: int) -> None:
        """Train until a number of steps is reached."""
        while len(self.losses) < steps:
            for minibatch in loader:
                loss = functional.cross_entropy(self.net(minibatch), torch.zeros(len(minibatch.seeds)).long())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
                if len(self.losses) == steps:
                    break


undisturbed = Training()
with gf.DataLoader(train_pipe, num_workers=2, seed=0) as loader:
    undisturbed.run(loader, 150)
print(f"the loss went from {undisturbed.losses[0]:.1f} to {undisturbed.losses[-1]:.1f}")

# %% [markdown]
# The first loss is that of eleven equal scores, log 11 = 2.4.
#
# The second run stops after 75 steps, in the middle of the third epoch, and saves a checkpoint.

# %% tags=["exact"]
stopped = Training()
with gf.DataLoader(train_pipe, num_workers=2, seed=0) as loader:
    stopped.run(loader, 75)
    state = loader.state_dict()
nets = {"net": stopped.net.state_dict(), "optimizer": stopped.optimizer.state_dict()}
Path("scratch").mkdir(exist_ok=True)
torch.save({**nets, "losses": stopped.losses, "loader": state}, "scratch/events.pt")
print({name: state[name] for name in ("seed", "epoch", "index")})

# %% [markdown]
# Epochs are counted from 0, and the mini-batch with index 15 is the next one. A new process would continue as follows.
# The losses and the weights are bit-identical to those of the undisturbed run.

# %% tags=["exact"]
checkpoint = torch.load("scratch/events.pt", weights_only=True)
resumed = Training()
resumed.net.load_state_dict(checkpoint["net"])
resumed.optimizer.load_state_dict(checkpoint["optimizer"])
resumed.losses = checkpoint["losses"]
with gf.DataLoader(train_pipe, num_workers=2, seed=0) as loader:
    loader.load_state_dict(checkpoint["loader"])
    resumed.run(loader, 150)
assert_same(resumed.net.state_dict(), undisturbed.net.state_dict())
assert_same(resumed.losses, undisturbed.losses)
print(len(resumed.losses), "losses and all weights are bit-identical")

# %% [markdown]
# ## Negatives for the test
#
# In a benchmark, all models are tested with the same negatives. We draw twenty for each event once, and write them to a
# file. For the data of TGB, `graphfeed.interop.tgm.read_tgb_negatives` reads the lists that come with it.

# %%
drawn = torch.cat([minibatch.seeds for minibatch in gf.DataLoader(with_negatives(test_events, 20), seed=0)])
rows = zip(drawn.tolist(), times[num_train:].tolist(), strict=True)
FixedNegatives({(source, song, time): others for (source, song, *others), time in rows}).save("scratch/negatives.npz")
lists = FixedNegatives.load("scratch/negatives.npz")

# %% [markdown]
# ## Mean reciprocal rank
#
# The rank of the true song is one more than the number of negatives with a higher score. Negatives with an equal score
# count half. The metric is the mean of 1 / rank, so it is 1 if the true song is always first. With random scores, each
# rank from 1 to 21 is equally likely.


# %%
def reciprocal_rank(scores: torch.Tensor) -> float:
    """Return the mean reciprocal rank of column 0 among the columns."""
    true, others = scores[:, :1], scores[:, 1:]
    ranks = 1 + ((others > true).sum(1) + (others >= true).sum(1)) / 2
    return (1 / ranks).mean().item()


def evaluate(net: Net, visible: Literal["batch", "seed"]) -> float:
    """Return the mean reciprocal rank of the test events."""
    pipe = gf.ItemSampler(test_events, batch_size=200)
    pipe = pipe.sample_temporal_negative(graph, "listed", lists=lists, as_columns=True)
    with torch.no_grad(), gf.DataLoader(with_neighbors(pipe, visible), num_workers=2, seed=0) as loader:
        return reciprocal_rank(torch.cat([net(minibatch) for minibatch in loader]))


results = {"random scores": sum(1 / rank for rank in range(1, 22)) / 21}

# %% [markdown]
# A simple baseline is EdgeBank, which remembers all pairs: the score is 1 if the listener has played the song before,
# and otherwise 0. It needs no neighbours, only events in their order, which `TemporalDataLoader` loads. Again, the
# memory is updated after each batch.

# %%
known = torch.zeros(num_nodes, num_nodes)
known[pairs[:num_train, 0], pairs[:num_train, 1]] = 1
scores = []
test_arrays = {"src": pairs[num_train:, 0], "dst": pairs[num_train:, 1], "t": times[num_train:]}
for batch in TemporalDataLoader(test_arrays, batch_size=200):
    others = lists.find(batch.src.numpy(), batch.dst.numpy(), batch.t.numpy())[0]
    candidates = torch.column_stack([batch.dst, torch.from_numpy(others).view(-1, 20)])
    scores.append(known[batch.src[:, None], candidates])
    known[batch.src, batch.dst] = 1
results["EdgeBank"] = reciprocal_rank(torch.cat(scores))

# %% [markdown]
# Then we test our model, as TGB does. For comparison, `visible="seed"` shows each event all earlier ones, including
# those of its batch.

# %%
results["model"] = evaluate(resumed.net, "batch")
results["model that sees its batch"] = evaluate(resumed.net, "seed")
for name, result in results.items():
    print(f"{name}: {result:.2f}")

# %% tags=["remove-cell"]
assert results["EdgeBank"] < results["random scores"] + 0.01
assert results["random scores"] + 0.25 < results["model"] < results["model that sees its batch"] - 0.02

# %%
figure, axes = plt.subplots(figsize=(6.5, 2.4))
bars = axes.barh(list(results), list(results.values()), color=["#bdbdbd", "#bdbdbd", "#08519c", "#6baed6"], height=0.6)
axes.bar_label(bars, fmt=" %.2f")
axes.set(xlim=(0, 1), xlabel="mean reciprocal rank among 20 negatives")
axes.set_title("How well the next song is predicted")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# EdgeBank is worse than random scores, because most of the negatives were played before, and most of the true songs
# were not. The model has learnt what follows what.
#
# The last bar doesn't show a leak: nothing at or after the time of an event is visible. However, the song that a
# listener played just before is sometimes in the same batch, and only this model sees it. So compare results only if
# batches and visibility are the same, and choose those of your service.
#
# ## Further reading
#
# - [Temporal sampling without leaks](../docs/how-to/in-time.md) describes all options for times and events.
# - [Temporal graphs](05_temporal_graphs.ipynb) has node types, and predicts labels instead of edges.
# - [Stop, resume, and lose a worker](09_stop_and_resume.ipynb) also kills a worker.
# - S. Huang and others, "Temporal Graph Benchmark for Machine Learning on Temporal Graphs" (NeurIPS 2023): the metric.
# - F. Poursafaei and others, "Towards Better Evaluation for Dynamic Link Prediction" (NeurIPS 2022): EdgeBank.
