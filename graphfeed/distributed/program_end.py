"""Tells how the program of this process has ended, to threads that outlive it."""

import multiprocessing
import multiprocessing.util
import sys
import threading

FAILED = threading.Event()
"""Set once the program of this process, which multiprocessing started, ends by an exception."""


def watch_program() -> None:
    """Notice how the program ends if multiprocessing started this process: Python keeps no note of that there."""
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, note_end, exitpriority=100)


def note_end() -> None:
    """Note whether an exception ends the program; multiprocessing calls this while it is on its way."""
    error = sys.exc_info()[1]
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        FAILED.set()


def program_failed() -> bool:
    """Tell whether the program of this process has ended by an exception."""
    return FAILED.is_set() or hasattr(sys, "last_value")
