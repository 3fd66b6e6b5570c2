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
    """Has a reentrant lock that is free in a forked process, unless the thread that forked holds it.

    Reentrant, because the garbage collector may run a finalizer in a section that is locked by its own thread. The lock
    itself, which is written in C, belongs in a `with` statement: Ctrl-C could leave one with a Python `__enter__` held.

    Example:
        >>> shared = ForkLock()
        >>> with shared.lock:
        ...     pass
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        renew_in_child(self, ForkLock._renew)

    def _renew(self) -> None:
        # Free, or held by the thread that forked, which will release it.
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            self.lock = threading.RLock()
