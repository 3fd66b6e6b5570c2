"""Threads in which coroutines run, under the names of `torch_geometric.distributed`."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class ConcurrentEventLoop:
    """Runs coroutines in threads of its own, `concurrency` at a time; the threads end with the object."""

    def __init__(self, concurrency: int) -> None:
        self._threads = ThreadPoolExecutor(concurrency, "graphfeed-event-loop")

    def start_loop(self) -> None:
        """Do nothing: threads start when they are needed."""

    def shutdown_loop(self) -> None:
        self._threads.shutdown()  # which waits for what runs

    def run_task(self, coro: Coroutine[Any, Any, Result]) -> Result:
        return self._threads.submit(asyncio.run, coro).result()

    def add_task(self, coro: Coroutine[Any, Any, Result], callback: Callable[[Result], object] | None = None) -> None:
        def run() -> None:
            result = asyncio.run(coro)
            if callback is not None:
                callback(result)

        self._threads.submit(run)
