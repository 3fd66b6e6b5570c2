"""Kernel that reads rows of a file: the system calls of many rows without the interpreter between them."""

import numpy as np

from graphfeed.ops.cpu.jit import copy_bytes, kernel, read_at

SEGMENTS = 256
"""How many places the rows of one read go to at most; systems allow 1024."""
READ_BYTES = 1 << 22
"""What one read takes at most, unless it is a single row."""


@kernel
def read_rows(descriptor, start, row_bytes, ids, places, begin, out):
    """Read rows by ascending id to their places; return `ids.size`, or the first position that a read fell short of.

    Args:
        descriptor: Of an open file.
        start: Where row 0 begins.
        row_bytes: Size of a row.
        ids: Ascending, also with repetitions.
        places: Row of `out` for each.
        begin: The position to begin at.
        out: Written: bytes.
    """
    segments = np.empty(2 * SEGMENTS, np.int64)
    address = np.int64(out.ctypes.data)
    first = begin
    while first < ids.size:
        count = 0
        size = 0
        end = first
        while end < ids.size:
            again = end > first and ids[end] == ids[end - 1]
            if not again:
                target = address + places[end] * row_bytes
                if end > first and (ids[end] != ids[end - 1] + 1 or size + row_bytes > READ_BYTES):
                    break
                if count > 0 and segments[2 * count - 2] + segments[2 * count - 1] == target:
                    segments[2 * count - 1] += row_bytes
                elif count < SEGMENTS:
                    segments[2 * count] = target
                    segments[2 * count + 1] = row_bytes
                    count += 1
                else:
                    break
                size += row_bytes
            end += 1
        if read_at(np.int32(descriptor), segments, np.int32(count), np.int64(start + ids[first] * row_bytes)) != size:
            return first
        for row in range(first + 1, end):
            if ids[row] == ids[row - 1]:
                copy_bytes(
                    out,
                    np.intp(places[row] * row_bytes),
                    out,
                    np.intp(places[row - 1] * row_bytes),
                    np.int64(row_bytes),
                )
        first = end
    return first
