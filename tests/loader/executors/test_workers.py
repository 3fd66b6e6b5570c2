"""When the workers of a loader are started, kept and ended."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.loader.executors.worker_task import unpack_work
from graphfeed.loader.runner import Workers
from tests import pipelines

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")


def unpacked() -> tuple[int, int]:
    """Return how many tasks a worker has in its cache, and how many it had to unpickle."""
    info = unpack_work.cache_info()
    return info.currsize, info.misses


def test_workers_unpack_their_work_once_and_end_with_their_loader() -> None:
    loader = gf.DataLoader(pipelines.shuffled(), 1, worker="process", seed=1)
    for _ in range(2):
        list(loader)
    executor = loader._workers.open_executor()
    assert executor.submit(unpacked).result(60) == (1, 1)
    loader.close()
    with pytest.raises(RuntimeError, match="was shut down"):
        executor.submit(unpacked)


def make_workers(worker: str = "thread", persistent: bool = True, given: Any = None) -> Workers:
    return Workers(given, worker, 2, 60.0, persistent)


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
            executor = workers.open_executor()
            workers.leave(executor)
            assert executor.submit(abs, -1).result(10) == 1
            assert workers.open_executor() is executor
            workers.close()
    workers = make_workers(persistent=False)
    executor = workers.open_executor()
    workers.leave(executor)
    with pytest.raises(RuntimeError, match="was shut down"):
        executor.submit(abs, -1)
