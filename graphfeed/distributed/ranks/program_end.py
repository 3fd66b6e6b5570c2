"""Whether the program of this process ended with an error, for threads that outlive it.

Python keeps no note of the status that a program gives to `sys.exit`: a rank that ends so counts as done.
"""

import atexit
import multiprocessing
import multiprocessing.util
import sys
import threading
from collections.abc import Callable

FAILED = threading.Event()
"""Set once the program of a process that multiprocessing started ends by an exception, or by a status that is not 0."""

AT_END: list[Callable[[bool], None]] = []
"""What is called at the end of the program, with whether it has failed."""


def watch_program() -> None:
    """Notice how the program ends under multiprocessing, which catches the exception that ends it."""
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, note_end, exitpriority=100)


def note_end() -> None:
    # multiprocessing calls this while it handles the exception that ends the program.
    error = sys.exc_info()[1]
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        FAILED.set()
    tell_end()


def tell_end() -> None:
    for tell in AT_END:
        tell(program_failed())


def program_failed() -> bool:
    # Python keeps the last exception that nobody caught; an interactive session goes on after one.
    return FAILED.is_set() or (hasattr(sys, "last_value") and not hasattr(sys, "ps1"))


def check_program() -> None:
    if not threading.main_thread().is_alive() and program_failed():
        raise ConnectionAbortedError("the program of this rank failed")


atexit.register(tell_end)
if multiprocessing.parent_process() is not None:  # where nothing is called at exit
    multiprocessing.util.Finalize(None, note_end, exitpriority=100)
