"""Repetitions in turn, A B A B, because the machine drifts."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Case = Callable[[int], object]
"""Does its work once; the argument is the number of the round."""

WARM_UP_ROUNDS = 2


@dataclass(frozen=True)
class Times:
    """One number per round."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile of the rounds."""
        if len(self.values) < 2:
            return self.median, self.median
        first, _, third = statistics.quantiles(self.values, n=4, method="inclusive")
        return first, third

    def times(self, factor: float) -> "Times":
        """Return the times in another unit."""
        return Times([factor * value for value in self.values])

    def per(self, counts: Sequence[float]) -> "Times":
        """Divide the times of the rounds by the quantities produced in them."""
        return Times([value / count for value, count in zip(self.values, counts, strict=True)])

    def over(self, other: "Times") -> float:
        """Return the median of the ratios to other times of the same rounds."""
        pairs = zip(self.values, other.values, strict=True)
        return statistics.median(mine / its for mine, its in pairs)


def in_turn(cases: Mapping[str, Case], rounds: int, clock: Callable[[], float] = time.process_time) -> dict[str, Times]:
    """Run all cases round after round and return the seconds of each.

    The default clock counts the processor time of all threads of this process, so that other
    processes on the machine don't count. Results are dropped after the clock has stopped.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(-WARM_UP_ROUNDS, rounds):
        for name, case in cases.items():
            start = clock()
            result = case(number % rounds)
            stop = clock()
            del result
            if number >= 0:
                seconds[name].append(stop - start)
    return {name: Times(values) for name, values in seconds.items()}


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread on one core, and torch in this thread."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {max(cores)})
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)
