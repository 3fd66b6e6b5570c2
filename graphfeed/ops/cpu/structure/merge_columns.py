"""Kernels that put columns together which come in several parts."""

from graphfeed.ops.cpu.jit import Int64s, UInt8s, copy_bytes, kernel


@kernel
def note_counts(places: Int64s, counts: Int64s, size: int, offsets: Int64s) -> bool:
    """Write the size of each column behind the place of its start; False if they are not those of `size` edges."""
    left = size
    for item in range(places.size):
        place, count = places[item], counts[item]
        if count < 0 or count > left or place < 0 or place >= offsets.size - 1:
            return False
        offsets[place + 1] = count
        left -= count
    return left == 0


@kernel
def place_columns(places: Int64s, offsets: Int64s, values: UInt8s, width: int, out: UInt8s) -> bool:
    """Copy values of some bytes, which lie column by column, to their columns; return False if they don't fit."""
    first = 0
    for item in range(places.size):
        start, end = offsets[places[item]] * width, offsets[places[item] + 1] * width
        if end - start > values.size - first:
            return False
        copy_bytes(out, start, values, first, end - start)
        first += end - start
    return first == values.size
