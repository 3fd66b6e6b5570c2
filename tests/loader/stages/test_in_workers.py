import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.worker_task import unpack_work
from graphfeed.loader.run import RunContext
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.sharder import Sharder
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


class Stamp(gf.Transform):
    """Writes down who works."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        place = f"{multiprocessing.current_process().name} {threading.current_thread().name}"
        minibatch.place = place  # type: ignore[attr-defined]
        return minibatch


class Unsendable:
    def __reduce__(self) -> str:
        raise AssertionError("was pickled")


def source(count: int = 8) -> gf.Datapipe:
    return Sharder(gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1))


def seeds(batches: Iterator[gf.MiniBatch]) -> list[int]:
    return [int(batch.seeds) for batch in batches]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3, thread_name_prefix="pool") as executor:
        yield executor


def test_without_an_executor_it_runs_here() -> None:
    (batch,) = InWorkers(Stamp(source(1)), num_workers=2, window=4)
    assert batch.place == "MainProcess MainThread"


def test_mini_batches_come_in_order_when_the_first_is_slowest(threads: ThreadPoolExecutor) -> None:
    def dawdle(batch: gf.MiniBatch) -> gf.MiniBatch:
        time.sleep(0.1 if int(batch.seeds) == 0 else 0)
        return batch

    pipe = InWorkers(Stamp(source().transform(dawdle)), num_workers=3, window=6)
    batches = list(RunContext(threads).drive(pipe))
    assert seeds(iter(batches)) == list(range(8))
    assert all(batch.place.startswith("MainProcess pool") for batch in batches)


def test_at_most_a_window_of_mini_batches_is_begun(threads: ThreadPoolExecutor) -> None:
    begun: list[int] = []

    def count(batch: gf.MiniBatch) -> gf.MiniBatch:
        begun.append(int(batch.seeds))
        return batch

    batches = RunContext(threads).drive(InWorkers(source(20).transform(count), num_workers=3, window=5))
    next(batches)
    wait_until(lambda: len(begun) >= 6)
    time.sleep(0.05)  # one more than the window would begin now
    assert len(begun) == 6
    del batches


def test_in_threads_nothing_is_pickled(threads: ThreadPoolExecutor) -> None:
    def attach(batch: gf.MiniBatch) -> gf.MiniBatch:
        batch.labels = Unsendable()
        return batch

    assert len(list(RunContext(threads).drive(InWorkers(source().transform(attach), 3, 6)))) == 8


def test_other_executors_get_bytes_and_the_work_happens_there() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        batches = list(RunContext(executor).drive(InWorkers(Stamp(source()), num_workers=1, window=2)))
    assert seeds(iter(batches)) == list(range(8))
    assert all("Process-" in batch.place for batch in batches)


def test_a_source_without_index_runs_here_and_its_mini_batches_are_sent() -> None:
    batches = [gf.MiniBatch(seeds=torch.tensor([node])) for node in range(4)]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        given = list(RunContext(executor).drive(InWorkers(Stamp(batches), 1, 2)))  # type: ignore[arg-type]
    assert seeds(iter(given)) == [0, 1, 2, 3]
    assert all("Process-" in batch.place for batch in given)


def fail(batch: gf.MiniBatch) -> gf.MiniBatch:
    raise LookupError("lost")


def test_a_failure_in_a_process_says_where() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        batches = RunContext(executor).drive(InWorkers(source().transform(fail), num_workers=1, window=2))
        with pytest.raises(LookupError, match="lost") as caught:
            next(batches)
    assert "MiniBatchTransformer, stage 2, mini-batch 0 of epoch 0, in worker process" in caught.value.__notes__[0]


def test_a_hanging_worker_times_out_with_advice(threads: ThreadPoolExecutor) -> None:
    release = threading.Event()

    def hang(batch: gf.MiniBatch) -> gf.MiniBatch:
        release.wait(20)
        return batch

    batches = RunContext(threads).drive(InWorkers(source().transform(hang), 3, 6, timeout_seconds=0.05))
    with pytest.raises(TimeoutError, match=r"3 workers finished no mini-batch for 0\.05 s.*larger timeout"):
        next(batches)
    release.set()


def test_a_time_out_of_the_stage_s_own_is_passed_on(threads: ThreadPoolExecutor) -> None:
    def give_up(batch: gf.MiniBatch) -> gf.MiniBatch:
        raise TimeoutError("my server")

    batches = RunContext(threads).drive(InWorkers(source().transform(give_up), 3, 6))
    with pytest.raises(TimeoutError, match="my server"):
        next(batches)


def work_cache() -> tuple[int, int]:
    """Return how often this process found its work unpacked, and how often not."""
    hits, misses, _, _ = unpack_work.cache_info()
    return hits, misses


def test_a_process_unpacks_its_work_once_and_not_every_epoch() -> None:
    pipe = InWorkers(source().transform(Same()), num_workers=1, window=2)
    with ProcessExecutor(1) as executor:
        for epoch in range(3):
            assert len(list(RunContext(executor).drive(pipe.with_seed(4, epoch)))) == 8
        assert executor.submit(work_cache).result(60) == (23, 1)


class Same:
    def __call__(self, batch: gf.MiniBatch) -> gf.MiniBatch:
        return batch


def test_a_source_that_does_not_pickle_stays_here() -> None:
    batches = (gf.MiniBatch(seeds=torch.tensor([node])) for node in range(4))
    with ProcessExecutor(1) as executor:
        given = RunContext(executor).drive(InWorkers(Stamp(batches), 1, 2))  # type: ignore[arg-type]
        assert seeds(given) == [0, 1, 2, 3]


def test_a_failure_of_the_source_loses_nothing_that_came_before(threads: ThreadPoolExecutor) -> None:
    def give_two() -> Iterator[gf.MiniBatch]:
        for number in range(2):
            yield gf.MiniBatch(seeds=torch.tensor([number]))
        raise ValueError("no more")

    batches = RunContext(threads).drive(InWorkers(gf.IterableSource(give_two()).transform(), 3, 6))
    assert [int(next(batches).seeds), int(next(batches).seeds)] == [0, 1]
    with pytest.raises(ValueError, match="no more"):
        next(batches)
