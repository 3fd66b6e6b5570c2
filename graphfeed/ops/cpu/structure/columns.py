"""Kernels that join, merge and read compressed sparse columns."""

import numpy as np

from graphfeed.ops.cpu.jit import (
    AHEAD,
    Ids,
    Int32s,
    Int64Matrix,
    Int64s,
    SentIds,
    UInt8s,
    Words,
    copy_bytes,
    kernel,
    prefetch,
)


@kernel
def join_columns(indptr: Int64s, indices: Ids, ids: Int64s, marks: UInt8s, out: Int64Matrix, place: int) -> int:
    """Write row, column and id of each edge, starting at `place`; return the end, or -1 if the input is invalid."""
    if indptr.size == 0 or indptr[0] != 0 or indptr[indptr.size - 1] != indices.size:
        return -1
    # Edges whose mark is 0 are left out. The last edges may have no marks.
    kept = indices.size
    for edge in range(marks.size):
        kept -= marks[edge] == 0
    if place + kept > out.shape[1]:
        return -1
    for column in range(indptr.size - 1):
        if indptr[column + 1] < indptr[column] or indptr[column + 1] > indices.size:
            return -1
        for edge in range(indptr[column], indptr[column + 1]):
            if edge < marks.size and marks[edge] == 0:
                place -= 1  # all later edges move up
                continue
            out[0, place + edge] = indices[edge]
            out[1, place + edge] = column
            out[2, place + edge] = ids[edge]
    return place + indices.size


@kernel
def note_counts(places: Int64s, counts: Int64s, size: int, offsets: Int64s) -> bool:
    """Write the size of each column to `offsets[place + 1]`. Returns False if the sizes don't add up to `size`."""
    left = size
    for number in range(places.size):
        item = np.uintp(number)
        place, count = places[item], counts[item]
        if count < 0 or count > left or place < 0 or place >= offsets.size - 1:
            return False
        offsets[np.uintp(place + 1)] = count
        left -= count
    return left == 0


@kernel
def place_pairs(places: Int64s, offsets: Int64s, values: SentIds, others: SentIds, out: Ids, other_out: Words) -> bool:
    """Copy two values per edge, stored column by column, to their columns; return False if their number is wrong."""
    first = 0
    for item in range(places.size):
        place = places[np.uintp(item)]
        start, end = offsets[np.uintp(place)], offsets[np.uintp(place + 1)]
        if end - start > values.size - first:
            return False
        # Columns are short: one loop for both arrays.
        for number in range(end - start):
            edge, given = np.uintp(start + number), np.uintp(first + number)
            out[edge] = values[given]
            other_out[edge] = others[given]
        first += end - start
    return first == values.size


@kernel
def place_columns(places: Int64s, offsets: Int64s, values: UInt8s, width: int, out: UInt8s) -> bool:
    """Copy values of `width` bytes, stored column by column, to their columns; return False if the number is wrong."""
    first = 0
    for item in range(places.size):
        start, end = offsets[places[item]] * width, offsets[places[item] + 1] * width
        if end - start > values.size - first:
            return False
        copy_bytes(out, start, values, first, end - start)
        first += end - start
    return first == values.size


@kernel
def read_columns(
    nodes: Ids,
    starts: Int64s,
    first_ids: Int64s,
    indices: Ids,
    offsets: Int64s,
    positions: Int64s,
    counts: Int32s,
    sources: SentIds,
    ids: Words,
) -> None:
    last, last_edge = nodes.size - 1, positions.size - 1
    for column in range(nodes.size):
        coming, node = nodes[np.uintp(min(column + AHEAD, last))], np.uintp(nodes[np.uintp(column)])
        prefetch(starts, coming)
        prefetch(first_ids, coming)
        shift = first_ids[node] - starts[node]
        low, high = offsets[np.uintp(column)], offsets[np.uintp(column + 1)]
        counts[np.uintp(column)] = high - low
        for edge in range(low, high):
            prefetch(indices, positions[np.uintp(min(edge + AHEAD, last_edge))])
            position = positions[np.uintp(edge)]
            sources[np.uintp(edge)] = indices[np.uintp(position)]
            ids[np.uintp(edge)] = position + shift
