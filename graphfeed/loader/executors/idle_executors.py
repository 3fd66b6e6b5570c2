"""The worker processes of closed loaders, which wait a few seconds for the next loader of the same program.

Otherwise a program that makes a loader for each evaluation would wait each time until workers have started, imported
its main module and loaded their kernels.
"""

import os
import sys
from concurrent.futures import Executor
from typing import Any
from weakref import WeakKeyDictionary

from graphfeed.loader.executors.main_module import is_importable
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.ops.process import ForkLock, after_fork_in_child

MOST_IDLE = 2
"""How many executors wait at once; the one that has waited longest makes room."""
LOCK = ForkLock()
IDLE: list[ProcessExecutor] = []
STARTED_FOR: "WeakKeyDictionary[Executor, Any]" = WeakKeyDictionary()
"""What a loader has to want in order to take an executor over."""


@after_fork_in_child
def forget_executors() -> None:
    # They belong to the process that this one was forked from.
    IDLE.clear()


def take_executor(num_workers: int, timeout: float) -> ProcessExecutor:
    """Return an executor that waits for a loader with these options, or else a new one."""
    # Worker processes that start later would get other paths and variables, if these have changed.
    wanted = num_workers, timeout, list(sys.path), dict(os.environ)
    with LOCK:
        for executor in reversed(IDLE):
            if STARTED_FOR[executor] == wanted:
                IDLE.remove(executor)
                if executor.end_wait():
                    return executor
    executor = ProcessExecutor(num_workers, timeout=timeout)
    STARTED_FOR[executor] = wanted
    return executor


def release_executor(executor: Executor, *, wait: bool) -> None:
    """Let a loader's idle worker processes wait for the next loader; shut down any other executor."""
    ended: Executor | None = executor
    # In a notebook, modules may change before the next loader, and these workers would keep the old ones.
    if isinstance(executor, ProcessExecutor) and executor in STARTED_FOR and is_importable() and executor.begin_wait():
        with LOCK:
            IDLE.append(executor)
            ended = IDLE.pop(0) if len(IDLE) > MOST_IDLE else None
    if ended is not None:
        ended.shutdown(wait=wait, cancel_futures=True)


def end_idle_executors() -> None:
    with LOCK:
        ended = IDLE[:]
        IDLE.clear()
    for executor in ended:
        executor.shutdown(cancel_futures=True)
