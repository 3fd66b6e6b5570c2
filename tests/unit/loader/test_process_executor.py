"""Worker processes: features beyond the contract of executors. Failures are tested in test_loss."""

import gc
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import ProcessExecutor
from tests.kinds import pipelines
from tests.kinds.refusals import check_refused
from tests.stand_ins.at_work import SECONDS, hold, wait_for_end
from tests.stand_ins.programs import run_body
from tests.stand_ins.waiting import wait_until


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessExecutor]:
    with ProcessExecutor(2, timeout=SECONDS) as executor:
        yield executor


class OnlyThere:
    """Unpickles in the process that created it, and raises in its parent."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return only_there, (self.error,)


def only_there(error: BaseException) -> str:
    if multiprocessing.parent_process() is None:
        raise error
    return "there"


class OnlyHere:
    """Pickles, but does not unpickle in a worker."""

    def __reduce__(self) -> tuple[Any, ...]:
        return only_here, ()


def only_here() -> "OnlyHere":
    if multiprocessing.parent_process() is not None:
        raise LookupError("not there")
    return OnlyHere()


def test_what_does_not_travel_fails_alone(executor: ProcessExecutor) -> None:
    rows: list[Any] = [
        (lambda: executor.submit(print, threading.Lock()), TypeError, "pickle"),
        (lambda: executor.submit(print, OnlyHere()).result(SECONDS), LookupError, "not there"),
        (lambda: executor.submit(threading.Lock).result(SECONDS), Exception, "pickle"),
        (lambda: executor.submit(OnlyThere, LookupError("not here")).result(SECONDS), LookupError, "not here"),
    ]
    check_refused(rows)
    for error in (SystemExit("not here"), KeyboardInterrupt("not here")):
        with pytest.raises(type(error), match="not here"):
            executor.submit(OnlyThere, error).result(SECONDS)
    assert executor.submit(abs, -5).result(SECONDS) == 5


KEPT: list[Any] = []


def make(number: int, *, keep: bool) -> list[torch.Tensor]:
    """Return the result of an op, and a part of it; change a result that was kept before."""
    for tensor in KEPT:
        tensor += 1000
    tensor = torch.full((100_000,), number)
    if keep:
        KEPT.append(tensor)
    return [tensor, tensor[10:20]]


def test_results_stay_as_they_were_sent() -> None:
    """Also results that the worker keeps and changes, and after it has died."""
    with ProcessExecutor(1, timeout=SECONDS) as executor:
        results = [executor.submit(make, number, keep=number >= 10).result(SECONDS) for number in range(20)]
    for number, (whole, part) in enumerate(results):
        part += 5
        assert torch.equal(whole, torch.full((100_000,), number))
        assert part.tolist() == [number + 5] * 10


def compute_in_another_process(value: int) -> int:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as inner:
        return inner.submit(abs, value).result(SECONDS)


def compute_in_another_worker(value: int) -> tuple[int, list[int]]:
    inner = ProcessExecutor(1, timeout=SECONDS)
    KEPT.append(inner)
    return inner.submit(abs, value).result(SECONDS), inner.pids()


@pytest.mark.slow
def test_a_call_may_start_processes_of_its_own_and_they_end_with_its_worker() -> None:
    with ProcessExecutor(1, timeout=SECONDS) as executor:
        assert executor.submit(compute_in_another_process, -6).result(SECONDS) == 6
        value, pids = executor.submit(compute_in_another_worker, -6).result(SECONDS)
        pids += executor.pids()
    assert (value, len(pids)) == (6, 2)
    assert not wait_for_end(pids)


def test_no_more_workers_start_than_there_are_tasks() -> None:
    with ProcessExecutor(8, timeout=SECONDS) as executor:
        assert executor.submit(abs, -1).result(SECONDS) == 1
        assert len(executor.pids()) == 1


def note_worker(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return gf.MiniBatch(labels=torch.tensor(os.getpid()))


def test_the_workers_of_a_loader_are_kept_for_the_next_epoch_unless_that_is_refused() -> None:
    for kept in (True, False):
        pipe = pipelines.seeds().transform(note_worker)
        with gf.DataLoader(pipe, 1, worker="process", persistent_workers=kept) as loader:
            first, second = ({int(batch.labels) for batch in loader} for _ in range(2))
            assert (first == second) == kept


def test_a_forgotten_executor_ends_when_its_calls_are_done(tmp_path: Path) -> None:
    executor = ProcessExecutor(1, timeout=SECONDS)
    future = executor.submit(hold, tmp_path / "mark", tmp_path / "end")
    del executor
    gc.collect()
    (tmp_path / "end").write_text("now")
    assert not wait_for_end([future.result(SECONDS)])


def test_a_call_whose_waiter_keeps_the_executor_does_not_keep_it_after_the_end(tmp_path: Path) -> None:
    executor = ProcessExecutor(1)
    running = executor.submit(hold, tmp_path / "mark", tmp_path / "never")
    running.add_done_callback(partial(lambda *_: None, executor))
    wait_until(running.running)
    executor.shutdown(cancel_futures=True)
    gone = weakref.ref(executor)
    del executor, running
    gc.collect()
    assert gone() is None


def test_it_may_be_shut_down_by_its_own_thread(tmp_path: Path) -> None:
    other = ProcessExecutor(1, timeout=SECONDS)
    done: Future[str] = Future()

    def shut_down(future: "Future[Any]") -> None:
        other.shutdown(wait=True)
        done.set_result(threading.current_thread().name)

    other.submit(hold, tmp_path / "mark", tmp_path / "end").add_done_callback(shut_down)
    (tmp_path / "end").write_text("now")
    assert done.result(SECONDS) == "graphfeed-dispatcher"


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_other_ways_to_start_give_the_same(start_method: str) -> None:
    with ProcessExecutor(1, start_method=start_method, timeout=SECONDS) as executor:
        assert executor.submit(torch.arange, 5).result(SECONDS).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_daemonic_process_such_as_a_worker_of_torchs_data_loader_can_not_have_one() -> None:
    ended = run_body(
        """
        import multiprocessing
        from graphfeed.loader.executors.process_executor import ProcessExecutor

        with multiprocessing.get_context("fork").Pool(1) as pool:
            try:
                pool.apply(ProcessExecutor, (1,))
            except RuntimeError as error:
                print(error)
        """
    )
    assert "can't be started in a daemonic process" in ended.stdout
    assert "worker='thread'" in ended.stdout


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ProcessExecutor(0), ValueError, "max_workers must be 1 or more, but is 0"),
    (lambda: ProcessExecutor(1, timeout=0), ValueError, "timeout must be more than 0 seconds, but is 0"),
    (lambda: ProcessExecutor(1, start_method="thread"), ValueError, r"start_method must be one of .*'thread'"),
]


def test_options_out_of_range_are_refused() -> None:
    check_refused(REFUSED)
