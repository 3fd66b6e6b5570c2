"""Kernels that copy rows by index."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, copy_bytes, kernel, prefetch

ROWS_AHEAD = 8
LINE_BYTES = 64
BYTES_AHEAD = 3 * LINE_BYTES
"""Of each row; the processor itself fetches what follows. Asking for more leaves fewer lines in flight for others."""


@kernel
def gather_words(values, index, out):
    """Copy rows of one machine word."""
    last = index.size - 1
    for row in range(index.size):
        prefetch(values, np.intp(index[min(row + AHEAD, last)]))
        out[row] = values[index[row]]


@kernel
def gather_rows(values, index, row_bytes, out):
    """Copy rows of `row_bytes` bytes between flat byte arrays; offsets in int64."""
    last = index.size - 1
    for row in range(index.size):
        coming = np.int64(index[min(row + ROWS_AHEAD, last)]) * row_bytes
        for line in range(0, min(row_bytes, BYTES_AHEAD), LINE_BYTES):
            prefetch(values, np.intp(coming + line))
        copy_bytes(
            out,
            np.intp(row * row_bytes),
            values,
            np.intp(np.int64(index[row]) * row_bytes),
            row_bytes,
        )
