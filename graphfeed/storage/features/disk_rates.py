"""How a disk reads: one place after another, or in order."""

import time
from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np

from graphfeed.ops.rows import BLOCK_BYTES, SPAN_BYTES

SINGLE_READS, SPANS = 256, 16
"""How many reads are timed: of a block anywhere, and of a megabyte."""
FEWEST_BYTES = 1 << 28
"""Files below this are read in a second or less in any case."""
USUAL_GAP = 1 << 15
"""For these. A disk that makes 60,000 random reads a second, or gives 1.5 GB of one read after the other, reads 25 kB
over in the time of another read."""


def measure_gap(read: Callable[[int, int], object], file_bytes: int, pool: Executor) -> int:
    """Return how many bytes of a file may be read over for the price of another read, between a block and a megabyte.

    Times reads of the file: 10 ms on a fast disk, a second on one that makes 300 reads a second.

    Args:
        read: Reads some bytes from an offset.
        file_bytes: The size of the file.
        pool: The threads that read at once.
    """
    if file_bytes < FEWEST_BYTES:
        return USUAL_GAP
    spots = np.random.default_rng(0).integers(0, (file_bytes - SPAN_BYTES) // BLOCK_BYTES, SINGLE_READS + SPANS)
    spots = (spots * BLOCK_BYTES).tolist()
    single = time_reads(read, spots[:SINGLE_READS], BLOCK_BYTES, pool) / SINGLE_READS
    span = time_reads(read, spots[SINGLE_READS:], SPAN_BYTES, pool) / SPANS
    return int(min(max(single / span, BLOCK_BYTES / SPAN_BYTES), 1) * SPAN_BYTES)


def time_reads(read: Callable[[int, int], object], spots: list[int], size: int, pool: Executor) -> float:
    """Return the seconds that reads take, several at once."""
    begin = time.perf_counter()
    list(pool.map(read, spots, [size] * len(spots)))
    return time.perf_counter() - begin
