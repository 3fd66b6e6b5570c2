"""How a disk reads: one place after another, or in order."""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.rows import BLOCK_BYTES, SPAN_BYTES

SINGLE_READS, SPANS = 256, 16
"""How many reads are timed: of a block anywhere, and of a megabyte."""
FEWEST_BYTES = 1 << 28
"""Files below this are read in a second or less in any case."""
USUAL_GAP = 1 << 15
"""For these. A disk that makes 60,000 random reads a second, or gives 1.5 GB of one read after the other, reads 25 kB
over in the time of another read."""


class Spans(NamedTuple):
    """How rows were read."""

    reads: int
    num_bytes: int
    """With what lies between the rows and was read along."""


def count_spans(rows: torch.Tensor, row_bytes: int, gap_bytes: int) -> Spans:
    """Return how some rows are read: ascending ones, of which those at most `gap_bytes` apart are read at once.

    Example:
        >>> count_spans(torch.tensor([3, 5, 9, 10]), row_bytes=100, gap_bytes=100)
        Spans(reads=2, num_bytes=500)
    """
    if not rows.numel():
        return Spans(0, 0)
    ids = rows.numpy()
    last = np.append(np.flatnonzero(np.diff(ids) * row_bytes > gap_bytes + row_bytes), ids.size - 1)
    sizes = (ids[last] - ids[np.append(0, last[:-1] + 1)] + 1) * row_bytes
    # A row that is longer than a span takes one read all the same.
    return Spans(int(np.sum(-(-sizes // max(SPAN_BYTES, row_bytes)))), int(sizes.sum()))


def is_measured(file_bytes: int) -> bool:
    """Tell whether a file is so large that `measure_gap` reads from it."""
    return file_bytes >= FEWEST_BYTES


def measure_gap(read: Callable[[int, int], object], file_bytes: int, pool: Executor) -> int:
    """Return how many bytes of a file may be read over for the price of another read, between a block and a megabyte.

    Times reads of the file: 10 ms on a fast disk, a second on one that makes 300 reads a second.

    Args:
        read: Reads some bytes from an offset.
        file_bytes: The size of the file.
        pool: The threads that read at once.
    """
    if not is_measured(file_bytes):
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
