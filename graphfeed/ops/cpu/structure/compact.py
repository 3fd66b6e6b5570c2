"""Kernel that relabels a mini-batch: node ids become positions, in order of first appearance."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, kernel, prefetch
from graphfeed.ops.cpu.random import mix


@device_function
def find_slot(keys, node):
    """Return a node's slot: its own id in a dense map, which has no keys; else a slot found by open addressing."""
    if keys.size == 0:
        return np.int64(node)
    mask = keys.size - 1
    slot = np.int64(mix(np.uint64(node))) & mask
    while keys[slot] != -1 and keys[slot] != node:
        slot = (slot + 1) & mask
    keys[slot] = node
    return slot


@kernel
def compact(
    seeds,
    seed_starts,
    neighbors,
    neighbor_starts,
    sources,
    keys,
    node_map,
    found,
    found_types,
    rows,
    row_starts,
    local,
):
    """Relabel neighbours to positions in the row ids of their node type; seeds come first, as they are.

    Args:
        seeds: Node ids, one node type after the other; `seed_starts` says where each begins.
        seed_starts: One longer than there are node types.
        neighbors: Node ids, one edge type after the other; `neighbor_starts` says where each begins.
        neighbor_starts: One longer than there are edge types.
        sources: Node type of each edge type's neighbours.
        keys: The hash table's keys, all -1; empty if `node_map` has an entry for each node.
        node_map: All -1. A dense map is all -1 again afterwards.
        found: Scratch as long as `neighbors`: new nodes in order of appearance.
        found_types: Scratch as long as `neighbors`.
        rows: Written: row ids, one node type after the other.
        row_starts: Written: where each node type begins.
        local: Written: positions of the neighbours.
    """
    kinds = seed_starts.size - 1
    known = np.zeros(kinds, dtype=np.int64)
    for kind in range(kinds):
        known[kind] = seed_starts[kind + 1] - seed_starts[kind]
        for row in range(known[kind]):
            slot = find_slot(keys, seeds[seed_starts[kind] + row])
            if node_map[slot] < 0:
                node_map[slot] = row
    new = 0
    last = neighbors.size - 1
    for edge_type in range(sources.size):
        kind = sources[edge_type]
        for edge in range(neighbor_starts[edge_type], neighbor_starts[edge_type + 1]):
            if keys.size == 0:
                prefetch(node_map, np.intp(neighbors[min(edge + AHEAD, last)]))
            slot = find_slot(keys, neighbors[edge])
            if node_map[slot] < 0:
                node_map[slot] = known[kind]
                known[kind] += 1
                found[new] = neighbors[edge]
                found_types[new] = kind
                new += 1
            local[edge] = node_map[slot]
    row_starts[0] = 0
    for kind in range(kinds):
        row_starts[kind + 1] = row_starts[kind] + known[kind]
        count = seed_starts[kind + 1] - seed_starts[kind]
        rows[row_starts[kind] : row_starts[kind] + count] = seeds[seed_starts[kind] : seed_starts[kind + 1]]
    for place in range(new):
        kind = found_types[place]
        rows[row_starts[kind] + node_map[find_slot(keys, found[place])]] = found[place]
    if keys.size == 0:
        for place in range(new):
            node_map[found[place]] = -1
        for place in range(seeds.size):
            node_map[seeds[place]] = -1
