"""A thread in which coroutines run, so many at a time."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class ConcurrentEventLoop:
    """Runs coroutines in a thread, as in `torch_geometric.distributed`. The thread ends with the object.

    Args:
        concurrency: How many of those that `add_task` took run at a time.

    Example:
        >>> loop = ConcurrentEventLoop(concurrency=1)
        >>> loop.start_loop()
        >>> loop.run_task(asyncio.sleep(0, result=5))
        5
        >>> loop.shutdown_loop()
    """

    def __init__(self, concurrency: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._free = asyncio.Semaphore(concurrency)
        self._thread = threading.Thread(target=run, args=(self._loop,), name="graphfeed-event-loop", daemon=True)
        self._end = weakref.finalize(self, end, self._loop, self._thread)
        self._end.atexit = False  # the thread is a daemon

    def start_loop(self) -> None:
        """Start the thread, if it does not run yet."""
        if not self._thread.is_alive():
            self._thread.start()

    def shutdown_loop(self) -> None:
        """End the thread; the loop can't be used any more."""
        self._end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def run_task(self, coro: Coroutine[Any, Any, Result]) -> Result:
        """Return what a coroutine returns."""
        return asyncio.run_coroutine_threadsafe(coro, self._loop).result()

    def add_task(self, coro: Coroutine[Any, Any, Result], callback: Callable[[Result], object] | None = None) -> None:
        """Run a coroutine without waiting for it, and call a function with what it returns."""

        async def run_when_free() -> None:
            async with self._free:
                result = await coro
            if callback is not None:
                callback(result)

        asyncio.run_coroutine_threadsafe(run_when_free(), self._loop)


def run(loop: asyncio.AbstractEventLoop) -> None:
    """Be the thread."""
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Let the thread end, or close a loop whose thread never ran.

    It does not wait: whoever dropped the object last may be a thread that the loop waits for.
    """
    if thread.is_alive():
        loop.call_soon_threadsafe(loop.stop)
    elif not loop.is_closed():
        loop.close()
