"""Kernel that finds the edges inside of trees of nodes."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel, without_refcount
from graphfeed.ops.cpu.random import GOLDEN

SLOTS_PER_NODE = 8
"""So many that most look-ups, which find nothing, end at once; a tree's table is still in the nearest cache."""


@device_function
def find_slot(keys, mask, node):
    """Return the slot of a node in the hash table of one tree; its key is -1 if the node is not there."""
    slot = np.int64((np.uint64(node) * GOLDEN) >> np.uint64(32)) & mask
    while keys[slot] != -1 and keys[slot] != node:
        slot = (slot + 1) & mask
    return slot


@device_function
def enter_nodes(keys, places, mask, nodes, first, last):
    """Enter the nodes of a tree; one that is there twice has its first place."""
    for place in range(first, last):
        slot = find_slot(keys, mask, nodes[place])
        if keys[slot] == -1:
            keys[slot] = nodes[place]
            places[slot] = place


@kernel
def induce_trees(graph, columns, nodes, starts, keys, places, state, out):
    """Write source and destination of each edge as places among the nodes, and where the edge is in the graph.

    Args:
        graph: Column starts, and the source of each edge.
        columns: The column of each node.
        nodes: The id of each node, tree after tree.
        starts: Where each tree begins, and where the last one ends.
        keys: A hash table for the nodes of one tree, all -1, as are those after; a power of two, larger than any tree.
        places: The places of the nodes in it.
        state: The first node to look at, and how many edges are written. Written: the node to go on with, which is
            behind the last one at the end, and how many edges there are then.
        out: Written: shape (3, edges). When it is full, the kernel returns, to be called again with more room.
    """
    indptr, indices = graph
    keys, places = without_refcount(keys), without_refcount(places)
    node, at = state[0], state[1]
    tree = np.searchsorted(starts, node, side="right") - 1
    is_full = False
    while tree < starts.size - 1 and not is_full:
        first, last = starts[tree], starts[tree + 1]
        mask = np.int64(4)
        while mask < SLOTS_PER_NODE * (last - first):
            mask *= 2
        mask -= 1
        enter_nodes(keys, places, mask, nodes, first, last)
        while node < last and not is_full:
            low, high = np.int64(indptr[columns[node]]), np.int64(indptr[columns[node] + 1])
            written = at
            for edge in range(low, high):
                slot = find_slot(keys, mask, np.int64(indices[edge]))
                if keys[slot] != -1:
                    if written == out.shape[1]:
                        is_full = True
                        break
                    out[0, written], out[1, written], out[2, written] = places[slot], node, edge
                    written += 1
            if not is_full:
                at = written
                node += 1
        keys[: mask + 1] = -1
        tree += 1
    state[0], state[1] = node, at
