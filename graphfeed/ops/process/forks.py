"""What a forked process makes anew, because it has no thread but the one that forked."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

RENEWED: "WeakKeyDictionary[object, Callable[..., object]]" = WeakKeyDictionary()
"""What is to be called for each object, in the order in which they were made."""


def renew_in_child(thing: T, function: Callable[[T], object]) -> None:
    """Let a function renew an object, which others keep alive, in each forked process before anything else there.

    It replaces locks, which another thread may hold, and closes what is the parent's, without referring to the object.
    """
    RENEWED[thing] = function


def after_fork_in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Let a function run in every process that is forked from this one.

    Example:
        >>> @after_fork_in_child
        ... def forget_what_the_parent_owns() -> None: ...
    """
    renew_in_child(function, lambda given: given())  # not a method of it: that would keep it alive
    return function


def renew_all() -> None:
    for thing, function in list(RENEWED.items()):
        function(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew_all)


class ForkLock:
    """A reentrant lock that is free in a forked process, unless the thread that forked holds it.

    Reentrant, because the garbage collector may run a finalizer in a section that is locked by its own thread.

    Example:
        >>> with ForkLock() as lock:
        ...     lock.acquire(timeout=1)
        True
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        renew_in_child(self, ForkLock._renew)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it, as `threading.RLock` does."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release it."""
        self._lock.release()

    def __enter__(self) -> "ForkLock":
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        # Free, or held by the thread that forked, which will release it.
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()
