"""Threads in which coroutines run, under the names of `torch_geometric.distributed`."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class ConcurrentEventLoop:
    """Runs coroutines in threads of its own, so many at a time. The threads end with the object.

    Args:
        concurrency: How many coroutines run at a time; others wait for them.

    Example:
        >>> loop = ConcurrentEventLoop(concurrency=1)
        >>> loop.run_task(asyncio.sleep(0, result=5))
        5
    """

    def __init__(self, concurrency: int) -> None:
        self._threads = ThreadPoolExecutor(concurrency, "graphfeed-event-loop")

    def start_loop(self) -> None:
        """Do nothing: threads start when they are needed."""

    def shutdown_loop(self) -> None:
        """Wait for what runs, and end the threads; no coroutines can be run any more."""
        self._threads.shutdown()

    def run_task(self, coro: Coroutine[Any, Any, Result]) -> Result:
        """Return what a coroutine returns."""
        return self._threads.submit(asyncio.run, coro).result()

    def add_task(self, coro: Coroutine[Any, Any, Result], callback: Callable[[Result], object] | None = None) -> None:
        """Run a coroutine without waiting for it, and call a function with what it returns."""

        def run() -> None:
            result = asyncio.run(coro)
            if callback is not None:
                callback(result)

        self._threads.submit(run)
