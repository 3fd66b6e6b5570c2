"""Speed of two cores of this machine relative to one: a bound for loaders, whose kernels wait for memory."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np

from benchmarks.limits import Copy, RandomReads
from benchmarks.scale import Scale
from benchmarks.table import Row, render
from benchmarks.timing import Case, Times, in_turn, one_core
from graphfeed.ops.cpu.jit import UInt64, kernel

COPIED_BYTES = 1 << 26
READS = 1 << 21
STEPS = 1 << 25

Work = Callable[[], object]


@kernel
def mix(seed: UInt64, steps: int) -> int:
    """Do arithmetic without memory."""
    x = seed
    for _ in range(steps):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return int(x)


def report(scale: Scale) -> Iterator[str]:
    """Yield the table."""
    yield render("cores: what two do in the time in which one does one", two_cores(scale))


def two_cores(scale: Scale) -> list[Row]:
    """Return the speed of two threads relative to one, for arithmetic, random reads and memcpy."""
    values = np.ones(scale.products.num_edges, np.int64)
    works: dict[str, list[Work]] = {
        "arithmetic": [partial(mix, np.uint64(seed), STEPS) for seed in range(2)],
        "random reads": [partial(RandomReads(values, seed).run, READS) for seed in range(2)],
        "memcpy": [Copy(COPIED_BYTES).run for _ in range(2)],
    }
    rows = []
    with ThreadPoolExecutor(2) as pool:
        for name, pair in works.items():
            cases: dict[str, Case] = {"one": alone(pair[0]), "two": together(pair, pool)}
            times = in_turn(cases, scale.repeats, time.perf_counter)
            share = Times([2 * one / two for one, two in zip(times["one"].values, times["two"].values, strict=True)])
            rows.append(Row(name, "x", share))
    return rows


def alone(work: Work) -> Case:
    """Return a case that works on one core."""

    def run(_: int) -> None:
        with one_core():
            work()

    return run


def together(pair: list[Work], pool: ThreadPoolExecutor) -> Case:
    """Return a case that runs both works concurrently."""

    def run(_: int) -> None:
        done = wait([pool.submit(work) for work in pair]).done
        for future in done:
            future.result()

    return run
