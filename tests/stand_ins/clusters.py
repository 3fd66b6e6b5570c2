"""Executors of other libraries on this machine, and a way to kill their workers."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.stand_ins.scripts import REPOSITORY


@contextmanager
def dask_cluster() -> Iterator[Executor]:
    """Start a scheduler and two worker processes of this machine."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # None would mean the port that other test processes use, too
            memory_limit=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


class RayExecutor(Executor):
    """Calls a remote function, as in docs/many-machines.md."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = self.call.remote(fn, *args, **kwargs).future()
        return future


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


@contextmanager
def ray_cluster() -> Iterator[Executor]:
    """Start Ray on this machine if it is installed; its workers can import the tests."""
    ray = pytest.importorskip("ray")
    settings = {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in [str(REPOSITORY), *sys.path] if path)}}
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", runtime_env=settings)
    try:
        yield RayExecutor(ray.remote(call))
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, handler)


class Killing(Executor):
    """Kills a worker of another executor when it begins a task, which that executor then runs again.

    Args:
        executor: Runs the tasks.
        killed: A file that is written when the worker is killed.
        at: Number of tasks before that one.
    """

    def __init__(self, executor: Executor, killed: Path, at: int) -> None:
        self.executor, self.killed, self.left = executor, killed, at

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        return self.executor.submit(die_once, self.killed if self.left == -1 else None, fn, *args, **kwargs)


def die_once(killed: Path | None, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, or kill this process the first time that the task is reached."""
    if killed is not None and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args, **kwargs)
