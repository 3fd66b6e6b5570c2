"""Who watches a run is told of each stage and each wait, in whichever thread it is."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import graphfeed as gf
from tests import pipelines
from tests.digests import digests

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


def seeds(count: int) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)


class Profiler:
    """The time that each stage takes for itself, and that each side of each cut waits."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.open = threading.local()
        self.lock = threading.Lock()
        self.unbalanced = 0

    def begin(self, name: str) -> None:
        if not hasattr(self.open, "stack"):
            self.open.stack = []
        self.open.stack.append([name, time.perf_counter(), 0.0])

    def end(self, name: str) -> None:
        began, start, within = self.open.stack.pop()
        seconds = time.perf_counter() - start
        if self.open.stack:
            self.open.stack[-1][2] += seconds
        with self.lock:
            self.unbalanced += began != name
            self.seconds[name] += seconds - within
            self.calls[name] += 1

    def stage_begin(self, stage: gf.Datapipe, key: gf.Key | None) -> None:
        self.begin(f"{stage.position} {type(stage).__name__}")

    def stage_end(self, stage: gf.Datapipe, key: gf.Key | None) -> None:
        self.end(f"{stage.position} {type(stage).__name__}")

    def wait_begin(self, cut: gf.Datapipe, side: str) -> None:
        self.begin(f"{type(cut).__name__}, {side}")

    def wait_end(self, cut: gf.Datapipe, side: str) -> None:
        self.end(f"{type(cut).__name__}, {side}")


def slowly(batch: gf.MiniBatch) -> gf.MiniBatch:
    time.sleep(0.02)
    return batch


class Slow(gf.Transform):
    """A stage with a loop of its own, which takes its time."""

    one_to_one = True

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.datapipe:
            time.sleep(0.01)
            yield minibatch


STAGES = {"1 ItemSampler", "2 NeighborSampler", "3 FeatureFetcher", "4 MiniBatchTransformer"}


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_profiler_needs_no_other_hook(num_workers: int) -> None:
    profiler = Profiler()
    pipe = Slow(pipelines.homogeneous().transform(slowly))
    expected = digests(pipe.with_seed(1))
    with gf.DataLoader(pipe, num_workers, seed=1, observer=profiler) as loader:
        begin = time.perf_counter()
        assert digests(loader) == expected
        taken = time.perf_counter() - begin
    assert profiler.unbalanced == 0
    assert STAGES | {"5 Slow"} <= profiler.calls.keys()
    # A loop is also asked for the end; sampled and fetched are ten mini-batches wherever they are.
    asked = 10 if num_workers else 11
    assert [profiler.calls[name] for name in sorted(STAGES)] == [asked, 10, 10, 10]
    assert profiler.calls["5 Slow"] == 11
    assert profiler.seconds["4 MiniBatchTransformer"] >= 0.2
    # Without the stages that it reads from, whose time is their own.
    assert 0.1 <= profiler.seconds["5 Slow"] <= taken - (0 if num_workers else 0.2)
    if num_workers:
        assert profiler.calls["InWorkers, reader"] == 10
        assert profiler.calls["Prefetch, reader"] == 11
        assert profiler.calls["Prefetch, maker"] == 10
        # One worker takes 20 ms, and who reads from it 10.
        assert num_workers == 2 or profiler.seconds["InWorkers, reader"] > 0.05


def test_what_workers_in_processes_do_is_a_wait_of_the_reader() -> None:
    profiler = Profiler()
    with gf.DataLoader(pipelines.homogeneous(), 1, worker="process", seed=1, observer=profiler) as loader:
        assert len(list(loader)) == 10
    assert set(profiler.calls) == {"3 FeatureFetcher", "InWorkers, reader"}
    assert profiler.unbalanced == 0


def divide(batch: gf.MiniBatch) -> gf.MiniBatch:
    raise ZeroDivisionError


def test_a_stage_that_fails_has_ended() -> None:
    profiler = Profiler()
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), 2).transform(divide)
    for num_workers in (0, 2):
        with gf.DataLoader(pipe, num_workers, observer=profiler) as loader, pytest.raises(ZeroDivisionError):
            list(loader)
        assert profiler.unbalanced == 0
        assert profiler.open.stack == []
    assert profiler.calls["2 MiniBatchTransformer"] >= 2


def test_an_executor_of_the_user_s_own_is_observed_where_it_has_threads() -> None:
    profiler = Profiler()
    with (
        ThreadPoolExecutor(2) as threads,
        gf.DataLoader(pipelines.homogeneous(), executor=threads, observer=profiler) as loader,
    ):
        list(loader)
    assert profiler.calls["2 NeighborSampler"] == 10


def test_a_loop_around_the_base_s_loop_is_observed_once() -> None:
    class Every(gf.Transform):
        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()

        def __call__(self, batch: gf.MiniBatch) -> gf.MiniBatch:
            return batch

    begun = []

    class Counts:
        def stage_begin(self, stage: gf.Datapipe, key: Any) -> None:
            begun.append(type(stage).__name__)

        def stage_end(self, stage: gf.Datapipe, key: Any) -> None: ...
        def wait_begin(self, cut: gf.Datapipe, side: str) -> None: ...
        def wait_end(self, cut: gf.Datapipe, side: str) -> None: ...

    with gf.DataLoader(Every(seeds(3)), num_workers=0, seed=0, observer=Counts()) as loader:
        list(loader)
    # Once per mini-batch, and once more when it is asked for another.
    assert begun.count("Every") == 3 + 1
