"""Stages as users write them, one of each kind."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch

import graphfeed as gf

with_torch_workers = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning",  # more workers than the machine has cores
    "ignore:This process .* is multi-threaded:DeprecationWarning",
)


def seeds_of(minibatch: gf.MiniBatch) -> torch.Tensor:
    assert isinstance(minibatch.seeds, torch.Tensor)
    return minibatch.seeds


def shifted(minibatch: gf.MiniBatch, by: int) -> gf.MiniBatch:
    """Return another mini-batch with larger seeds."""
    return gf.MiniBatch(seeds=seeds_of(minibatch) + by, key=minibatch.key)


class ByMethod(gf.MiniBatchTransformer):
    """GraphBolt's idiom: the work is a method, handed to the base."""

    def __init__(self, datapipe: gf.Datapipe, by: int) -> None:
        super().__init__(datapipe, self._work)
        self.by = by

    def _work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, self.by)


class ByFields(gf.Transform):
    """Fields and one method: how the library's own stages are written."""

    by: int
    again: int = 1

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, self.by * self.again)


class ByInit(gf.Transform):
    """An ordinary class."""

    def __init__(self, datapipe: gf.Datapipe, by: int) -> None:
        super().__init__(datapipe)
        self.by = by

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, self.by)


class InPairs(gf.Datapipe):
    """Not one to one: two mini-batches become one."""

    datapipe: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        source = iter(self.datapipe)
        for first in source:
            second = next(source, first)
            yield gf.MiniBatch(seeds=torch.cat([seeds_of(first), seeds_of(second)]), key=first.key)


class Odd(gf.Datapipe):
    """An ordinary class that leaves mini-batches out."""

    def __init__(self, source: Iterable[Any], name: str = "odd") -> None:
        self.source = source
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        for place, minibatch in enumerate(self.source):
            if place % 2:
                yield minibatch


class Join(gf.Datapipe):
    """Two inputs."""

    left: gf.Datapipe
    right: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        for left, right in zip(self.left, self.right, strict=True):
            yield gf.MiniBatch(seeds=torch.cat([seeds_of(left), seeds_of(right)]), key=left.key)


class Chained(gf.Datapipe):
    """Any number of inputs, in a tuple."""

    parts: tuple[gf.Datapipe, ...]

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts:
            yield from part


def make_items(count: int = 10, batch_size: int = 2, shuffle: bool = False) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=batch_size, shuffle=shuffle)


def make_join() -> Join:
    """Return a pipeline that forks and joins: both branches read from one source."""
    source = make_items()
    return Join(ByFields(source, 100), ByMethod(source, 200))


USERS: dict[str, Callable[[], gf.Datapipe]] = {
    "by method": lambda: ByMethod(make_items(), 5),
    "by fields": lambda: ByFields(make_items(), 5, again=2),
    "by init": lambda: ByInit(make_items(), 5),
    "in pairs": lambda: InPairs(make_items()),
    "odd": lambda: Odd(make_items()),
    "join": make_join,
    "chained": lambda: Chained((make_items(4), ByInit(make_items(4), 50))),
    "deep": lambda: ByMethod(InPairs(ByInit(ByFields(make_items(20, shuffle=True), 1), 2)), 3),
}
"""A pipeline with each of them."""


def seeds_in(pipe: Iterable[Any]) -> list[list[int]]:
    """Run a pipeline and return the seeds of each mini-batch."""
    return [seeds_of(minibatch).tolist() for minibatch in pipe]
