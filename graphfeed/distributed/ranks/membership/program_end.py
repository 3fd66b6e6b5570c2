"""Detects whether the program of this process ended with an error, for threads that outlive it.

Python doesn't store the status passed to `sys.exit`, so a rank that ends in this way counts as done.
"""

import atexit
import multiprocessing
import multiprocessing.util
import sys
import threading
from collections.abc import Callable

FAILED = threading.Event()
"""Set once the program of a process started by multiprocessing ends with an exception or a status other than 0."""

AT_END: list[Callable[[bool], None]] = []
"""Functions called at the end of the program, with whether it has failed."""


def watch_program() -> None:
    """Detect how the program ends under multiprocessing, which catches the exception that ends it."""
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, record_exit, exitpriority=100)


def record_exit() -> None:
    # multiprocessing calls this while it handles the exception that ends the program.
    error = sys.exc_info()[1]
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        FAILED.set()
    run_exit_hooks()


def run_exit_hooks() -> None:
    for tell in AT_END:
        tell(program_failed())


def program_failed() -> bool:
    # Python keeps the last uncaught exception; an interactive session continues after one.
    return FAILED.is_set() or (hasattr(sys, "last_value") and not hasattr(sys, "ps1"))


def check_program() -> None:
    if not threading.main_thread().is_alive() and program_failed():
        raise ConnectionAbortedError("the program of this rank failed")


atexit.register(run_exit_hooks)
if multiprocessing.parent_process() is not None:  # where atexit functions are not called
    multiprocessing.util.Finalize(None, record_exit, exitpriority=100)
