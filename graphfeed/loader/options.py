"""Checks of the options of a loader."""

from concurrent.futures import Executor
from typing import Any

from graphfeed.datapipes import Datapipe, Ranked, Source
from graphfeed.datapipes.pipeline import find
from graphfeed.ops import draw_unkeyed
from graphfeed.ops.arguments import brief, check_count, check_position, check_seconds


def check_options(
    num_workers: int | None,
    worker: str,
    executor: Executor | None,
    prefetch_factor: int,
    timeout: float,
) -> None:
    """Raise if an option is out of range, or if two contradict each other."""
    if num_workers is not None:
        check_count("num_workers", num_workers, 0)
    if worker not in ("thread", "process"):
        raise ValueError(f"worker must be 'thread' or 'process', but is {brief(worker)}")
    if executor is not None and worker != "thread":
        raise ValueError(f"worker={brief(worker)} and an executor were given; leave one of them out")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor must have submit(), as concurrent.futures.Executor, but is {brief(executor)}")
    if executor is not None and num_workers == 0:
        raise ValueError("num_workers=0 runs everything inline, but an executor was given; leave one of them out")
    check_count("prefetch_factor", prefetch_factor, 1)
    check_seconds("timeout", timeout)


def choose_seed(pipe: Datapipe[Any], seed: int | None) -> int:
    """Return the given seed, or that of a source, or a random one on which all ranks agree (`graphfeed.seed`)."""
    for source in find(pipe, Source):
        if seed is None:
            seed = getattr(source, "seed", None)
    if seed is not None:
        return check_position(seed, 0, 0)
    drawn = draw_unkeyed()
    for source in find(pipe, Ranked):
        drawn = source.agree(drawn)  # type: ignore[attr-defined]
    return drawn
