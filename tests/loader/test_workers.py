"""When the executor of a loader is started, kept and ended."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pickle import UnpicklingError
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.loader import InWorkers
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.options import RemoteServers
from graphfeed.loader.workers import Workers
from tests import pipelines

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


def make_workers(worker: str = "thread", persistent: bool = True, given: Any = None) -> Workers:
    return Workers(given, RemoteServers(), worker, 2, 60.0, persistent)


def cut_of(pipe: gf.Datapipe) -> Any:
    (cut,) = gf.find(gf.DataLoader(pipe, num_workers=2, worker="process").plan.running, InWorkers)
    return cut


def test_two_threads_that_begin_at_once_share_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=0.5)
    started: list[ThreadPoolExecutor] = []

    def start(workers: Workers) -> ThreadPoolExecutor:
        with suppress(threading.BrokenBarrierError):
            both.wait()
        started.append(ThreadPoolExecutor(1))
        return started[-1]

    monkeypatch.setattr(Workers, "_start", start)
    with gf.DataLoader(pipelines.shuffled(), num_workers=1) as loader, ThreadPoolExecutor(2) as readers:
        for epoch in [readers.submit(list, loader) for _ in range(2)]:
            epoch.result(30)
    assert len(started) == 1


def wait_until_ready(workers: Workers) -> None:
    end = time.monotonic() + 60
    while not workers.are_ready() and time.monotonic() < end:
        time.sleep(0.01)


def test_an_executor_that_is_kept_or_given_outlives_an_epoch() -> None:
    with ThreadPoolExecutor(1) as given:
        for workers in (make_workers(), make_workers(given=given)):
            executor = workers.take()
            workers.leave(executor)
            assert executor.submit(abs, -1).result(10) == 1
            assert workers.take() is executor
            workers.close()


def test_an_executor_of_one_epoch_ends_with_it() -> None:
    workers = make_workers(persistent=False)
    executor = workers.take()
    workers.leave(executor)
    with pytest.raises(RuntimeError, match="was shut down"):
        executor.submit(abs, -1)


def test_processes_that_are_started_ahead_have_the_stages_and_wait_for_no_other_loader() -> None:
    cut = cut_of(pipelines.homogeneous())
    with closing(make_workers("process")) as workers:
        workers.start_ahead(cut)
        wait_until_ready(workers)
        pids = workers.pids()
        assert len(pids) == 2
        assert isinstance(workers.take(), ProcessExecutor)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_a_failure_of_starting_is_raised_where_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = cut_of(pipelines.homogeneous())
    monkeypatch.setattr("graphfeed.loader.workers.pack_work", lambda work: b"no pickle")
    with closing(make_workers("process")) as workers:
        workers.start_ahead(cut)
        with pytest.raises(UnpicklingError):
            wait_until_ready(workers)
