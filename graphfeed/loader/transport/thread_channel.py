"""A bounded queue between two threads, which either may close."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphfeed.ops.process import Changes

STEPS = 10
"""A wait is split into this many steps, so that a process which is stopped for a while loses one of them at most."""


def wait_in_steps(changes: Changes, ready: Callable[[], bool], seconds: float) -> bool:
    """Wait until `ready`, which is called with the lock held, returns True; return False if the time has passed."""
    return any(changes.wait_for(ready, seconds / STEPS) for _ in range(STEPS))


class Closed(Exception):
    """The other side has closed the channel, and nothing is left in it."""


@dataclass(frozen=True)
class Failure:
    """An exception on its way to the reader, which raises it in the place of a mini-batch."""

    error: BaseException


class ThreadChannel:
    """A bounded queue between threads, first in, first out; closing it wakes both sides."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: deque[Any] = deque()
        self.closed = False
        self.changes = Changes()

    def put(self, item: Any) -> bool:
        """Add an item when there is room; return False, dropping it, if the channel is closed."""

        def add() -> bool:
            if not self.closed and len(self.items) < self.capacity:
                self.items.append(item)
                added.append(True)
            return self.closed or bool(added)

        added: list[bool] = []
        # No timeout: a consumer may take as long as it likes, and wakes this thread when it closes the channel.
        self.changes.wait_for(add)
        self.changes.notify_all()
        return bool(added)

    def get(self, timeout_seconds: float) -> Any:
        """Return the next item; raise `Closed` if there is none left in a closed channel."""

        def take() -> bool:
            if self.items:
                taken.append(self.items.popleft())
            return self.closed or bool(taken)

        taken: list[Any] = []
        if not wait_in_steps(self.changes, take, timeout_seconds):
            raise TimeoutError(f"nothing came for {timeout_seconds:g} s")
        if not taken:
            raise Closed
        self.changes.notify_all()
        return taken.pop()

    def close(self) -> None:
        # What is in it can still be read.
        self.closed = True
        self.changes.notify_all()
