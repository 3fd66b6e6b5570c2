"""Functions for tests of executors: tasks for threads and processes, and checks of these from outside."""

import os
from contextlib import suppress
from pathlib import Path

from tests.stand_ins.waiting import wait_until

SECONDS = 60.0


def text_of(path: Path) -> str:
    """Wait for a file that another thread or process writes."""
    wait_until(lambda: path.exists() and path.read_text() != "", SECONDS)
    return path.read_text()


def hold(begun: Path, end: Path) -> int:
    """Work until a file exists; return the process id."""
    begun.write_text(str(os.getpid()))
    text_of(end)
    return os.getpid()


def fail(error: BaseException) -> None:
    """Raise an error with a note."""
    error.add_note("a note")
    raise error


def die(signal: int) -> None:
    """Kill the calling process."""
    os.kill(os.getpid(), signal)


def is_alive(pid: int) -> bool:
    """Return whether a process is running, not a zombie."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def wait_for_end(pids: list[int], seconds: float = 30.0) -> list[int]:
    """Return the processes that are still alive after a while."""
    with suppress(TimeoutError):
        wait_until(lambda: not any(map(is_alive, pids)), seconds)
    return [pid for pid in pids if is_alive(pid)]
