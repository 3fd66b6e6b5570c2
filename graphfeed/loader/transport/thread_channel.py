"""A bounded queue between two threads, which either thread may close."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphfeed.ops.process import Changes

STEPS = 10
"""Number of steps of a wait, so that a process that is stopped for a while loses at most one step of the timeout."""


def wait_in_steps(changes: Changes, ready: Callable[[], bool], seconds: float) -> bool:
    """Wait until `ready`, which is called with the lock held, returns True; return False after the timeout."""
    return any(changes.wait_for(ready, seconds / STEPS) for _ in range(STEPS))


class Closed(Exception):
    """The other side has closed the channel, and it is empty."""


@dataclass(frozen=True)
class Failure:
    """An exception that is passed to the reader, which raises it instead of a mini-batch."""

    error: BaseException


class ThreadChannel:
    """A bounded FIFO queue between threads. Closing it wakes both sides."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: deque[Any] = deque()
        self.closed = False
        self.changes = Changes()

    def put(self, item: Any) -> bool:
        """Add an item when there is space; drop it and return False if the channel is closed."""

        def add() -> bool:
            if not self.closed and len(self.items) < self.capacity:
                self.items.append(item)
                added.append(True)
            return self.closed or bool(added)

        added: list[bool] = []
        # No timeout: the consumer may take any time, and wakes this thread when it closes the channel.
        self.changes.wait_for(add)
        self.changes.notify_all()
        return bool(added)

    def get(self, timeout_seconds: float) -> Any:
        """Return the next item; raise `Closed` if a closed channel is empty, or a TimeoutError."""

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
        # Remaining items can still be read.
        self.closed = True
        self.changes.notify_all()
