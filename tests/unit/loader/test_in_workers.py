"""The cut of a pipeline: workers before it, and threads after it. test_executors tests other executors."""

import gc
import multiprocessing
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import ByIndex, InThreads, InWorkers, RunContext
from graphfeed.testing import limits
from tests.stand_ins.waiting import HangAtTheSecond, unchanged, wait_until

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


class Stamp(gf.Transform):
    """Records which thread or process runs."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        place = f"{multiprocessing.current_process().name} {threading.current_thread().name}"
        minibatch.place = place  # type: ignore[attr-defined]
        return minibatch


class Unsendable:
    def __reduce__(self) -> str:
        raise AssertionError("was pickled")


def source(count: int = 8) -> gf.Datapipe:
    return ByIndex(gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1))


def seeds(batches: Iterator[gf.MiniBatch]) -> list[int]:
    return [int(batch.seeds) for batch in batches]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3, thread_name_prefix="pool") as executor:
        yield executor


def test_in_threads_mini_batches_come_in_order_when_the_first_is_slowest_and_are_not_pickled(
    threads: ThreadPoolExecutor,
) -> None:
    def dawdle(batch: gf.MiniBatch) -> gf.MiniBatch:
        time.sleep(0.1 if int(batch.seeds) == 0 else 0)
        batch.labels = Unsendable()
        return batch

    pipe = InWorkers(Stamp(source().transform(dawdle)), num_workers=3, in_flight=6)
    batches = list(RunContext(threads).drive(pipe))
    assert seeds(iter(batches)) == list(range(8))
    assert all(batch.place.startswith("MainProcess pool") for batch in batches)


def test_other_executors_get_bytes_and_the_work_happens_there() -> None:
    given: Any = [gf.MiniBatch(seeds=torch.tensor([node])) for node in range(8)]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        for pipe in (Stamp(source()), Stamp(given)):
            batches = list(RunContext(executor).drive(InWorkers(pipe, num_workers=1, in_flight=2)))
            assert seeds(iter(batches)) == list(range(8))
            assert all("Process-" in batch.place for batch in batches)


def test_at_most_a_window_of_mini_batches_is_begun(threads: ThreadPoolExecutor) -> None:
    begun: list[int] = []

    def count(batch: gf.MiniBatch) -> gf.MiniBatch:
        begun.append(int(batch.seeds))
        return batch

    batches = RunContext(threads).drive(InWorkers(source(20).transform(count), num_workers=3, in_flight=5))
    next(batches)
    wait_until(lambda: len(begun) >= 6)
    time.sleep(0.05)  # one more than the window would begin now
    assert len(begun) == 6
    del batches


def test_a_hanging_worker_times_out_with_advice_and_a_time_out_of_the_stage_s_own_is_passed_on(
    threads: ThreadPoolExecutor,
) -> None:
    release = threading.Event()

    def hang(batch: gf.MiniBatch) -> gf.MiniBatch:
        release.wait(20)
        return batch

    def give_up(batch: gf.MiniBatch) -> gf.MiniBatch:
        raise TimeoutError("my server")

    batches = RunContext(threads).drive(InWorkers(source().transform(hang), 3, 6, timeout_seconds=0.05))
    with pytest.raises(TimeoutError, match=r"3 workers finished no mini-batch for 0\.05 s.*larger timeout"):
        next(batches)
    release.set()
    with pytest.raises(TimeoutError, match="my server"):
        next(RunContext(threads).drive(InWorkers(source().transform(give_up), 3, 6)))


def test_a_failure_of_the_source_loses_nothing_that_came_before(threads: ThreadPoolExecutor) -> None:
    def give_two() -> Iterator[gf.MiniBatch]:
        for number in range(2):
            yield gf.MiniBatch(seeds=torch.tensor([number]))
        raise ValueError("no more")

    batches = RunContext(threads).drive(InWorkers(gf.IterableSource(give_two()).transform(), 3, 6))
    assert [int(next(batches).seeds), int(next(batches).seeds)] == [0, 1]
    with pytest.raises(ValueError, match="no more"):
        next(batches)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, thread_name_prefix="workers") as executor:
        yield executor


def threaded(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> gf.Datapipe:
    """Return a pipeline with one function that workers run, and another that threads run after it."""
    items: gf.Datapipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2)
    return InThreads(InWorkers(items.transform(first), num_workers=1, in_flight=3).transform(then))


def run(executor: Executor, first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Generator[Any, None, None]:
    return RunContext(executor).drive(threaded(first, then))


def test_threads_behind_workers_work_on_several_mini_batches_at_once_in_order(executor: ThreadPoolExecutor) -> None:
    both = threading.Barrier(2, timeout=10)
    seen: dict[int, list[str]] = defaultdict(list)

    def note(batch: gf.MiniBatch) -> gf.MiniBatch:
        assert batch.key is not None
        seen[batch.key.index].append(threading.current_thread().name.rpartition("_")[0])
        return batch

    def meet(batch: gf.MiniBatch) -> gf.MiniBatch:
        both.wait()
        return note(batch)

    pipe = threaded(note, meet)
    assert [batch.seeds.tolist() for batch in RunContext(executor).drive(pipe)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert len(pipe) == 4
    assert [seen[index] for index in range(4)] == [["workers", "graphfeed-fetch"]] * 4
    seen.clear()
    assert len(list(threaded(note, note))) == 4, "without an executor all runs here"
    assert [seen[index] for index in range(4)] == [["", ""]] * 4


def test_a_mini_batch_that_is_there_waits_for_no_other_one_and_leaving_drops_what_is_not_begun(
    executor: ThreadPoolExecutor,
) -> None:
    hang = HangAtTheSecond()
    batches = run(executor, hang, unchanged)
    assert next(batches).seeds.tolist() == [0, 1]
    assert not hang.release.is_set()
    wait_until(lambda: hang.begun == [0, 1])
    batches.close()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("graphfeed-fetch")]
    hang.release.set()
    assert not left, "leaving does not wait for workers"
    executor.shutdown()
    assert hang.begun == [0, 1]


def test_a_mini_batch_that_was_taken_is_kept_by_nobody(executor: ThreadPoolExecutor) -> None:
    batches = run(executor, unchanged, unchanged)
    gc.disable()
    try:
        taken = weakref.ref(next(batches))
        next(batches)
        assert taken() is None
    finally:
        gc.enable()


@limits(join_seconds=0.05)
def test_a_stage_that_hangs_in_such_a_thread_is_named(executor: ThreadPoolExecutor) -> None:
    release = threading.Event()

    def hang(batch: gf.MiniBatch) -> gf.MiniBatch:
        release.wait(60)
        return batch

    items = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2)
    workers = InWorkers(items, num_workers=1, in_flight=2, timeout_seconds=0.5)
    place = r"graphfeed-fetch_\d is in MiniBatchTransformer, stage 2, mini-batch 0 of epoch 0"
    with (
        pytest.warns(RuntimeWarning, match="abandoned 2 threads still at work: graphfeed-fetch_0"),
        pytest.raises(TimeoutError, match=place),
    ):
        list(RunContext(executor).drive(InThreads(workers.transform(hang))))
    release.set()
