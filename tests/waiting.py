"""Waiting for what another thread or process does, however busy the machine is."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as something holds.

    Raises:
        TimeoutError: It never did.
    """
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"it did not hold for {seconds:g} s")
        time.sleep(0.005)


def stop(pid: int) -> None:
    """Send SIGSTOP to a process, and return once all its threads have stopped, which a busy machine can delay."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path("/proc", str(pid), "task")
    wait_until(lambda: all(path.read_text().rpartition(") ")[2][0] == "T" for path in threads.glob("*/stat")))
