"""What tests let the threads and processes of an executor do, and how they look at it from outside."""

import os
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_until

SECONDS = 60.0


def text_of(path: Path) -> str:
    """Wait for a file that somebody else writes."""
    wait_until(lambda: path.exists() and path.read_text() != "", SECONDS)
    return path.read_text()


def hold(begun: Path, end: Path) -> int:
    """Be at work until a file is there; return the id of the process."""
    begun.write_text(str(os.getpid()))
    text_of(end)
    return os.getpid()


def fail(error: BaseException) -> None:
    """Raise an error with a note."""
    error.add_note("a note")
    raise error


def die(signal: int) -> None:
    """Kill the process that does this."""
    os.kill(os.getpid(), signal)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs, and has not only left its exit code."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def wait_for_end(pids: list[int], seconds: float = 30.0) -> list[int]:
    """Return who is still alive after a while."""
    with suppress(TimeoutError):
        wait_until(lambda: not any(map(is_alive, pids)), seconds)
    return [pid for pid in pids if is_alive(pid)]
