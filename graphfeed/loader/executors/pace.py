"""When a mini-batch is quicker made than handed to a thread."""

from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any

QUICK_SECONDS = 150e-6
"""What handing one over costs: two threads that wake each other and share the interpreter lock."""
PATIENCE_SECONDS = 3e-3
LOOKS = 16
"""So many mini-batches are timed in threads first."""
MOST_LOOKS = 1024


class Pace:
    """Times mini-batches, and tells whether those that come are better made where they are read.

    In threads the least time of several counts: the others may have waited for the interpreter lock. Once the reader
    makes them, what they take beyond a quick one's time adds up, and a quick one pays some of it back; too much of it
    ends this. The next look then takes twice as many, so that a pipeline of mixed mini-batches stays in its threads.
    """

    def __init__(self) -> None:
        self.quick = False
        self.looks = LOOKS
        self.seen = 0
        self.least = inf
        self.lost = 0.0

    def timed(self, work: Callable[[Any], Any], task: Any) -> Any:
        """Do the work, and note how long it took; of a failure nothing is noted."""
        start = perf_counter()
        result = work(task)
        self.note(perf_counter() - start)
        return result

    def note(self, seconds: float) -> None:
        """Take a mini-batch's time into account."""
        if self.quick:
            self.lost = max(0.0, self.lost + seconds - QUICK_SECONDS)
            if self.lost > PATIENCE_SECONDS:
                self.quick, self.looks = False, min(2 * self.looks, MOST_LOOKS)
            return
        self.least = min(self.least, seconds)
        self.seen += 1
        if self.seen >= self.looks:
            self.quick = self.least < QUICK_SECONDS
            self.seen, self.least, self.lost = 0, inf, 0.0
