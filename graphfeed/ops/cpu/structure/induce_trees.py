"""Kernel that finds the edges between the nodes of each tree."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Ids, Int64Matrix, Int64s, kernel
from graphfeed.ops.cpu.search import find_key

SLOTS_PER_NODE = 8
"""Enough for most lookups, which find nothing, to end at once; small enough for a tree's table to fit the L1 cache."""


class Trees(NamedTuple):
    """Column and id of each node, tree after tree, and the offsets of the trees."""

    columns: Int64s
    nodes: Int64s
    starts: Int64s


@kernel
def induce_trees(
    indptr: Int64s, indices: Ids, trees: Trees, keys: Int64s, places: Int64s, state: Int64s, out: Int64Matrix
) -> bool:
    """Write each edge's source and destination, as indices of nodes, and its position; False if `indptr` is invalid."""
    # The state is the tree and the node to continue with, and the number of edges written. When the output is full, the
    # kernel returns, to be called again with a larger output and the same state.
    starts, is_full = trees.starts, False
    while state[0] < starts.size - 1 and not is_full:
        first, last = starts[state[0]], starts[state[0] + 1]
        # A small tree uses only the beginning of the table, which stays in the L1 cache.
        size = np.int64(4)
        while size < SLOTS_PER_NODE * (last - first):
            size *= 2
        for place in range(first, last):
            slot = find_key(keys, size, trees.nodes[place])
            if keys[slot] == -1:  # A node that is in the tree twice gets its first index.
                keys[slot], places[slot] = trees.nodes[place], place
        while state[1] < last and not is_full:
            node = state[1]
            written = state[2]
            low, high = indptr[trees.columns[node]], indptr[trees.columns[node] + 1]
            if not 0 <= low <= high <= indices.size:
                return False
            for edge in range(low, high):
                slot = find_key(keys, size, np.int64(indices[edge]))
                if keys[slot] != -1:
                    if written == out.shape[1]:
                        is_full = True
                        break
                    out[0, written], out[1, written], out[2, written] = places[slot], node, edge
                    written += 1
            if not is_full:
                state[1], state[2] = node + 1, written
        # The next tree expects an empty table.
        keys[:size] = -1
        if not is_full:
            state[0] += 1
    return True
