"""Tells how the program of this process has ended, to threads that outlive it."""

import multiprocessing
import multiprocessing.util
import sys
import threading
from functools import wraps
from typing import NoReturn

FAILED = threading.Event()
"""Set once the program of this process ends by `sys.exit` with a code, or, where multiprocessing started it, fails."""
EXIT = sys.exit


def watch_program() -> None:
    """Notice how the program ends, where Python keeps no note of that: at `sys.exit`, and under multiprocessing."""
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, note_end, exitpriority=100)
    else:
        sys.exit = note_exit


@wraps(EXIT)
def note_exit(status: object = None, /) -> NoReturn:
    """Be `sys.exit`, and note whether the main thread calls it with a code that means failure."""
    if status not in (None, 0) and threading.current_thread() is threading.main_thread():
        FAILED.set()
    EXIT(status)  # type: ignore[arg-type]  # any object may be a status


def note_end() -> None:
    """Note whether an exception ends the program; multiprocessing calls this while it is on its way."""
    error = sys.exc_info()[1]
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        FAILED.set()


def program_failed() -> bool:
    """Tell whether the program of this process has failed. An interactive session does not fail by an error."""
    return FAILED.is_set() or (hasattr(sys, "last_value") and not hasattr(sys, "ps1"))


def check_program() -> None:
    """Raise if the program of this process has failed and ended."""
    if not threading.main_thread().is_alive() and program_failed():
        raise ConnectionAbortedError("the program of this rank failed")
