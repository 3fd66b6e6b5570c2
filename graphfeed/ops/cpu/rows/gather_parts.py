"""Kernel that gathers rows of several arrays."""

from graphfeed.ops.cpu.jit import EdgeTypes, Int64s, UInt8s, copy_bytes, kernel, prefetch
from graphfeed.ops.cpu.rows.gather import BYTES_AHEAD, LINE_BYTES, ROWS_AHEAD


@kernel
def gather_parts(
    memory: UInt8s, starts: Int64s, sizes: Int64s, owners: EdgeTypes, places: Int64s, row_bytes: int, out: UInt8s
) -> int:
    """Copy rows of `row_bytes` bytes; return how many rows were done before one that lies outside of its part.

    Args:
        memory: The bytes from the first part to the last one, and whatever lies between them.
        starts: Where each part begins in it.
        sizes: The rows of each part; below 0, its rows are left out.
        owners: The part of each row.
        places: The place of each row in its part.
        row_bytes: Size of a row.
        out: Written: bytes.
    """
    last = places.size - 1
    for row in range(places.size):
        ahead = min(row + ROWS_AHEAD, last)
        coming = starts[owners[ahead]] + places[ahead] * row_bytes
        for line in range(0, min(row_bytes, BYTES_AHEAD), LINE_BYTES):
            prefetch(memory, coming + line)
        owner, place = owners[row], places[row]
        if sizes[owner] < 0:
            continue
        if place < 0 or place >= sizes[owner]:
            return row
        copy_bytes(out, row * row_bytes, memory, starts[owner] + place * row_bytes, row_bytes)
    return places.size
