"""Kernel that finds the edges that match pairs of nodes."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int64Matrix, Int64s, device_function, kernel, prefetch
from graphfeed.ops.cpu.random import mix
from graphfeed.ops.cpu.search import find_entry, first_slot


@kernel
def match_pairs(
    indptr: Int64s, indices: Ids, rows: Ids, destinations: Ids, pairs: Int64Matrix, ends: Int64s, table: Int64s,
    out: Int64s,
) -> int:  # fmt: skip
    """Write the ascending positions of the edges that are among the pairs, and return their number."""
    # Both tables are all -1 at first, and have at least twice as many slots as there are pairs.
    for pair in range(pairs.shape[0]):
        ends[find_entry(ends, pairs[:, 1], pairs[pair, 1])] = pair
        table[find_pair(table, pairs, pairs[pair, 0], pairs[pair, 1])] = pair
    found = 0
    last = indices.size - 1
    for column in range(destinations.size):
        destination = np.int64(destinations[column])
        # Most columns are not the destination of a pair, so their edges need not be read.
        if ends[find_entry(ends, pairs[:, 1], destination)] < 0:
            continue
        for edge in range(indptr[column], indptr[column + 1]):
            source = np.int64(indices[edge])
            if rows.size > 0:
                # `indices` are positions in the rows of a mini-batch: their ids are read at random.
                prefetch(rows, indices[min(edge + AHEAD, last)])
                source = np.int64(rows[source])
            if table[find_pair(table, pairs, source, destination)] >= 0:
                out[found] = edge
                found += 1
    return found


@device_function
def find_pair(table, pairs, source, destination):
    """Return the slot of a pair in the table, or the free slot where it belongs."""
    slot = first_slot(table.size, mix(np.uint64(source)) + np.uint64(destination))
    while table[slot] >= 0 and (pairs[table[slot], 0] != source or pairs[table[slot], 1] != destination):
        slot = (slot + 1) & (table.size - 1)
    return slot
