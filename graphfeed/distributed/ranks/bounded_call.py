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
    """Return the result of a function, or leave it running in a daemon thread.

    Args:
        seconds: How long to wait.
        function: What to call. It has no timeout of its own that can be relied on.
        text: What to say if it does not return.

    Raises:
        TimeoutError: It did not return within so many seconds.
        ConnectionAbortedError: The program of this process failed meanwhile.

    Example:
        >>> call_within(5, lambda: 3, "")
        3
    """
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
        check_program()
        left -= CHECK_SECONDS
        if left <= 0:
            raise TimeoutError(text)
    return future.result()
