"""Kernels that put columns together which come in several parts."""

from graphfeed.ops.cpu.jit import kernel


@kernel
def note_counts(places, counts, size, offsets):
    """Write the size of each column behind the place of its start; return False if they are not those of `size` edges.

    Args:
        places: The place of each column.
        counts: The number of edges of each column.
        size: The number of edges of all of them.
        offsets: Written; one longer than there are places.
    """
    left = size
    for item in range(places.size):
        place, count = places[item], counts[item]
        if count < 0 or count > left or place < 0 or place >= offsets.size - 1:
            return False
        offsets[place + 1] = count
        left -= count
    return left == 0


@kernel
def place_columns(places, offsets, values, out):
    """Copy values, which lie column by column, to where the columns belong; return False if they don't fit."""
    first = 0
    for item in range(places.size):
        start, end = offsets[places[item]], offsets[places[item] + 1]
        if end - start > values.size - first:
            return False
        for edge in range(start, end):
            out[edge] = values[first + edge - start]
        first += end - start
    return first == values.size
