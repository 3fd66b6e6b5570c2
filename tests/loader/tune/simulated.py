"""Pipelines in virtual time: queues for workers, cores, memory, a disk and the interpreter's lock."""

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from graphfeed.loader.tune import Choice, Limits, Trial, best_of, propose
from graphfeed.loader.tune.choice import enough

CORES = 8
HANDING_OVER_MS = {"thread": 0.1, "process": 0.4}


@dataclass(frozen=True)
class Simulated:
    """What a mini-batch takes, in milliseconds."""

    compute: float = 5.0
    """Without the interpreter's lock."""
    locked: float = 0.05
    disk: float = 0.0
    step: float = 0.2
    spread: float = 0.15
    """The standard deviation of all these, as a share."""
    bandwidth: float = 100.0
    """How many threads the memory is fast enough for."""
    requests: int = 100
    """How many requests the disk answers at once."""


class Resource:
    """Serves so many at once, in the order in which they come."""

    def __init__(self, count: int) -> None:
        self.free, self.queue = count, deque[int]()

    def come(self, number: int) -> int | None:
        """Return who is served now."""
        self.queue.append(number)
        return self.next()

    def leave(self) -> int | None:
        self.free += 1
        return self.next()

    def next(self) -> int | None:
        if not self.free or not self.queue:
            return None
        self.free -= 1
        return self.queue.popleft()


class Simulation:
    """Mini-batches that pass a worker, the disk and the lock, one event after the other."""

    def __init__(self, pipe: Simulated, choice: Choice, rng: np.random.Generator, count: int) -> None:
        self.window = max(1, choice.window)
        workers = max(1, choice.num_workers)
        variance = np.log1p(pipe.spread**2)
        slow = max(1.0, workers / CORES, workers / pipe.bandwidth)
        times = np.array([pipe.compute * slow, pipe.disk, pipe.locked, pipe.step])
        self.ms = rng.lognormal(-variance / 2, np.sqrt(variance), (count, 4)) * times
        self.ms[:, 3] += HANDING_OVER_MS[choice.worker] if choice.num_workers else 0.0
        locks = 1 if choice.worker == "thread" else workers
        self.resources = [Resource(workers), Resource(pipe.requests), Resource(locks)]
        self.events: list[tuple[float, int, int]] = []
        self.begun, self.done, self.asked, self.taken = (np.full(count, np.inf) for _ in range(4))
        self.now, self.is_waiting, self.wanted = 0.0, True, 0
        self.asked[0] = 0.0
        for number in range(min(self.window, count)):
            self.serve(0, self.resources[0].come(number))
        while self.events:
            self.now, number, stage = heapq.heappop(self.events)
            self.end(number, stage)

    def serve(self, stage: int, number: int | None) -> None:
        """Let a mini-batch be worked on, if there is one: a worker keeps it through all stages."""
        if number is not None:
            if stage == 0:
                self.begun[number] = self.now
            heapq.heappush(self.events, (self.now + self.ms[number, stage], number, stage))

    def end(self, number: int, stage: int) -> None:
        """Go on with what follows."""
        if stage == 3:  # the loop asks for the next one
            self.is_waiting = True
            self.wanted = number + 1
            if self.wanted < len(self.asked):
                self.asked[self.wanted] = self.now
        elif stage:
            self.serve(stage, self.resources[stage].leave())
        if stage < 2:
            self.serve(stage + 1, self.resources[stage + 1].come(number))
        elif stage == 2:
            self.done[number] = self.now
            self.serve(0, self.resources[0].leave())
        if self.is_waiting and self.wanted < len(self.done) and self.done[self.wanted] <= self.now:
            self.is_waiting = False
            self.taken[self.wanted] = self.now
            if self.wanted + self.window < len(self.done) and self.window > 1:
                self.serve(0, self.resources[0].come(self.wanted + self.window))
            self.serve(3, self.wanted)
        elif self.window == 1 and self.is_waiting and stage == 3 and self.wanted < len(self.done):
            self.serve(0, self.resources[0].come(self.wanted))


def simulate(pipe: Simulated, choice: Choice, rng: np.random.Generator, limits: Limits) -> Trial:
    """Return what a trial would measure."""
    measured = enough(pipe.spread, choice.window, 0.0)
    first = choice.window + choice.num_workers + 1
    run = Simulation(pipe, choice, rng, first + measured + 1)
    ms = run.asked[-1] - run.asked[first]
    walls = (run.done - run.begun)[first:-1]
    busy = run.ms[first:-1, 0] + run.ms[first:-1, 2]
    return Trial(
        choice,
        1000 * measured / ms,
        float((run.taken - run.asked)[first:-1].sum()) / ms,
        float(np.median(run.asked[first + 1 :] - run.taken[first:-1])),
        float(np.median(walls)),
        float(busy.sum() / walls.sum()),
        float(np.std(walls) / np.mean(walls)) / measured**0.5,
        limits.memory_of(choice),
    )


def grid(cores: int) -> list[Choice]:
    """Return the settings that a patient user would try."""
    counts = [count for count in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if count <= 4 * cores]
    inline = Choice("thread", 0, 2)
    return [
        inline,
        *(Choice(who, count, each) for who in ("thread", "process") for count in counts for each in (1, 2, 4)),
    ]


def tune(pipe: Simulated, limits: Limits, rng: np.random.Generator) -> list[Trial]:
    """Return all trials, as a loader would make them."""
    tried = [simulate(pipe, Choice("thread", 0, 2), rng, limits)]
    while (choice := propose(tried, limits).choice) is not None:
        assert limits.memory_to_try(choice, best_of(tried).choice) <= limits.memory
        tried.append(simulate(pipe, choice, rng, limits))
    return tried
