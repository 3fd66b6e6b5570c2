"""Handling of Ctrl-C, so that it is never lost and leaves no lock held.

Python may raise KeyboardInterrupt after any call in the main thread, including these two places:

- In a finalizer (`__del__`, the callback of a weak reference, a generator that is collected). Python discards its
  exceptions, even one raised before the first line of the finalizer, where no `try` can catch it. It passes them to
  `sys.unraisablehook`, where `raise_again` schedules the interrupt again.
- In `__enter__` or `__exit__` of a lock that is implemented in Python, such as `threading.Condition`, which events and
  futures use. The lock then stays held, or is released twice. Locks that are implemented in C are safe in `with`
  statements; `Changes` only uses such locks, and `uninterrupted` protects calls that use the standard library's locks.
"""

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

REPORT = sys.unraisablehook


def raise_again(unraisable: Any) -> None:
    """Raise KeyboardInterrupt again if a finalizer in the main thread lost it; report other exceptions as usual."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt) or not in_main_thread():
        REPORT(unraisable)
        return
    with suppress(RuntimeError):  # the interpreter shuts down
        # In another thread: here, the interrupt would be raised immediately, and discarded again.
        _thread.start_new_thread(interrupt_soon, (threading.get_ident(),))


def interrupt_soon(main: int) -> None:
    time.sleep(0.01)  # so that the main thread has left the finalizer
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)  # also interrupts a wait
    else:
        _thread.interrupt_main()


sys.unraisablehook = raise_again


def in_main_thread() -> bool:
    """Return whether this is the thread in which Python handles signals."""
    return threading.get_ident() == threading.main_thread().ident


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of a block, which must be short and must not run user-defined code.

    Use it for calls that hold locks of the standard library, such as methods of futures that other threads complete, or
    that start threads. It takes about 30 microseconds in the main thread. Other threads are never interrupted.
    """
    before = signal.getsignal(signal.SIGINT) if in_main_thread() else None
    if not callable(before):
        yield
        return
    came = False

    def note(*_: Any) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def in_one_step(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function within `uninterrupted`."""
    with uninterrupted():
        return function(*args, **kwargs)


def wait_until_done(future: "Future[Any]", seconds: float | None = None) -> bool:
    """Wait until a future is done; return False if the timeout expires before."""
    done: SimpleQueue[None] = SimpleQueue()
    in_one_step(future.add_done_callback, lambda _: done.put(None))
    try:
        done.get(timeout=seconds)
    except Empty:
        return False
    return True


def as_they_end(futures: "Collection[Future[T]]") -> "Iterator[Future[T]]":
    """Yield each future when it is done, like `concurrent.futures.as_completed`."""
    ended: SimpleQueue[Future[T]] = SimpleQueue()
    for future in futures:
        in_one_step(future.add_done_callback, ended.put)
    for _ in futures:
        yield ended.get()


def result_of(future: "Future[T]", seconds: float | None = None) -> T:
    """Return the result of a future like `Future.result`, but an interrupt never leaves its lock held."""
    if not wait_until_done(future, seconds):
        raise TimeoutError
    return future.result(0)


class Changes:
    """A condition variable like `threading.Condition` that stays usable after an interrupt.

    Change the shared state with `lock` held, in a `with` statement, and then call `notify_all`.

    Example:
        >>> changes, items = Changes(), [1]
        >>> changes.wait_for(lambda: items and items.pop(), seconds=1)
        1
    """

    def __init__(self, lock: Any = None) -> None:
        self.lock = threading.RLock() if lock is None else lock
        self._waiting: list[SimpleQueue[None]] = []

    def notify_all(self) -> None:
        """Wake all waiting threads to check their condition again."""
        for woken in list(self._waiting):
            woken.put(None)

    def wait_for(self, ready: Callable[[], T], seconds: float | None = None, every: float | None = None) -> T:
        """Wait until `ready` returns a true value, or the timeout expires; return its last result.

        `ready` is called with the lock held, and may change the state. The caller must not hold the lock. With `every`,
        `ready` is also called every `every` seconds without a change.
        """
        woken: SimpleQueue[None] = SimpleQueue()
        end = None if seconds is None else time.monotonic() + seconds
        try:
            self._waiting.append(woken)
            while True:
                left = None if end is None else end - time.monotonic()
                with self.lock:
                    found = ready()
                if found or (left is not None and left <= 0):
                    return found
                with suppress(Empty):
                    woken.get(timeout=min((part for part in (left, every) if part is not None), default=None))
        finally:
            with suppress(ValueError):
                self._waiting.remove(woken)
