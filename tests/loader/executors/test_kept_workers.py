"""When the workers of a loader are started, kept, handed to the next loader, and ended."""

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.loader.executors import dispatcher, process_executor
from graphfeed.loader.executors.process_executor import (
    KEPT,
    ProcessExecutor,
)
from graphfeed.loader.executors.worker_process import WorkerProcess
from graphfeed.loader.executors.worker_task import unpack_work
from graphfeed.loader.options import RemoteServers
from graphfeed.loader.runner import Workers
from tests import pipelines
from tests.digests import digests
from tests.forked import in_child
from tests.waiting import end_idle_executors, wait_until

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


@pytest.fixture
def in_a_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the main module count as one that workers import, which pytest's is not."""
    monkeypatch.setattr(process_executor, "is_importable", lambda: True)
    end_idle_executors()
    yield
    end_idle_executors()


def loader_of(pipe: gf.Datapipe, persistent: bool = True) -> gf.DataLoader:
    return gf.DataLoader(pipe, 1, persistent, worker="process", seed=1)


def workers_of(loader: gf.DataLoader) -> list[int]:
    executor = loader._workers.take()
    assert isinstance(executor, ProcessExecutor)
    return executor.pids()


def used(num_workers: int = 1, timeout: float = 60.0) -> ProcessExecutor:
    """Return an executor whose worker runs."""
    executor = KEPT.take(num_workers, timeout)
    executor.submit(abs, 1).result(60)
    return executor


@pytest.mark.usefixtures("in_a_script")
@pytest.mark.parametrize("closed", [True, False])
def test_the_next_loader_takes_over_the_workers_and_makes_its_own_mini_batches(closed: bool) -> None:
    first, second = pipelines.shuffled(), pipelines.homogeneous()
    loader = loader_of(first)
    assert digests(loader) == digests(first.with_seed(1, 0))
    workers = workers_of(loader)
    if closed:
        loader.close()
    else:
        del loader
    with loader_of(second) as other:
        assert digests(other) == digests(second.with_seed(1, 0))
        assert workers_of(other) == workers
        if closed:  # and is collected later
            del loader
            gc.collect()
        assert not KEPT.idle


def unpacked() -> tuple[int, int]:
    """Return how many tasks a worker has unpacked and keeps, and how many it had to unpack."""
    info = unpack_work.cache_info()
    return info.currsize, info.misses


@pytest.mark.usefixtures("in_a_script")
def test_workers_unpack_their_work_once_and_let_go_of_it_when_they_are_idle() -> None:
    loader = loader_of(pipelines.shuffled())
    for _ in range(2):
        list(loader)
    executor = loader._workers.take()
    assert executor.submit(unpacked).result(60) == (1, 1)
    loader.close()
    assert executor.submit(unpacked).result(60) == (0, 0)


@pytest.mark.usefixtures("in_a_script")
def test_workers_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "IDLE_SECONDS", 0.0)
    executor = used()
    (worker,) = executor.pids()
    KEPT.release(executor, wait=False)
    wait_until(lambda: not os.path.exists(f"/proc/{worker}"))
    other = used()
    assert other is not executor
    other.shutdown()


@pytest.mark.usefixtures("in_a_script")
def test_others_are_not_taken_over_nor_by_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    KEPT.release(used(), wait=False)
    others = [KEPT.take(2, 60.0), KEPT.take(1, 61.0)]
    with monkeypatch.context() as changed:
        changed.setattr(sys, "path", [*sys.path, "/elsewhere"])
        others.append(KEPT.take(1, 60.0))
    assert len(KEPT.idle) == 1
    assert in_child(lambda: len(KEPT.idle)) == "0"
    for executor in others:
        executor.shutdown()


@pytest.mark.usefixtures("in_a_script")
def test_the_one_that_waited_longest_makes_room() -> None:
    executors = [used(timeout=60.0 + number) for number in range(process_executor.MOST_IDLE + 1)]
    for executor in executors:
        KEPT.release(executor, wait=True)
    assert executors[1:] == KEPT.idle
    assert executors[0].pids() == []


@pytest.mark.usefixtures("in_a_script")
@pytest.mark.parametrize("persistent", [True, False])
def test_workers_end_with_their_loader_in_a_notebook_or_where_they_are_not_persistent(
    monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    monkeypatch.setattr(process_executor, "is_importable", lambda: not persistent)
    with loader_of(pipelines.shuffled(), persistent) as loader:
        list(loader)
    assert not KEPT.idle


@pytest.mark.usefixtures("in_a_script")
def test_an_executor_with_calls_left_is_ended_and_a_call_that_a_worker_is_about_to_get_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor, waits, send = used(), [], WorkerProcess.send

    def send_later(worker: WorkerProcess, *given: Any) -> None:
        waits.append(executor.begin_wait())
        send(worker, *given)

    with monkeypatch.context() as changed:
        changed.setattr(WorkerProcess, "send", send_later)
        assert executor.submit(abs, -1).result(60) == 1
    assert waits == [False]
    executor.submit(time.sleep, 60)
    KEPT.release(executor, wait=True)
    assert not KEPT.idle
    assert executor.pids() == []


def make_workers(worker: str = "thread", persistent: bool = True, given: Any = None) -> Workers:
    return Workers(given, RemoteServers(), worker, 2, 60.0, persistent)


def test_two_threads_that_begin_at_once_share_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=0.2)
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


def test_an_executor_that_is_kept_or_given_outlives_an_epoch_and_one_of_an_epoch_does_not() -> None:
    with ThreadPoolExecutor(1) as given:
        for workers in (make_workers(), make_workers(given=given)):
            executor = workers.take()
            workers.leave(executor)
            assert executor.submit(abs, -1).result(10) == 1
            assert workers.take() is executor
            workers.close()
    workers = make_workers(persistent=False)
    executor = workers.take()
    workers.leave(executor)
    with pytest.raises(RuntimeError, match="was shut down"):
        executor.submit(abs, -1)
