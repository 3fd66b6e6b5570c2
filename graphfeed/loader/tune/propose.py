"""Decides what to try next: hill climbing, in which a model of queues says in which direction to look first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from graphfeed.loader.tune.choice import Choice, Limits, Trial

MOST_TRIALS = 10
RARELY = 0.05
"""The share of time up to which the loop counts as not waiting."""
SAME = 0.05
"""Rates that differ by a smaller share count as the same; so do those that differ by less than the noise."""
MOST_NOISE = 0.15
"""Noise above this share of a rate is no excuse for a slower choice."""
SLACK = 1.2
"""How many workers there should be for each that would be at work all the time if all took the same time."""
HALF = 0.5
"""The share of its time that a mini-batch needs a core for, up to which more workers than cores may help."""
QUEUES = 0.85
"""Threads wait for each other, as for the interpreter's lock, if each has a core for so much less of its time."""
WAITS_ALONE = 0.05
"""A mini-batch that has a core for less of its time than this waits for something else, such as a disk."""
MORE_THAN_CORES = 4
"""Workers per core, at most, where they mostly wait: for a disk, or for a server."""


@dataclass(frozen=True)
class Proposal:
    """What to do next."""

    choice: Choice | None
    """What to try; None to stop, and to keep the best."""
    reason: str = ""
    """Why to stop."""
    refused: tuple[Choice, ...] = ()
    """What would have been tried if there was more memory."""


def best_of(tried: Sequence[Trial]) -> Trial:
    """Return the cheapest of those that are as fast as the fastest: threads, few workers, a small window."""
    top = max(trial.rate for trial in tried)
    fast = [trial for trial in tried if trial.rate >= top * (1 - max(SAME, min(trial.noise, MOST_NOISE)))]
    return min(
        fast, key=lambda trial: (trial.choice.worker == "process", trial.choice.num_workers, trial.choice.window)
    )


def propose(tried: Sequence[Trial], limits: Limits) -> Proposal:
    """Return what to try after one trial or more; nothing is proposed twice, or above the limit of memory."""
    known = {trial.choice for trial in tried}
    best = best_of(tried)
    refused = []
    for wanted in neighbours(best, tried, limits) if len(tried) < MOST_TRIALS else ():
        if wanted.worker == "process" and limits.no_processes:
            continue
        choice = fit(wanted, best.choice, limits)
        if choice != wanted and wanted not in known:
            refused.append(wanted)
        if choice is not None and choice not in known:
            return Proposal(choice, refused=tuple(refused))
    if best.waits < RARELY:
        reason = "your step is the limit"
    elif len(tried) >= MOST_TRIALS:
        reason = f"it is the best of {MOST_TRIALS}"
    else:
        reason = "nothing next to it is faster"
    return Proposal(None, reason, tuple(refused))


def neighbours(best: Trial, tried: Sequence[Trial], limits: Limits) -> Iterator[Choice]:
    """Yield what may be faster than the best so far, or as fast and cheaper, the most hopeful first."""
    now = best.choice
    # Little's law: so many mini-batches have to be at work at once to keep the step busy.
    needed = ceil(SLACK * best.busy_ms / max(best.step_ms, 1e-3))
    if best.waits < RARELY:
        if 0 < needed < now.num_workers:
            yield replace(now, num_workers=needed)
        return
    alone = min(tried, key=lambda trial: trial.choice.num_workers)
    most = limits.num_cores * (1 if alone.cpu > HALF or now.worker == "process" else MORE_THAN_CORES)
    if now.num_workers == 0:
        yield replace(now, num_workers=max(1, min(needed, 2, most)))
    only_threads = all(trial.choice.worker == "thread" for trial in tried)
    if only_threads and max(WAITS_ALONE, min(trial.cpu for trial in tried)) < QUEUES * alone.cpu:
        yield replace(now, worker="process", num_workers=min(limits.num_cores, max(now.num_workers, needed)))
    if now.num_workers == 0:
        return
    above = [
        trial.choice.num_workers
        for trial in tried
        if trial.choice.worker == now.worker and trial.choice.num_workers > now.num_workers
    ]
    more = (now.num_workers + min(above)) // 2 if above else min(max(needed, now.num_workers + 1), 2 * now.num_workers)
    yield replace(now, num_workers=max(now.num_workers, min(more, most)))
    yield replace(now, prefetch_factor=2 * now.prefetch_factor)
    if now.num_workers > 1:
        yield replace(now, num_workers=now.num_workers - 1)


def fit(wanted: Choice, now: Choice, limits: Limits) -> Choice | None:
    """Return the nearest choice for which there is memory while it is tried; None if there is none."""
    choice = wanted
    while limits.memory_to_try(choice, now) > limits.memory:
        if choice.prefetch_factor > 1:
            choice = replace(choice, prefetch_factor=choice.prefetch_factor - 1)
        elif choice.num_workers > 1:
            choice = replace(choice, num_workers=choice.num_workers - 1)
        else:
            return None
    return choice
