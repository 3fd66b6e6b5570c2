import gc
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.loader.executors import dispatcher, idle_executors
from graphfeed.loader.executors.idle_executors import IDLE, end_idle_executors, release_executor, take_executor
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.worker_process import WorkerProcess
from graphfeed.loader.executors.worker_task import unpack_work
from tests import pipelines
from tests.digests import digest
from tests.forked import in_child
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks", "in_a_script")


@pytest.fixture
def in_a_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the main module count as one that workers import, which pytest's is not."""
    monkeypatch.setattr(idle_executors, "is_importable", lambda: True)
    end_idle_executors()
    yield
    end_idle_executors()


def loader_of(pipe: gf.Datapipe, persistent: bool = True) -> gf.DataLoader:
    return gf.DataLoader(pipe, 1, persistent, worker="process", seed=1)


def workers_of(loader: gf.DataLoader) -> list[int]:
    executor = loader._workers.take()
    assert isinstance(executor, ProcessExecutor)
    return executor.pids()


def kept() -> int:
    """Return how many tasks a worker has unpacked."""
    return unpack_work.cache_info().currsize


def used(num_workers: int = 1, timeout: float = 60.0) -> ProcessExecutor:
    """Return an executor whose worker runs."""
    executor = take_executor(num_workers, timeout)
    executor.submit(abs, 1).result(60)
    return executor


@pytest.mark.parametrize("closed", [True, False])
def test_the_next_loader_takes_over_the_workers_and_makes_its_own_mini_batches(closed: bool) -> None:
    first, second = pipelines.shuffled(), pipelines.homogeneous()
    loader = loader_of(first)
    assert [digest(batch) for batch in loader] == [digest(batch) for batch in first.with_seed(1, 0)]
    workers = workers_of(loader)
    if closed:
        loader.close()
    else:
        del loader
    with loader_of(second) as other:
        assert [digest(batch) for batch in other] == [digest(batch) for batch in second.with_seed(1, 0)]
        assert workers_of(other) == workers


def test_a_closed_loader_that_is_collected_later_leaves_the_workers_to_their_new_user() -> None:
    first = loader_of(pipelines.shuffled())
    list(first)
    first.close()
    with loader_of(pipelines.shuffled()) as second:
        list(second)
        del first
        gc.collect()
        assert not IDLE


def test_workers_let_go_of_what_they_have_unpacked() -> None:
    loader = loader_of(pipelines.shuffled())
    list(loader)
    executor = loader._workers.take()
    assert executor.submit(kept).result(60) == 1
    loader.close()
    assert executor.submit(kept).result(60) == 0


def test_workers_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "IDLE_SECONDS", 0.0)
    executor = used()
    (worker,) = executor.pids()
    release_executor(executor, wait=False)
    wait_until(lambda: not os.path.exists(f"/proc/{worker}"))
    other = used()
    assert other is not executor
    other.shutdown()


def test_others_are_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    release_executor(used(), wait=False)
    others = [take_executor(2, 60.0), take_executor(1, 61.0)]
    with monkeypatch.context() as changed:
        changed.setattr(sys, "path", [*sys.path, "/elsewhere"])
        others.append(take_executor(1, 60.0))
    assert len(IDLE) == 1
    for executor in others:
        executor.shutdown()


def test_the_one_that_waited_longest_makes_room() -> None:
    executors = [used(timeout=60.0 + number) for number in range(idle_executors.MOST_IDLE + 1)]
    for executor in executors:
        release_executor(executor, wait=True)
    assert executors[1:] == IDLE
    assert executors[0].pids() == []


@pytest.mark.parametrize("persistent", [True, False])
def test_workers_end_with_their_loader_in_a_notebook_or_where_they_are_not_persistent(
    monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    monkeypatch.setattr(idle_executors, "is_importable", lambda: not persistent)
    with loader_of(pipelines.shuffled(), persistent) as loader:
        list(loader)
    assert not IDLE


def test_a_forked_child_has_none() -> None:
    release_executor(used(), wait=False)
    assert len(IDLE) == 1
    assert in_child(lambda: len(IDLE)) == "0"


def test_a_call_that_a_worker_is_about_to_get_counts_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, waits, send = used(), [], WorkerProcess.send

    def send_later(worker: WorkerProcess, *given: Any) -> None:
        waits.append(executor.begin_wait())
        send(worker, *given)

    monkeypatch.setattr(WorkerProcess, "send", send_later)
    assert executor.submit(abs, -1).result(60) == 1
    executor.shutdown()
    assert waits == [False]


def test_an_executor_with_calls_left_is_ended() -> None:
    executor = used()
    executor.submit(time.sleep, 60)
    release_executor(executor, wait=True)
    assert not IDLE
    assert executor.pids() == []
