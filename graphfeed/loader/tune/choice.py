"""What can be chosen, what bounds it, and what is known of what was tried."""

from dataclasses import dataclass

from graphfeed.loader.profile import Summary

THREADS_BESIDE = 2
"""How many threads fetch features beside worker processes, at least."""


FEWEST = 24
"""How many mini-batches a trial measures, at least."""
WINDOWS = 4
"""How many windows of them it measures, at least."""
MOST = 240
"""How many it measures to become more exact."""
MOST_SMALL = 1000
"""How many it measures to last long enough."""
SHORTEST_SECONDS = 0.4
PRECISION = 0.03
"""The standard error of a rate that a trial is to have, as a share of it."""


@dataclass(frozen=True)
class Choice:
    """Three options of a loader."""

    worker: str
    """"thread" or "process"."""
    num_workers: int
    prefetch_factor: int

    @property
    def window(self) -> int:
        """How many mini-batches are in flight."""
        return self.num_workers * self.prefetch_factor

    def __str__(self) -> str:
        if self.num_workers == 0:
            return "num_workers=0"
        return f"num_workers={self.num_workers}, worker={self.worker!r}, prefetch_factor={self.prefetch_factor}"


@dataclass(frozen=True)
class Limits:
    """What bounds the choice."""

    num_cores: int
    memory: float
    """How many bytes mini-batches in flight and worker processes may take together."""
    minibatch_bytes: float = 0.0
    """The size of the largest mini-batch so far."""
    worker_bytes: float = 0.0
    """The memory of a worker process that it shares with no other process."""
    server_bytes: float = 0.0
    """The memory that worker processes share with the server that they are forked from."""
    copied_bytes: float = 0.0
    """What is copied to shared memory when the first worker process starts."""
    no_processes: str = ""
    """Why there can't be worker processes; empty if there can be."""

    def memory_of(self, choice: Choice) -> float:
        """Return how many bytes a choice takes, at most."""
        # One mini-batch is in the loop's hands, and threads that run ahead keep some.
        at_once = choice.window + choice.num_workers + choice.prefetch_factor + 1
        if choice.worker == "process":
            at_once += max(THREADS_BESIDE, choice.num_workers, self.num_cores)
        return at_once * self.minibatch_bytes + self.memory_of_processes(choice)

    def memory_of_processes(self, choice: Choice) -> float:
        """Return how many bytes the worker processes of a choice take before they have a mini-batch."""
        if choice.worker != "process":
            return 0.0
        return choice.num_workers * self.worker_bytes + self.server_bytes + self.copied_bytes

    def memory_to_try(self, choice: Choice, now: Choice) -> float:
        """Return how many bytes are taken at once, at most, while one choice follows another one.

        The processes of a choice start while the other one goes on, and stay until they are known to be worse.
        """
        starting = self.memory_of(now) + self.memory_of_processes(choice)
        return max(starting, self.memory_of(choice) + self.memory_of_processes(now))


@dataclass(frozen=True)
class Trial:
    """What was measured with a choice."""

    choice: Choice
    rate: float
    """Mini-batches per second."""
    waits: float
    """The share of the time in which the loop waits."""
    step_ms: float
    """What the loop does with a mini-batch."""
    busy_ms: float
    """What a worker does for a mini-batch; without workers, the loop's thread."""
    cpu: float
    """The share of that in which it uses a core."""
    noise: float
    """The standard error of the rate, as a share of it."""
    memory: float = 0.0
    """How many bytes the choice takes, at most."""


def spread(summary: Summary) -> float:
    # The standard deviation of the time of a mini-batch, as a share of it.
    middle, high = summary.worker_ms, summary.worker_p95_ms
    if not summary.setting.num_workers:
        middle, high = summary.main_ms, sum(stage.p95_ms for stage in summary.stages)
    # Of a normal distribution, one in twenty is above the mean by 1.645 standard deviations or more. How uneven workers
    # are hardly matters where the step is the limit.
    return min(1.0, 2 * summary.waits) * max(0.0, high / middle - 1) / 1.645 if middle else 0.0


def enough(spread_of_one: float, window: int, rate: float) -> int:
    precise = min(MOST, (spread_of_one / PRECISION) ** 2)
    # They come out in bursts of a window, so the number of them in some time is as uncertain.
    return int(max(FEWEST, WINDOWS * window, precise, min(MOST_SMALL, SHORTEST_SECONDS * rate)))


def trial_of(choice: Choice, summary: Summary, limits: Limits) -> Trial:
    """Return what a summary says of a choice."""
    busy, cpu = summary.worker_ms, summary.worker_cpu_ms
    if choice.num_workers == 0:
        busy, cpu = summary.main_ms, sum(stage.ms * stage.cpu for stage in summary.stages)
    return Trial(
        choice,
        summary.rate,
        summary.waits,
        summary.step_ms,
        busy,
        min(1.0, cpu / busy) if busy else 1.0,
        spread(summary) / max(summary.num_minibatches, 1) ** 0.5,
        limits.memory_of(choice),
    )
