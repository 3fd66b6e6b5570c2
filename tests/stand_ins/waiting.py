"""Waiting for other threads or processes, however busy the machine is."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphfeed as gf


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as a condition is true.

    Raises:
        TimeoutError: It never was.
    """
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"it did not hold for {seconds:g} s")
        time.sleep(0.005)


class HangAtTheSecond:
    """A function of mini-batches that waits at the second one of an epoch, until it is released."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.release = threading.Event()

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        self.begun.append(minibatch.key.index)
        if minibatch.key.index == 1:
            self.release.wait(20)
        return minibatch


class FailsAt:
    """A function of mini-batches that raises an error at one of them."""

    def __init__(self, index: int, error: type[BaseException] = ArithmeticError) -> None:
        self.index, self.error = index, error

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        if minibatch.key.index == self.index:
            raise self.error("no")
        return minibatch


class Stop(BaseException):
    """An error of a user that is no Exception."""


NO_EXCEPTIONS = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, Stop]
"""Errors that `except Exception` does not catch."""


def unchanged(minibatch: Any) -> Any:
    """Return the argument, like a stage that does nothing."""
    return minibatch


def stop(pid: int) -> None:
    """Send SIGSTOP to a process, and return once all its threads have stopped, which a busy machine can delay."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path("/proc", str(pid), "task")
    wait_until(lambda: all(path.read_text().rpartition(") ")[2][0] == "T" for path in threads.glob("*/stat")))


def interrupt(waits: Callable[[], object], after: float = 0.3) -> None:
    """Call a function that is known to wait, and interrupt it as Ctrl-C would."""
    main = threading.main_thread().ident or 0
    timer = threading.Timer(after, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    waits()
