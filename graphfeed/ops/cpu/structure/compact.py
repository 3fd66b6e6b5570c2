"""Kernel that relabels a mini-batch: node ids become positions, in order of first appearance."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, always_inline, device_function, kernel, prefetch
from graphfeed.ops.cpu.random import mix


@always_inline
def first_slot(keys, node):
    """Return where the search for a node begins: at its own id in a dense map, which has no keys; else at its hash."""
    return np.int64(node) if keys.size == 0 else np.int64(mix(np.uint64(node))) & (keys.size - 1)


@always_inline
def find_slot(keys, node):
    """Return a node's slot; in a hash table it is found by open addressing."""
    slot = first_slot(keys, node)
    if keys.size > 0:
        while keys[np.uintp(slot)] != -1 and keys[np.uintp(slot)] != node:
            slot = (slot + 1) & (keys.size - 1)
        keys[np.uintp(slot)] = node
    return np.uintp(slot)


@device_function
def enter_seeds(seeds, keys, node_map, rows):
    """Write the seeds of a node type as they are, and enter their positions in the map."""
    # Backwards, so that a seed that occurs twice keeps its first position.
    for row in range(seeds.size - 1, -1, -1):
        node_map[find_slot(keys, seeds[row])] = row
        rows[row] = seeds[row]


@device_function
def relabel(neighbors, keys, node_map, rows, known, local):
    """Write the positions of neighbours, and append new nodes to the rows of their type; return the new length."""
    last = neighbors.size - 1
    for edge in range(neighbors.size):
        coming = np.intp(first_slot(keys, neighbors[np.uintp(min(edge + AHEAD, last))]))
        if keys.size > 0:
            prefetch(keys, coming)
        prefetch(node_map, coming)
        node = neighbors[np.uintp(edge)]
        slot = find_slot(keys, node)
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
    """Set a dense map back to -1 everywhere."""
    last = rows.size - 1
    for row in range(rows.size):
        prefetch(node_map, np.intp(rows[min(row + AHEAD, last)]))
        node_map[np.uintp(rows[np.uintp(row)])] = -1


@kernel
def compact(seeds, seed_starts, neighbors, neighbor_starts, sources, keys, node_map, rows, row_starts, local):
    """Relabel neighbours to positions in the row ids of their node type; seeds come first, as they are.

    Args:
        seeds: Node ids, one node type after the other; `seed_starts` says where each begins.
        seed_starts: One longer than there are node types.
        neighbors: Node ids, one edge type after the other; `neighbor_starts` says where each begins.
        neighbor_starts: One longer than there are edge types.
        sources: Node type of each edge type's neighbours.
        keys: The hash table's keys, all -1; empty if `node_map` has an entry for each node.
        node_map: All -1. A dense map is all -1 again afterwards.
        rows: Written: row ids, one node type after the other; as long as seeds and neighbours together.
        row_starts: Written: where each node type begins.
        local: Written: positions of the neighbours.
    """
    kinds = seed_starts.size - 1
    known = seed_starts[1:] - seed_starts[:-1]
    # Until the number of rows of each type is known, they begin where they would if all neighbours were new.
    begins = seed_starts.copy()
    for edge_type in range(sources.size):
        begins[sources[edge_type] + 1 :] += neighbor_starts[edge_type + 1] - neighbor_starts[edge_type]
    for kind in range(kinds):
        own = rows[begins[kind] : begins[kind + 1]]
        enter_seeds(seeds[seed_starts[kind] : seed_starts[kind + 1]], keys, node_map, own)
    for edge_type in range(sources.size):
        kind, part = sources[edge_type], slice(neighbor_starts[edge_type], neighbor_starts[edge_type + 1])
        own = rows[begins[kind] : begins[kind + 1]]
        known[kind] = relabel(neighbors[part], keys, node_map, own, known[kind], local[part])
    row_starts[0] = 0
    for kind in range(kinds):
        row_starts[kind + 1] = row_starts[kind] + known[kind]
        if keys.size == 0:
            reset_map(node_map, rows[begins[kind] : begins[kind] + known[kind]])
        if row_starts[kind] < begins[kind]:
            for row in range(known[kind]):
                rows[row_starts[kind] + row] = rows[begins[kind] + row]
