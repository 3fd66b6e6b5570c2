"""Kernel that relabels the nodes of a mini-batch to positions, in order of first appearance."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int32s, Int64s, device_function, kernel, prefetch
from graphfeed.ops.cpu.search import find_key, first_slot


class Parts(NamedTuple):
    """Starts of the seeds per node type and of the neighbours per edge type, and the source type of each edge type."""

    seed_starts: Int64s
    neighbor_starts: Int64s
    sources: Int64s


@kernel
def compact(
    seeds: Ids, neighbors: Ids, parts: Parts, keys: Int64s, node_map: Int32s, rows: Ids, row_starts: Int64s, local: Ids
) -> None:
    """Relabel neighbours to positions in the rows of their node type. Seeds come first, duplicates included."""
    # Each seed or neighbour costs one random read, prefetched. Positions are in a hash table, whose keys are all -1 at
    # first, or in a map of all nodes, which has no keys.
    starts, known = parts.seed_starts, row_starts[1:]
    for kind in range(known.size):
        known[kind] = starts[kind + 1] - starts[kind]
        enter_seeds(seeds[starts[kind] : starts[kind + 1]], keys, node_map, rows[first_row(parts, kind) :])
    for edge_type in range(parts.sources.size):
        kind, first, end = (
            parts.sources[edge_type],
            parts.neighbor_starts[edge_type],
            parts.neighbor_starts[edge_type + 1],
        )
        own = rows[first_row(parts, kind) :]
        known[kind] = assign_positions(neighbors[first:end], keys, node_map, own, known[kind], local[first:end])
    row_starts[0] = 0
    for kind in range(known.size):
        count, begin, to = known[kind], first_row(parts, kind), row_starts[kind]
        row_starts[kind + 1] = to + count
        if keys.size == 0:
            # The next mini-batch expects a map that is all -1.
            reset_map(node_map, rows[begin : begin + count])
        # If fewer nodes were new than expected, the rows of the later types move down.
        for row in range(count if to < begin else 0):
            rows[to + row] = rows[begin + row]


@device_function
def first_row(parts, kind):
    """Return the first row of a node type before rows move down: its first row if all neighbours were new."""
    first = parts.seed_starts[kind]
    for edge_type in range(parts.sources.size):
        if parts.sources[edge_type] < kind:
            first += parts.neighbor_starts[edge_type + 1] - parts.neighbor_starts[edge_type]
    return first


@device_function
def insert_key(keys, node):
    """Return a node's slot: its id in a dense map, which has no keys. In a hash table, also enter the node."""
    if keys.size == 0:
        return np.uintp(node)
    slot = np.uintp(find_key(keys, keys.size, node))
    keys[slot] = node
    return slot


@device_function
def enter_seeds(seeds, keys, node_map, rows):
    # Backwards, so that a duplicate seed gets its first position.
    for row in range(seeds.size - 1, -1, -1):
        if keys.size == 0:
            prefetch(node_map, seeds[np.uintp(max(row - AHEAD, 0))])
        node = seeds[np.uintp(row)]
        node_map[insert_key(keys, node)] = row
        rows[np.uintp(row)] = node


@device_function
def assign_positions(neighbors, keys, node_map, rows, known, local):
    """Write the positions of neighbours, and append new nodes to the rows; return the new number of rows."""
    last = neighbors.size - 1
    for edge in range(neighbors.size):
        coming = np.int64(neighbors[np.uintp(min(edge + AHEAD, last))])
        if keys.size > 0:
            coming = first_slot(keys.size, coming)
            prefetch(keys, coming)
        prefetch(node_map, coming)
        node = neighbors[np.uintp(edge)]
        slot = insert_key(keys, node)
        place = node_map[slot]
        if place < 0:
            place = np.int32(known)
            node_map[slot] = place
            rows[np.uintp(known)] = node
            known += 1
        local[np.uintp(edge)] = place
    return known


@device_function
def reset_map(node_map, rows):
    last = rows.size - 1
    for row in range(rows.size):
        prefetch(node_map, rows[np.uintp(min(row + AHEAD, last))])
        node_map[np.uintp(rows[np.uintp(row)])] = -1
