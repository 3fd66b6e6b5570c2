"""Run a blocking call with a timeout: calls of PyTorch that wait for another process may never return."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from graphfeed.distributed.ranks.program_end import check_program

CHECK_SECONDS = 0.1
"""How often a wait looks whether the program has failed."""

Result = TypeVar("Result")


def call_within(seconds: float, function: Callable[[], Result], text: str) -> Result:
    """Return the result of a function; after some seconds raise a TimeoutError, and leave it to a daemon thread."""
    future: Future[Result] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=call, name="graphfeed-bounded-call", daemon=True).start()
    except RuntimeError:  # a program that ends starts no thread
        return function()
    left = seconds
    while not wait([future], min(left, CHECK_SECONDS)).done:
        check_program()  # which may raise a ConnectionAbortedError
        left -= CHECK_SECONDS
        if left <= 0:
            raise TimeoutError(text)
    return future.result()
