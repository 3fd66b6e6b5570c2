import gc
import multiprocessing
import time
import weakref
from concurrent.futures import Future, wait
from functools import partial
from multiprocessing.context import BaseContext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphfeed.loader.executors.dispatcher import ATTEMPTS, Dispatcher, Task, WorkerLostError
from graphfeed.loader.executors.process_executor import ProcessExecutor, make_context
from graphfeed.loader.transport.pickling import dump
from tests.forked import held_elsewhere, in_child
from tests.waiting import wait_until

SECONDS = 60.0


def task(function: Any, *arguments: Any) -> Task:
    return Task(0, dump(partial(function, *arguments)), Future())


def check_three_tasks(dispatcher: Dispatcher) -> None:
    """Put tasks into a dispatcher before it runs, and check that all are done."""
    tasks = [task(abs, -number) for number in range(3)]
    for one in tasks:
        dispatcher.put(one)
    dispatcher.finish(cancel=False)
    dispatcher.run()
    assert [one.future.result(0) for one in tasks] == [0, 1, 2]


def ignore(*_: object) -> None:
    pass


class NoProcesses(BaseContext):
    """A system on which nothing starts."""

    def Process(self, **_: Any) -> Any:
        raise BlockingIOError("too many processes")


def test_tasks_that_were_put_before_it_ran_are_done() -> None:
    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    check_three_tasks(dispatcher)
    with pytest.raises(RuntimeError, match="shut down"):
        dispatcher.put(task(abs, 1))


def test_no_more_workers_start_than_there_are_tasks() -> None:
    dispatcher = Dispatcher(8, make_context("forkserver"), SECONDS)
    dispatcher.put(task(abs, 1))
    dispatcher.assign()
    assert len(dispatcher.workers) == 1
    dispatcher.finish(cancel=True)
    dispatcher.run()
    assert dispatcher.workers == []


def test_where_no_process_starts_the_tasks_fail() -> None:
    dispatcher = Dispatcher(1, NoProcesses(), SECONDS)
    failing = task(abs, 1)
    dispatcher.put(failing)
    dispatcher.finish(cancel=False)
    dispatcher.run()
    with pytest.raises(BlockingIOError, match="too many processes"):
        failing.future.result(0)


def leave(*_: Any) -> None:
    raise SystemExit(5)


def test_workers_that_fail_to_start_again_and_again_fail_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.loader.executors.worker_process.run_worker", leave)
    dispatcher = Dispatcher(1, multiprocessing.get_context("forkserver"), SECONDS)
    failing = task(abs, 1)
    dispatcher.put(failing)
    dispatcher.finish(cancel=False)
    dispatcher.run()
    with pytest.raises(WorkerLostError, match=f"{ATTEMPTS} workers died while they started.*exited with code 5"):
        failing.future.result(0)


def test_tasks_that_were_cancelled_are_passed_over() -> None:
    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    first, second = task(abs, -1), task(abs, -2)
    first.future.cancel()
    dispatcher.put(first)
    dispatcher.put(second)
    dispatcher.finish(cancel=False)
    dispatcher.run()
    assert second.future.result(0) == 2


def test_a_finalizer_may_finish_it_in_a_thread_that_holds_its_lock() -> None:
    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    with dispatcher.lock:
        dispatcher.finish(cancel=True)
    dispatcher.run()


def test_a_forked_copy_does_not_wait_for_a_lock_that_nobody_there_holds() -> None:
    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    with held_elsewhere(dispatcher.lock):
        assert in_child(lambda: dispatcher.finish(cancel=True)) == "None"
    assert not dispatcher.finishing
    dispatcher.finish(cancel=True)
    dispatcher.run()


def test_who_waits_for_tasks_that_are_dropped_learns_it() -> None:
    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    dropped = task(abs, 1)
    dispatcher.put(dropped)
    dispatcher.finish(cancel=True)
    dispatcher.run()
    assert wait([dropped.future], SECONDS).done


class OneProcess(BaseContext):
    """A system on which only one process starts."""

    def __init__(self) -> None:
        self.makers = [make_context("forkserver").Process]  # type: ignore[attr-defined]

    def get_start_method(self, allow_none: bool = False) -> str:
        return "forkserver"

    def Process(self, **options: Any) -> Any:
        if not self.makers:
            raise BlockingIOError("too many processes")
        return self.makers.pop()(**options)


def test_where_fewer_processes_start_they_do_all_tasks() -> None:
    dispatcher = Dispatcher(2, OneProcess(), SECONDS)
    check_three_tasks(dispatcher)


def run_before_a_small_one(large: Any) -> None:
    """Run a task and one after it, of which nothing goes through memory; raise unless that one succeeds."""
    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    small = task(abs, -1)
    dispatcher.put(large)
    dispatcher.put(small)
    dispatcher.finish(cancel=False)
    dispatcher.run()
    assert small.future.result(0) == 1


def test_a_call_that_can_not_be_sent_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> int:
        raise OSError("too many open files")

    large = task(len, bytes(1 << 20))
    monkeypatch.setattr("graphfeed.loader.transport.arena.MemoryFile.create", refuse)
    run_before_a_small_one(large)
    with pytest.raises(OSError, match="too many open files"):
        large.future.result(0)


def test_a_result_whose_memory_does_not_arrive_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, size: int) -> None:
        raise OSError("unable to mmap")

    large = task(torch.zeros, 1 << 17)
    monkeypatch.setattr("graphfeed.loader.transport.arena.map_shared", refuse)
    run_before_a_small_one(large)
    with pytest.raises(OSError, match="unable to mmap"):
        large.future.result(0)


class Busy:
    """A worker that has been at its task since the beginning of a clock."""

    ready = True
    since = 0.0


@pytest.mark.parametrize("stopped", [0.0, 3600.0])
def test_no_worker_is_blamed_for_a_time_in_which_this_process_was_stopped(
    stopped: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def select(seconds: float) -> list[Any]:
        clock[0] += seconds + stopped
        return []

    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    worker: Any = Busy()
    dispatcher.workers = [worker]
    dispatcher.running = {worker: task(abs, 1)}
    monkeypatch.setattr("graphfeed.loader.executors.dispatcher.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(dispatcher.selector, "select", select)
    dispatcher.wait()
    assert clock[0] - worker.since == pytest.approx(SECONDS / 10)
    dispatcher.workers, dispatcher.running = [], {}
    monkeypatch.undo()
    dispatcher.finish(cancel=True)
    dispatcher.run()


def test_a_call_whose_waiter_keeps_the_executor_does_not_keep_it_after_the_end() -> None:
    executor = ProcessExecutor(1)
    running = executor.submit(time.sleep, 60)
    running.add_done_callback(partial(ignore, executor))
    wait_until(running.running)
    executor.shutdown(cancel_futures=True)
    gone = weakref.ref(executor)
    del executor, running
    gc.collect()
    assert gone() is None
