"""Kernels that copy rows by index."""

from graphfeed.ops.cpu.jit import AHEAD, EdgeTypes, Int64s, UInt8s, Words, copy_bytes, kernel, prefetch

ROWS_AHEAD = 8
LINE_BYTES = 64
BYTES_AHEAD = 3 * LINE_BYTES
"""Of each row; the processor itself fetches what follows. Asking for more leaves fewer lines in flight for others."""


@kernel
def gather_words(values: Words, index: Int64s, out: Words) -> None:
    last = index.size - 1
    for row in range(index.size):
        prefetch(values, index[min(row + AHEAD, last)])
        out[row] = values[index[row]]


@kernel
def gather_rows(values: UInt8s, index: Int64s, row_bytes: int, out: UInt8s) -> None:
    last = index.size - 1
    for row in range(index.size):
        coming = index[min(row + ROWS_AHEAD, last)] * row_bytes
        for line in range(0, min(row_bytes, BYTES_AHEAD), LINE_BYTES):
            prefetch(values, coming + line)
        copy_bytes(out, row * row_bytes, values, index[row] * row_bytes, row_bytes)


@kernel
def gather_parts(
    memory: UInt8s, starts: Int64s, sizes: Int64s, owners: EdgeTypes, places: Int64s, row_bytes: int, out: UInt8s
) -> int:
    """Copy rows of `row_bytes` bytes; return how many rows were done before one that lies outside of its part."""
    # `memory` is all from the first part to the last one, and whatever lies between them.
    last = places.size - 1
    for row in range(places.size):
        ahead = min(row + ROWS_AHEAD, last)
        coming = starts[owners[ahead]] + places[ahead] * row_bytes
        for line in range(0, min(row_bytes, BYTES_AHEAD), LINE_BYTES):
            prefetch(memory, coming + line)
        owner, place = owners[row], places[row]
        # The rows of such a part are left out.
        if sizes[owner] < 0:
            continue
        if place < 0 or place >= sizes[owner]:
            return row
        copy_bytes(out, row * row_bytes, memory, starts[owner] + place * row_bytes, row_bytes)
    return places.size


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
