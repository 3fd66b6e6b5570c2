"""Pipelines whose rates are computed: what is slowest of workers, cores, memory, a disk, the lock and the step."""

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


def simulate(pipe: Simulated, choice: Choice, rng: np.random.Generator, limits: Limits) -> Trial:
    """Return what a trial would measure."""
    measured = enough(pipe.spread, choice.window, 0.0)
    noise = pipe.spread / measured**0.5
    workers = max(1, choice.num_workers)
    busy = pipe.compute * max(1.0, workers / CORES, workers / pipe.bandwidth) + pipe.locked
    wall, step = busy + pipe.disk, pipe.step
    if choice.num_workers == 0:
        ms = wall + step
    else:
        step += HANDING_OVER_MS[choice.worker]
        shared = max(pipe.disk / pipe.requests, pipe.locked if choice.worker == "thread" else 0.0)
        wall = max(wall, workers * shared)  # they wait for each other
        # One that takes long holds up the loop, unless others are in store.
        ms = max(step, wall / workers * (1 + pipe.spread / choice.window))
    ms *= rng.lognormal(0.0, noise)
    return Trial(
        choice, 1000 / ms, max(0.0, 1 - step / ms), step, wall, busy / wall, noise, limits.memory_of(choice)
    )  # fmt: skip


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
