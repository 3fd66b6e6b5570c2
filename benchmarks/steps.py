"""Training steps on a GPU with a concurrent loader: how much of the loading they hide, and how much it slows them.

A step consists of matrix products, takes 1.5 times as long as loading a mini-batch by itself, and ends when the
device is done. It is slower if loading occupies the interpreter, the bus or the device.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

import graphfeed as gf
from benchmarks.loader import make_pipe
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times

MOST_SLOWED = 1.05
LONGER = 1.5
"""Time of a step, relative to loading."""
EPOCHS = 9
"""Maximum number of rounds: each is an epoch."""
KEY = ("node", None, "feat")


@dataclass
class Step:
    """A number of products of square matrices on a device."""

    device: torch.device
    size: int
    clock: Callable[[], float]
    count: int = 1
    matrix: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.matrix = torch.ones(self.size, self.size, device=self.device)
        self.run()

    def run(self) -> None:
        """Compute and wait for the device."""
        for _ in range(self.count):
            torch.mm(self.matrix, self.matrix)
        self.clock()

    def take(self, seconds: float) -> None:
        """Set the number of products so that a step takes the given time."""
        self.count = 1
        start = self.clock()
        for _ in range(10):
            self.run()
        self.count = max(1, round(10 * seconds / (self.clock() - start)))


@dataclass(frozen=True)
class Loading:
    """A pipeline and the options of its loader."""

    name: str
    pipe: gf.Datapipe
    options: dict[str, Any]


def report(scale: Scale, device: torch.device, clock: Callable[[], float]) -> Iterator[str]:
    """Yield a table for each way of loading."""
    step = Step(device, scale.step_size, clock)
    for loading in ways(make_pipe(scale), device):
        with ExitStack() as stack:
            loader = stack.enter_context(gf.DataLoader(loading.pipe, seed=0, **loading.options))
            load(loader, clock)  # first use: compiles and allocates
            step.take(LONGER * load(loader, clock))
            yield render(f"{loading.name}; a mini-batch, ratio to the step alone", measure(loader, step, scale, clock))


def ways(pipe: gf.Datapipe, device: torch.device) -> Iterator[Loading]:
    """Yield ways to load the same mini-batches; the last ones page-lock the graph and the features."""
    assert isinstance(pipe, gf.FeatureFetcher)
    sampled = pipe.datapipe
    assert isinstance(sampled, gf.NeighborSampler)
    assert isinstance(sampled.graph, gf.FusedCSCSamplingGraph)
    store, graph, fanouts = pipe.feature_store, sampled.graph, sampled.fanouts
    yield Loading("sample and fetch in threads, then copy", pipe.copy_to(device), {})
    store[KEY].pin_memory_()
    fetched = sampled.copy_to(device).fetch_feature(store, ["feat"])
    yield Loading("sample in threads, fetch pinned rows on the device", fetched, {})
    graph.pin_memory_()
    there = sampled.datapipe.copy_to(device).sample_neighbor(graph, fanouts).fetch_feature(store, ["feat"])
    name = "sample and fetch on the device, graph and rows pinned"
    yield Loading(f"{name}, nothing ahead", there, {"overlap_feature_fetch": False})
    yield Loading(f"{name}, ahead on one stream", there, {})
    yield Loading(f"{name}, on a stream each", there, {"overlap_graph_fetch": True})


def measure(loader: gf.DataLoader, step: Step, scale: Scale, clock: Callable[[], float]) -> list[Row]:
    """Return the times of a mini-batch, of a step, and of both together, measured in turn in each round."""
    rounds = []
    for number in range(-1, min(scale.repeats, EPOCHS)):
        times = (load(loader, clock), train(range(scale.epoch_batches), step, clock), train(loader, step, clock))
        if number >= 0:
            rounds.append(times)
    loading, alone, both = (Times(values) for values in zip(*rounds, strict=True))
    slowed = both.over(alone)
    hidden = Times([100 * (first + second - together) / first for first, second, together in rounds])
    return [
        Row("loading alone", "ms", loading.times(1e3), loading.over(alone)),
        Row("step alone", "ms", alone.times(1e3), 1.0),
        Row("both", "ms", both.times(1e3), slowed, Goal(slowed, MOST_SLOWED)),
        Row("both", "batches/s", Times([1 / seconds for seconds in both.values])),
        Row("loading that the steps hide", "%", hidden),
    ]


def load(loader: gf.DataLoader, clock: Callable[[], float]) -> float:
    """Return the seconds per mini-batch of an epoch, including the start of its workers."""
    start, count = clock(), 0
    for minibatch in loader:
        read(minibatch)
        count += 1
    return (clock() - start) / count


def train(minibatches: Iterable[Any], step: Step, clock: Callable[[], float]) -> float:
    """Return the seconds per step of an epoch, starting when its first mini-batch is ready."""
    start, count = 0.0, 0
    for minibatch in minibatches:
        start = start or clock()
        read(minibatch)
        step.run()
        count += 1
    return (clock() - start) / count


def read(minibatch: Any) -> None:
    """Use the features, so that they must be on the device."""
    if isinstance(minibatch, gf.MiniBatch) and minibatch.node_features is not None:
        minibatch.node_features["feat"].sum()
