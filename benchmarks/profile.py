"""Cost of a profile: epochs with and without one, in turn."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import graphfeed as gf
from benchmarks.loader import epoch, make_pipe
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times, in_turn

MOST = 1.02
"""Maximum time of an epoch with a profile, relative to one without."""
ROUNDS = 15


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of epochs with and without a profile, inline and with two threads."""
    pipe, rows = make_pipe(scale), []
    for num_workers in (0, 2):
        with ExitStack() as stack:
            loaders = [
                stack.enter_context(gf.DataLoader(pipe, num_workers=num_workers, seed=0, profile=profile))
                for profile in (False, True)
            ]
            cases = {name: epoch(loader) for name, loader in zip(("without", "with"), loaders, strict=True)}
            times = in_turn(cases, min(scale.repeats, ROUNDS), time.process_time)
        for name, single in times.items():
            ratio = single.over(times["without"])
            goal = Goal(ratio, MOST) if name == "with" else None
            each = Times([1e3 * seconds / scale.epoch_batches for seconds in single.values])
            rows.append(Row(f"{num_workers} workers, {name} a profile", "ms", each, ratio, goal=goal))
    yield render("profile: CPU time of a mini-batch; ratio to the same without a profile", rows)
