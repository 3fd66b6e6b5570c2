"""Kernel of looking up edges among pairs of nodes."""

import numpy as np

from graphfeed.ops.cpu.jit import inlined, kernel
from graphfeed.ops.cpu.random import mix


@inlined
def find_slot(table, pairs, source, destination):
    """Return the slot of a pair, or the free one where it belongs."""
    mask = np.uint64(table.size - 1)
    slot = mix(mix(np.uint64(source)) + np.uint64(destination)) & mask
    while table[slot] >= 0:
        pair = table[slot]
        if pairs[pair, 0] == source and pairs[pair, 1] == destination:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def match_pairs(indptr, sources, destinations, pairs, table, out):
    """Mark the edges that are among the pairs.

    Args:
        indptr: Where each column's edges start.
        sources: Source id of each edge.
        destinations: Id of each column.
        pairs: int64: source and destination, a row a pair.
        table: Scratch, all -1, a power of two and at least twice as long as there are pairs.
        out: Written: whether each edge is among the pairs.
    """
    for pair in range(pairs.shape[0]):
        table[find_slot(table, pairs, pairs[pair, 0], pairs[pair, 1])] = pair
    for column in range(indptr.size - 1):
        destination = np.int64(destinations[column])
        for edge in range(indptr[column], indptr[column + 1]):
            out[edge] = table[find_slot(table, pairs, np.int64(sources[edge]), destination)] >= 0
