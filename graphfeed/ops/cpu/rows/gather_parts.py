"""Kernel that gathers rows of several arrays."""

from graphfeed.ops.cpu.jit import EdgeTypes, Int64s, UInt8s, copy_bytes, kernel, prefetch
from graphfeed.ops.cpu.rows.gather import BYTES_AHEAD, LINE_BYTES, ROWS_AHEAD


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
