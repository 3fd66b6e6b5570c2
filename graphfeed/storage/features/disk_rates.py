"""How a disk reads: one place after another, or in order."""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed.ops.rows import BLOCK_BYTES, SPAN_BYTES

SINGLE_READS, SPANS = 1024, 32
"""How many reads are timed: of a row anywhere, and of a megabyte."""
READS_AT_ONCE = 16
"""In how many parts a thread each takes the former, so that reads take the time rather than threads."""
LONGEST_ROW = 1 << 16
"""Rows above this take about as long to read as so much more does."""
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
    """Return how ascending rows are read if those at most `gap_bytes` apart are read at once."""
    if not rows.numel():
        return Spans(0, 0)
    ids = rows.numpy()
    # The last row of each stretch without a larger gap.
    last = np.append(np.flatnonzero(np.diff(ids) * row_bytes > gap_bytes + row_bytes), ids.size - 1)
    sizes = (ids[last] - ids[np.append(0, last[:-1] + 1)] + 1) * row_bytes
    # A row that is longer than a span takes one read all the same.
    return Spans(int(np.sum(-(-sizes // max(SPAN_BYTES, row_bytes)))), int(sizes.sum()))


def is_measured(num_rows: int, row_bytes: int) -> bool:
    """Tell whether a file is so large, and its rows are so short, that `measure_gap` reads from it."""
    return num_rows * row_bytes >= FEWEST_BYTES and row_bytes <= LONGEST_ROW


def measure_gap(read: Callable[[torch.Tensor], object], num_rows: int, row_bytes: int, pool: Executor) -> int:
    """Return how many bytes may be read over for the price of another read: a block to a megabyte."""
    if not is_measured(num_rows, row_bytes):
        return USUAL_GAP
    # This takes 20 ms on a fast disk, and some seconds on one that makes 300 reads a second. The places are
    # random, and the same each time.
    chance, of_span = np.random.default_rng(0), -(-SPAN_BYTES // row_bytes)
    rows = np.sort(chance.integers(0, num_rows, SINGLE_READS))
    firsts = chance.integers(0, num_rows - of_span, SPANS)
    single = time_reads(read, np.array_split(rows, READS_AT_ONCE), pool) / SINGLE_READS
    span = time_reads(read, [np.arange(first, first + of_span) for first in firsts], pool) / SPANS
    # So many bytes of a span are read in the time of a single read.
    return int(min(max(single / span, BLOCK_BYTES / SPAN_BYTES), 1) * SPAN_BYTES)


def time_reads(read: Callable[[torch.Tensor], object], parts: list["np.ndarray[Any, Any]"], pool: Executor) -> float:
    ids, seconds = [torch.from_numpy(part) for part in parts], []
    # The faster of two attempts, as something else may use the disk or the cores.
    for _ in range(2):
        begin = time.perf_counter()
        list(pool.map(read, ids))
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
