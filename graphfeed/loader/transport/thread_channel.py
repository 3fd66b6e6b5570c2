"""A bounded queue between two threads, which either may close."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STEPS = 10
"""A wait is split into this many steps, so that a process which is stopped for a while loses one of them at most."""


def wait_in_steps(changed: threading.Condition, ready: Callable[[], bool], seconds: float) -> bool:
    # The caller holds the condition's lock.
    return any(changed.wait_for(ready, seconds / STEPS) for _ in range(STEPS))


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
        self.changed = threading.Condition()

    def put(self, item: Any) -> bool:
        """Add an item when there is room; return False, dropping it, if the channel is closed."""
        with self.changed:
            # No timeout: a consumer may take as long as it likes, and wakes this thread when it closes the channel.
            self.changed.wait_for(lambda: self.closed or len(self.items) < self.capacity)
            if self.closed:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def get(self, timeout_seconds: float) -> Any:
        """Return the next item; raise `Closed` if there is none left in a closed channel."""
        with self.changed:
            if not wait_in_steps(self.changed, lambda: bool(self.items) or self.closed, timeout_seconds):
                raise TimeoutError(f"nothing came for {timeout_seconds:g} s")
            if not self.items:
                raise Closed
            item = self.items.popleft()
            self.changed.notify_all()
            return item

    def close(self) -> None:
        # What is in it can still be read.
        with self.changed:
            self.closed = True
            self.changed.notify_all()
