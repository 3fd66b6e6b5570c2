import multiprocessing
from concurrent.futures import Future
from multiprocessing.context import BaseContext
from typing import Any

import pytest

from graphfeed.loader.dispatcher import ATTEMPTS, Dispatcher, Task, WorkerLostError
from graphfeed.loader.process_executor import make_context
from graphfeed.loader.work import pack
from graphfeed.loader.worker_main import Call

SECONDS = 60.0


def task(function: Any, *arguments: Any) -> Task:
    return Task(0, pack(Call(function, arguments, {})), Future())


class NoProcesses(BaseContext):
    """A system on which nothing starts."""

    def Process(self, **_: Any) -> Any:
        raise BlockingIOError("too many processes")


def test_tasks_that_were_put_before_it_ran_are_done() -> None:
    dispatcher = Dispatcher(1, make_context("forkserver"), SECONDS)
    tasks = [task(abs, -number) for number in range(3)]
    for one in tasks:
        dispatcher.put(one)
    dispatcher.finish(cancel=False)
    dispatcher.run()
    assert [one.future.result(0) for one in tasks] == [0, 1, 2]
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
    monkeypatch.setattr("graphfeed.loader.worker_process.run_worker", leave)
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
