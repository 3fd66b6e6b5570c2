"""Kernels that copy rows by index."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int64s, Numbers, UInt8s, copy_bytes, device_function, kernel, prefetch

ROWS_AHEAD = 8
LINE_BYTES = 64
BYTES_AHEAD = 3 * LINE_BYTES
"""Bytes prefetched per row. The processor itself fetches the rest; prefetching more would delay other rows."""
WRITTEN_AHEAD = 16 * LINE_BYTES
"""Bytes prefetched per row that is written, if it has two lines or more. Without this, rows of 400 to 1,024 bytes take
1.25 to 1.45 times as long. For shorter rows, it takes more time than it saves."""


@kernel
def gather_words(values: Numbers, index: Ids, out: Numbers) -> int:
    """Copy the numbers at an index, and return 0; or 1 if one is out of range, in whose place nothing is written."""
    last, outside = index.size - 1, 0
    for row in range(index.size):
        prefetch(values, index[np.uintp(min(row + AHEAD, last))])
        place = np.uintp(np.int64(index[np.uintp(row)]))
        if place < np.uintp(values.size):
            out[np.uintp(row)] = values[place]
        else:
            outside = 1
    return outside


@kernel
def gather_rows(values: UInt8s, index: Ids, row_bytes: int, out: UInt8s) -> int:
    """Like `gather_words`, for rows of bytes."""
    last, count, outside = index.size - 1, np.uintp(values.size // row_bytes), 0
    written = WRITTEN_AHEAD if row_bytes >= 2 * LINE_BYTES else 0
    for row in range(index.size):
        coming = min(row + ROWS_AHEAD, last)
        prefetch_row(values, np.int64(index[np.uintp(coming)]), row_bytes, BYTES_AHEAD)
        prefetch_row(out, coming, row_bytes, written)
        place = np.int64(index[np.uintp(row)])
        if np.uintp(place) < count:
            copy_bytes(out, row * row_bytes, values, place * row_bytes, row_bytes)
        else:
            outside = 1
    return outside


@kernel
def copy_rows(
    source: UInt8s,
    from_rows: Int64s,
    row_bytes: int,
    out: UInt8s,
    to_rows: Int64s,
    distinct: bool,  # noqa: ARG001
) -> None:
    """Copy rows of `row_bytes` bytes between flat byte arrays, in order. Rows with a negative target are skipped."""
    # Rows are copied one after the other, so it doesn't matter whether targets are `distinct`.
    last = from_rows.size - 1
    written = WRITTEN_AHEAD if row_bytes >= 2 * LINE_BYTES else 0
    for row in range(from_rows.size):
        coming = np.uintp(min(row + ROWS_AHEAD, last))
        prefetch_row(source, from_rows[coming], row_bytes, BYTES_AHEAD)
        prefetch_row(out, to_rows[coming], row_bytes, written)
        target = to_rows[np.uintp(row)]
        if target >= 0:
            copy_bytes(out, target * row_bytes, source, from_rows[np.uintp(row)] * row_bytes, row_bytes)


@device_function
def prefetch_row(rows, row, row_bytes, most):
    for line in range(0, min(row_bytes, most), LINE_BYTES):
        prefetch(rows, row * row_bytes + line)
