"""Kernel that copies rows from index to index."""

from graphfeed.ops.cpu.jit import Int64s, UInt8s, copy_bytes, kernel, prefetch
from graphfeed.ops.cpu.rows.gather import LINE_BYTES, ROWS_AHEAD


@kernel
def copy_rows(
    source: UInt8s,
    from_rows: Int64s,
    row_bytes: int,
    out: UInt8s,
    to_rows: Int64s,
    distinct: bool,  # noqa: ARG001
) -> None:
    """Copy rows of `row_bytes` bytes between flat byte arrays, in order; a target below 0 leaves a row out."""
    # One after the other, so it doesn't matter whether targets are `distinct`.
    last = from_rows.size - 1
    for row in range(from_rows.size):
        coming = from_rows[min(row + ROWS_AHEAD, last)] * row_bytes
        for line in range(0, row_bytes, LINE_BYTES):
            prefetch(source, coming + line)
        prefetch(source, coming + row_bytes - 1)
        if to_rows[row] >= 0:
            copy_bytes(out, to_rows[row] * row_bytes, source, from_rows[row] * row_bytes, row_bytes)
