"""Kernel that finds the edges inside of trees of nodes."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Ids, Int64Matrix, Int64s, kernel
from graphfeed.ops.cpu.search import find_key

SLOTS_PER_NODE = 8
"""So many that most look-ups, which find nothing, end at once; a tree's table is still in the nearest cache."""


class Trees(NamedTuple):
    """The column and the id of each node, tree after tree; and where each tree begins, and the last one ends."""

    columns: Int64s
    nodes: Int64s
    starts: Int64s


@kernel
def induce_trees(
    indptr: Int64s, indices: Ids, trees: Trees, keys: Int64s, places: Int64s, state: Int64s, out: Int64Matrix
) -> bool:
    """Write each edge's ends as places among the nodes, and its place; False where a column leads out of the graph."""
    # The state is the tree and the node to go on with, and how many edges are written. When the output is full, the
    # kernel returns, to be called again with more room and the same state.
    starts, is_full = trees.starts, False
    while state[0] < starts.size - 1 and not is_full:
        first, last = starts[state[0]], starts[state[0] + 1]
        # A small tree uses the beginning of the table alone, which stays in the nearest cache.
        size = np.int64(4)
        while size < SLOTS_PER_NODE * (last - first):
            size *= 2
        for place in range(first, last):
            slot = find_key(keys, size, trees.nodes[place])
            if keys[slot] == -1:  # A node that is in the tree twice has its first place.
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
        # The next tree finds the table as this one did.
        keys[:size] = -1
        if not is_full:
            state[0] += 1
    return True
