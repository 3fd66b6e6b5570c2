"""State that a forked process must reset, because only the forking thread exists there."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

RENEWED: "WeakKeyDictionary[object, Callable[..., object]]" = WeakKeyDictionary()
"""The function to call for each object, in order of registration."""


def renew_in_child(thing: T, function: Callable[[T], object]) -> None:
    """Call a function with an object at the start of each forked process, as long as the object is alive.

    It replaces locks that another thread may hold, and closes the parent's resources. Don't pass a bound method.
    """
    RENEWED[thing] = function


def after_fork_in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Register a function that is called in every process that is forked from this one.

    Example:
        >>> @after_fork_in_child
        ... def forget_what_the_parent_owns() -> None: ...
    """
    renew_in_child(function, lambda given: given())  # not a bound method, which would keep it alive
    return function


def renew_all() -> None:
    for thing, function in list(RENEWED.items()):
        function(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew_all)


class ForkLock:
    """A reentrant lock that is free in a forked process, unless the forking thread holds it.

    It is reentrant because the garbage collector may run a finalizer while the same thread holds the lock. Use `lock`
    in `with` statements: it is implemented in C, while Ctrl-C could leave a lock with a Python `__enter__` locked.

    Example:
        >>> shared = ForkLock()
        >>> with shared.lock:
        ...     pass
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        renew_in_child(self, ForkLock._renew)

    def _renew(self) -> None:
        # Free, or locked by the forking thread, which will release it.
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            self.lock = threading.RLock()
