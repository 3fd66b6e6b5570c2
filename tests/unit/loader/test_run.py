"""The context of a run: executor, cancellation and observer; a run may have nested parts."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import Prefetch, RunContext, current_run
from tests.kinds import pipelines
from tests.kinds.digests import digests
from tests.stand_ins.waiting import HangAtTheSecond, wait_until

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


class Looks(gf.Datapipe[Any]):
    """Yields the context that it runs in."""

    def __iter__(self) -> Iterator[RunContext]:
        for _ in range(3):
            yield current_run()


def test_without_a_run_there_is_no_executor_and_nothing_is_shared() -> None:
    first, second, _ = Looks()
    assert first.executor is None
    assert first.observer is None
    first.cancel()
    assert not second.cancelled


def test_a_stage_is_in_the_context_and_the_loop_is_not() -> None:
    run = RunContext()
    for seen in run.drive(Looks()):
        assert seen is run
        assert current_run() is not run


def test_a_thread_within_a_thread_ends_when_the_reader_leaves() -> None:
    hang = HangAtTheSecond()
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=1).transform(hang)
    items = RunContext().drive(Prefetch(Prefetch(pipe)))
    next(items)
    names = [thread.name for thread in threading.enumerate()].count("graphfeed-prefetch")
    assert names == 2
    threading.Timer(0.2, hang.release.set).start()
    items.close()
    wait_until(lambda: "graphfeed-prefetch" not in {thread.name for thread in threading.enumerate()})


class Keeps:
    """An iterator without `close`, as a user-defined stage may return: closing it does not close its source."""

    def __init__(self, pipe: gf.Datapipe) -> None:
        self.minibatches = iter(pipe)
        KEPT.append(self.minibatches)

    def __iter__(self) -> "Keeps":
        return self

    def __next__(self) -> Any:
        return next(self.minibatches)


KEPT: list[Iterator[Any]] = []


class Passes(gf.Transform):
    def __iter__(self) -> Iterator[Any]:
        return Keeps(self.datapipe)


def test_an_epoch_that_is_left_ends_threads_behind_a_stage_that_closes_nothing() -> None:
    with gf.DataLoader(Passes(pipelines.homogeneous().prefetch()), num_workers=0) as loader:
        next(iter(loader))
        wait_until(lambda: "graphfeed-prefetch" not in {thread.name for thread in threading.enumerate()})
    KEPT.clear()


def test_a_user_s_thread_that_iterates_a_stage_leaves_its_work_to_the_workers() -> None:
    made_by = set()

    def look(batch: gf.MiniBatch) -> gf.MiniBatch:
        made_by.add(threading.current_thread().name)
        return batch

    with gf.DataLoader(InAThread(seeds(6).transform(look)), num_workers=2, seed=0) as loader:
        assert len(list(loader)) == 6
    assert {name.partition("_")[0] for name in made_by} == {"graphfeed"}


class InAThread(gf.Datapipe[Any]):
    """Reads its source in a separate thread."""

    datapipe: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        read: list[Any] = []
        thread = threading.Thread(target=lambda: read.extend(self.datapipe))
        thread.start()
        thread.join()
        return iter(read)


def seeds(count: int) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)


def test_what_was_begun_is_cancelled_if_the_first_window_can_t_be_filled() -> None:
    class Source(gf.Datapipe[Any]):
        def __iter__(self) -> Iterator[gf.MiniBatch]:
            for index in range(40):
                if index == 20:
                    # As Ctrl-C would: it is not an Exception, which would be raised instead of the mini-batch.
                    raise KeyboardInterrupt
                yield gf.MiniBatch(seeds=torch.tensor([index]))

    made = []

    def slow(batch: gf.MiniBatch) -> gf.MiniBatch:
        time.sleep(0.02)
        made.append(batch)
        return batch

    pipe = gf.IterableSource(Source()).transform(slow)
    with gf.DataLoader(pipe, num_workers=1, prefetch_factor=30, seed=0) as loader, pytest.raises(KeyboardInterrupt):
        list(loader)
    assert len(made) < 20


class Counts:
    """Counts the calls of each stage and the waits of each side of a cut; spans must be nested."""

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


class Loops(gf.Transform, one_to_one=True):
    """A stage with its own loop."""

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
    # A loop has one more call for the end; ten mini-batches are sampled and fetched in any location.
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
