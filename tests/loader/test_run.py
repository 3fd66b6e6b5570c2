"""One run, one context: who computes, whether anyone reads, who watches; and stages hold nothing of it."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import FunctionType
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.run import RunContext, current_run
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.transport.thread_channel import ThreadChannel
from tests import pipelines
from tests.digests import digests
from tests.waiting import HangAtTheSecond, wait_until

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
    assert first.cancelled is not second.cancelled


def test_a_stage_is_in_the_context_and_the_loop_is_not() -> None:
    run = RunContext()
    for seen in run.drive(Looks()):
        assert seen is run
        assert current_run() is not run


def test_two_runs_in_turn_do_not_mix() -> None:
    one, two = RunContext(), RunContext()
    both = list(zip(one.drive(Looks()), two.drive(Looks()), strict=True))
    assert all(first is one and second is two for first, second in both)


def test_a_wait_for_a_future_ends_with_it_or_with_the_run() -> None:
    run = RunContext()
    first, second = Future[int](), Future[int]()
    threading.Timer(0.05, first.set_result, (1,)).start()
    assert run.wait_for(first, 30)
    assert first.done()
    assert run.wait_for(second, 0.01)
    threading.Timer(0.05, run.cancel).start()
    assert not run.wait_for(second, 30)
    run.cancel()


def test_a_part_is_cancelled_with_the_run_and_not_the_other_way_round() -> None:
    run = RunContext()
    one, two = run.nested(), run.nested()
    one.cancel()
    assert (one.cancelled.done(), two.cancelled.done(), run.cancelled.done()) == (True, False, False)
    run.cancel()
    assert two.cancelled.done()


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
    """An iterator without `close`, as a user's stage may return: what it reads from is not closed with it."""

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


OF_A_RUN = (
    Executor,
    Future,
    RunContext,
    ThreadChannel,
    threading.Thread,
    threading.Condition,
    type(threading.Lock()),
    FunctionType,
    torch.cuda.Stream,
)


def of_a_run(stages: list[gf.Datapipe]) -> list[tuple[str, str]]:
    """Return the attributes of stages that hold an object of a run, or a function of the loader."""
    return [
        (type(stage).__name__, name)
        for stage in stages
        for name, value in vars(stage).items()
        if isinstance(value, OF_A_RUN)
        and not (isinstance(value, FunctionType) and not value.__module__.startswith("graphfeed.loader"))
    ]


class Witness(gf.Datapipe[Any]):
    """Looks, while it runs, at all stages that it reads from."""

    datapipe: gf.Datapipe
    seen: list[list[gf.Datapipe]]

    one_to_one = True

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.datapipe:
            self.seen.append(gf.traverse(self))
            yield minibatch


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "worker": "process"}])
def test_no_stage_holds_an_object_of_a_run(options: dict[str, Any]) -> None:
    seen: list[list[gf.Datapipe]] = []
    pipe = Witness(pipelines.homogeneous().prefetch().copy_to("cpu"), seen)
    with gf.DataLoader(pipe, seed=1, **options) as loader:
        for _ in loader:
            assert of_a_run(gf.traverse(loader.plan.running)) == []
        assert of_a_run(gf.traverse(loader.plan.running)) == []
    assert len(seen) == 10
    assert of_a_run(seen[0]) == of_a_run(seen[-1]) == []
    assert len(seen[0]) >= 5


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


def test_a_user_s_thread_that_iterates_a_stage_leaves_its_work_to_the_workers() -> None:
    made_by = set()

    def look(batch: gf.MiniBatch) -> gf.MiniBatch:
        made_by.add(threading.current_thread().name)
        return batch

    with gf.DataLoader(InAThread(seeds(6).transform(look)), num_workers=2, seed=0) as loader:
        assert len(list(loader)) == 6
    assert {name.partition("_")[0] for name in made_by} == {"graphfeed"}


class InAThread(gf.Datapipe[Any]):
    """Reads its source in a thread of its own."""

    datapipe: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        read: list[Any] = []
        thread = threading.Thread(target=lambda: read.extend(self.datapipe))
        thread.start()
        thread.join()
        return iter(read)


def seeds(count: int) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)


def test_a_wait_ends_when_its_future_is_cancelled_before_it_began() -> None:
    with ThreadPoolExecutor(1) as pool:
        release = threading.Event()
        pool.submit(release.wait, 20)
        future = pool.submit(int)
        threading.Timer(0.05, pool.shutdown, (), {"wait": False, "cancel_futures": True}).start()
        start = time.monotonic()
        assert RunContext().wait_for(future, 100)
        assert time.monotonic() - start < 5
        release.set()


def test_parts_that_have_ended_are_not_kept_by_their_run() -> None:
    run = RunContext()
    for _ in range(10):
        run.nested().cancel()
    assert len(run.parts) == 0
    run.cancel()
    assert run.nested().cancelled.done()


def test_what_was_begun_is_cancelled_if_the_first_window_can_t_be_filled() -> None:
    class Source(gf.Datapipe[Any]):
        def __iter__(self) -> Iterator[gf.MiniBatch]:
            for index in range(40):
                if index == 20:
                    # As Ctrl-C would: it is no Exception, which would come out in its place.
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
