import gc
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.loader.executors import thread_executor
from graphfeed.loader.run import RunContext
from graphfeed.loader.stages.in_threads import InThreads
from graphfeed.loader.stages.in_workers import InWorkers
from tests.waiting import HangAtTheSecond, wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, thread_name_prefix="workers") as executor:
        yield executor


def pipe(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> gf.Datapipe:
    source: gf.Datapipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2)
    return InThreads(InWorkers(source.transform(first), num_workers=1, window=3).transform(then))


def run(executor: Executor, first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Generator[Any, None, None]:
    return RunContext(executor).drive(pipe(first, then))


def same(batch: gf.MiniBatch) -> gf.MiniBatch:
    return batch


def fail_at(index: int) -> Callable[[gf.MiniBatch], gf.MiniBatch]:
    def fail(batch: gf.MiniBatch) -> gf.MiniBatch:
        assert batch.key is not None
        if batch.key.index == index:
            raise ValueError("no")
        return batch

    return fail


def test_several_mini_batches_are_worked_on_at_once_and_come_in_order(executor: ThreadPoolExecutor) -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(batch: gf.MiniBatch) -> gf.MiniBatch:
        both.wait()
        return batch

    threaded = pipe(same, meet)
    assert [batch.seeds.tolist() for batch in RunContext(executor).drive(threaded)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert len(threaded) == 4


def test_workers_do_their_part_and_threads_theirs(executor: ThreadPoolExecutor) -> None:
    seen: dict[int, list[str]] = defaultdict(list)

    def note(batch: gf.MiniBatch) -> gf.MiniBatch:
        assert batch.key is not None
        seen[batch.key.index].append(threading.current_thread().name.rpartition("_")[0])
        return batch

    list(run(executor, note, note))
    assert [seen[index] for index in range(4)] == [["workers", "graphfeed-fetch"]] * 4


def test_without_an_executor_all_runs_here() -> None:
    names: set[str] = set()

    def note(batch: gf.MiniBatch) -> gf.MiniBatch:
        names.add(threading.current_thread().name)
        return batch

    assert len(list(pipe(note, note))) == 4
    assert names == {"MainThread"}


@pytest.mark.parametrize("where", ["workers", "threads"])
def test_a_failure_comes_in_its_place(executor: ThreadPoolExecutor, where: str) -> None:
    stages = (fail_at(2), same) if where == "workers" else (same, fail_at(2))
    batches = run(executor, *stages)
    next(batches)
    next(batches)
    with pytest.raises(ValueError, match="no") as caught:
        next(batches)
    (note,) = caught.value.__notes__
    assert "mini-batch 2 of epoch 0, in worker thread" in note


def test_a_mini_batch_that_is_there_waits_for_no_other_one(executor: ThreadPoolExecutor) -> None:
    hang = HangAtTheSecond()
    batches = run(executor, hang, same)
    assert next(batches).seeds.tolist() == [0, 1]
    assert not hang.release.is_set()
    batches.close()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("graphfeed-fetch")]
    hang.release.set()
    assert not left, "leaving does not wait for workers"


def test_a_mini_batch_that_was_taken_is_kept_by_nobody(executor: ThreadPoolExecutor) -> None:
    batches = run(executor, same, same)
    gc.disable()
    try:
        taken = weakref.ref(next(batches))
        next(batches)
        assert taken() is None
    finally:
        gc.enable()


def test_threads_have_mini_batches_beside_those_that_workers_have() -> None:
    """A window of two at the workers, and two more."""
    begun = threading.Semaphore(0)
    release = threading.Event()

    def hold(batch: gf.MiniBatch) -> gf.MiniBatch:
        begun.release()
        release.wait(20)
        return batch

    with ThreadPoolExecutor(8) as executor:
        source: gf.Datapipe = gf.ItemSampler(gf.ItemSet(20, names="seeds"), batch_size=2).transform(hold)
        workers = InWorkers(source, num_workers=2, window=2)
        batches = RunContext(executor).drive(InThreads(workers.transform(same)))
        reader = threading.Thread(target=next, args=(batches,))
        reader.start()
        assert all(begun.acquire(timeout=20) for _ in range(4))
        assert not begun.acquire(blocking=False)
        release.set()
        reader.join()
        batches.close()


def test_leaving_drops_what_no_worker_has_begun(executor: ThreadPoolExecutor) -> None:
    hang = HangAtTheSecond()
    batches = run(executor, hang, same)
    next(batches)
    wait_until(lambda: hang.begun == [0, 1])
    batches.close()
    hang.release.set()
    executor.shutdown()
    assert hang.begun == [0, 1]


def test_a_stage_that_hangs_in_such_a_thread_is_named(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_executor, "JOIN_SECONDS", 0.05)
    release = threading.Event()

    def hang(batch: gf.MiniBatch) -> gf.MiniBatch:
        release.wait(60)
        return batch

    source = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2)
    workers = InWorkers(source, num_workers=1, window=2, timeout_seconds=0.5)
    place = r"graphfeed-fetch_\d is in MiniBatchTransformer, stage 2, mini-batch 0 of epoch 0"
    with (
        pytest.warns(RuntimeWarning, match="abandoned 2 threads still at work: graphfeed-fetch_0"),
        pytest.raises(TimeoutError, match=place),
    ):
        list(RunContext(executor).drive(InThreads(workers.transform(hang))))
    release.set()
