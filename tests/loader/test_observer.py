"""Who watches a run is told of each stage and each wait, in whichever thread it is."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import graphfeed as gf
from tests import pipelines
from tests.digests import digests

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


class Counts:
    """How often each stage was called and each side of each cut waited; what ends must be what began last."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        self.open = threading.local()
        self.lock = threading.Lock()
        self.unbalanced = 0

    def begin(self, name: str) -> None:
        if not hasattr(self.open, "stack"):
            self.open.stack = []
        self.open.stack.append(name)

    def end(self, name: str) -> None:
        began = self.open.stack.pop()
        with self.lock:
            self.unbalanced += began != name
            self.calls[name] += 1

    def stage_begin(self, stage: gf.Datapipe, key: gf.Key | None) -> None:
        self.begin(f"{stage.position} {type(stage).__name__}")

    def stage_end(self, stage: gf.Datapipe, key: gf.Key | None) -> None:
        self.end(f"{stage.position} {type(stage).__name__}")

    def wait_begin(self, cut: gf.Datapipe, side: str) -> None:
        self.begin(f"{type(cut).__name__}, {side}")

    def wait_end(self, cut: gf.Datapipe, side: str) -> None:
        self.end(f"{type(cut).__name__}, {side}")


class Loops(gf.Transform):
    """A stage with a loop of its own."""

    one_to_one = True

    def __iter__(self) -> Iterator[Any]:
        yield from self.datapipe


class Every(gf.Transform):
    """A loop around that of the base."""

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()

    def __call__(self, batch: gf.MiniBatch) -> gf.MiniBatch:
        return batch


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_call_of_a_stage_and_each_wait_at_a_cut_is_told_once(num_workers: int) -> None:
    counts = Counts()
    pipe = Every(Loops(pipelines.homogeneous()))
    with gf.DataLoader(pipe, num_workers, seed=1, observer=counts) as loader:
        assert digests(loader) == digests(pipe.with_seed(1))
    # A loop is also asked for the end; sampled and fetched are ten mini-batches wherever they are.
    stages = {"1 ItemSampler": 11, "2 NeighborSampler": 10, "3 FeatureFetcher": 10, "4 Loops": 11, "5 Every": 11}
    waits = {"InWorkers, reader": 10, "Prefetch, reader": 11, "Prefetch, maker": 10}
    assert counts.calls == (stages if num_workers == 0 else {**stages, "1 ItemSampler": 10, **waits})
    assert counts.unbalanced == 0


def test_what_workers_in_processes_do_is_a_wait_of_the_reader() -> None:
    counts = Counts()
    with gf.DataLoader(pipelines.homogeneous(), 1, worker="process", seed=1, observer=counts) as loader:
        assert len(list(loader)) == 10
    assert set(counts.calls) == {"3 FeatureFetcher", "InWorkers, reader"}
    assert counts.unbalanced == 0


def divide(batch: gf.MiniBatch) -> gf.MiniBatch:
    raise ZeroDivisionError


def test_a_stage_that_fails_has_ended() -> None:
    counts = Counts()
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), 2).transform(divide)
    for num_workers in (0, 2):
        with gf.DataLoader(pipe, num_workers, observer=counts) as loader, pytest.raises(ZeroDivisionError):
            list(loader)
        assert counts.unbalanced == 0
        assert counts.open.stack == []
    assert counts.calls["2 MiniBatchTransformer"] >= 2


def test_an_executor_of_the_user_s_own_is_observed_where_it_has_threads() -> None:
    counts = Counts()
    with (
        ThreadPoolExecutor(2) as threads,
        gf.DataLoader(pipelines.homogeneous(), executor=threads, observer=counts) as loader,
    ):
        list(loader)
    assert counts.calls["2 NeighborSampler"] == 10
