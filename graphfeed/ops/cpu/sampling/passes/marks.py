"""Selection of a column's edges that may have the smallest variates, by the upper halves of these, 32 at a time."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, prefetch
from graphfeed.ops.cpu.random import SWITCH, high_bits

MAX_UINT64 = np.uint64(2**64 - 1)
ONE = np.uint64(1)
HALF_BITS = np.uint64(32)
LANES = 32
"""Number of edges that are compared with a limit at once: they fill four AVX2 registers."""
CACHE_LINE = 64
COLUMNS_AHEAD = 2
LINES_AHEAD = 16
"""Prefetch distance in a column. The processor's own prefetcher stops at the end of each page of memory."""


@device_function
def likely_limit(count, total):
    """Return a limit below which slightly more than `count` fractions are expected."""
    wanted = count + 2 * np.int64(np.sqrt(count)) + 4
    # The density of fractions of uniform variates is `total`, the sum of the units.
    return MAX_UINT64 if wanted >= total else MAX_UINT64 // np.uint64(total) * np.uint64(wanted)


@device_function
def mark_edges(indices, edge, count, key, limit):
    """Return a mask of those of `count` edges whose high bits don't exceed a limit; lowest bit: first edge."""
    marks = np.uint64(0)
    for number in range(count):
        is_likely = high_bits(key, indices[np.uintp(edge + number)]) <= limit
        marks |= np.uint64(is_likely) << np.uint64(number)
    return marks


@device_function
def mark_likely(indices, edge, count, first, second, switch, limit):
    """Like `mark_edges`, with two mixed keys: nodes whose high bits for `SWITCH` are below `switch` use the second."""
    marks = mark_edges(indices, edge, count, first, limit)
    if switch != 0:
        switched = mark_edges(indices, edge, count, SWITCH, switch - ONE)
        marks = (marks & ~switched) | (mark_edges(indices, edge, count, second, limit) & switched)
    return marks


@device_function
def mark_block(indices, block, end, first, second, switch, limit):
    """Mark `LANES` edges, starting at `block`, up to the end of the column."""
    left = end - block
    if block + LANES > indices.size:
        return mark_likely(indices, block, left, first, second, switch, limit)
    # LLVM vectorizes only a constant count, so edges of the next column are marked, too, and masked out.
    marks = mark_likely(indices, block, LANES, first, second, switch, limit)
    return marks if left >= LANES else marks & ((ONE << np.uint64(left)) - ONE)


@device_function
def prefetch_values(values, first, count):
    for number in range(0, count, CACHE_LINE // values.itemsize):
        prefetch(values, first + number)


@device_function
def prefetch_column(indices, start, degree):
    # `prefetch_ahead` continues from there.
    prefetch_values(indices, start, min(degree, LINES_AHEAD * (CACHE_LINE // indices.itemsize)))


@device_function
def prefetch_ahead(indices, block, end):
    ahead = block + LINES_AHEAD * (CACHE_LINE // indices.itemsize)
    if ahead < end:
        prefetch_values(indices, ahead, LANES)
