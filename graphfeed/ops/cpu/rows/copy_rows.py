"""Kernel that copies rows from index to index."""

import numpy as np

from graphfeed.ops.cpu.jit import copy_bytes, kernel, prefetch
from graphfeed.ops.cpu.rows.gather import LINE_BYTES, ROWS_AHEAD


@kernel
def copy_rows(source, from_rows, row_bytes, out, to_rows, distinct):  # noqa: ARG001
    """Copy rows of `row_bytes` bytes between flat byte arrays, in order; a target below 0 leaves a row out.

    `distinct` has no use: rows are copied one after the other.
    """
    last = from_rows.size - 1
    for row in range(from_rows.size):
        coming = from_rows[min(row + ROWS_AHEAD, last)] * row_bytes
        for line in range(0, row_bytes, LINE_BYTES):
            prefetch(source, np.intp(coming + line))
        prefetch(source, np.intp(coming + row_bytes - 1))
        if to_rows[row] >= 0:
            copy_bytes(
                out, np.intp(to_rows[row] * row_bytes), source, np.intp(from_rows[row] * row_bytes), np.int64(row_bytes)
            )
