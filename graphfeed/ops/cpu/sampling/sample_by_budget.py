"""Kernel that samples nodes of each type by how well they are joined to those that were sampled before.

Known nodes are kept in the order in which they were met. A hash table leads from an id to a place in that order.
"""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.random import draw_below, mix, node_state, typed_state
from graphfeed.ops.cpu.sampling.pick import first_above, pick_few, run_end

MOST_NEIGHBORS = 50
"""How many edges of one type to one node count; of more, so many are picked at random."""
UNITS = np.int64(1 << 32)
"""The score that a node shares among its neighbours."""
SAMPLED = np.int64(-1)
"""Stands for the score of a node that was sampled."""
WIDEST = 62
"""How many bits the sum of all weights may have."""


@device_function
def find_slot(keys, node):
    """Return the slot of a node in the hash table; its key is -1 if the node is not there."""
    slot = np.int64(mix(np.uint64(node))) & (keys.size - 1)
    while keys[slot] != -1 and keys[slot] != node:
        slot = (slot + 1) & (keys.size - 1)
    return slot


@device_function
def make_room(keys, places, nodes, scores, known, needed):
    """Return the table and the known nodes with room for `needed` of them: as they are, or twice as large."""
    if needed <= nodes.size:
        return keys, places, nodes, scores
    size = 2 * needed
    slots = np.int64(64)
    while slots < 2 * size:
        slots *= 2
    more_nodes, more_scores = np.empty(size, np.int64), np.empty(size, np.int64)
    more_keys, more_places = np.full(slots, -1, np.int64), np.empty(slots, np.int64)
    for place in range(known):
        more_nodes[place], more_scores[place] = nodes[place], scores[place]
        slot = find_slot(more_keys, nodes[place])
        more_keys[slot], more_places[slot] = nodes[place], place
    return more_keys, more_places, more_nodes, more_scores


@device_function
def enter(keys, places, nodes, scores, known, node):
    """Return the place of a node, and how many are known then; a new one has the score 0."""
    slot = find_slot(keys, node)
    if keys[slot] == -1:
        keys[slot], places[slot] = node, known
        nodes[known], scores[known] = node, 0
        known += 1
    return places[slot], known


@device_function
def add_scores(indptr, indices, types, node, key, picks, keys, places, nodes, scores, known):
    """Share one point for each edge type among the neighbours of a node that are not sampled yet."""
    low, end = np.int64(indptr[node]), np.int64(indptr[node + 1])
    while low < end:
        high = np.int64(run_end(types, low, end))
        count = min(high - low, np.int64(MOST_NEIGHBORS))
        keys, places, nodes, scores = make_room(keys, places, nodes, scores, known, known + count)
        is_cut = high - low > count
        if is_cut:
            pick_few(low, high - low, count, typed_state(node_state(key, node), types[low]), picks, 0)
        for number in range(count):
            edge = picks[number] if is_cut else low + number
            place, known = enter(keys, places, nodes, scores, known, np.int64(indices[edge]))
            if scores[place] != SAMPLED:
                scores[place] += UNITS // count
        low = high
    return keys, places, nodes, scores, known


@device_function
def weight_of(score, shift):
    """Return the weight of a node: the square of its score, which counts one unit at least."""
    units = max(score >> shift, np.int64(1))
    return units * units


@device_function
def choose_shift(group, scores):
    """Return by how many bits scores are cut, so that the sum of the weights of a group has at most `WIDEST` bits."""
    highest = np.int64(0)
    for place in group:
        highest = max(highest, scores[place])
    bits, shift = np.int64(WIDEST), np.int64(0)
    while group.size >> (WIDEST - bits) > 0:
        bits -= 1
    while (highest >> shift) >> (bits // 2) > 0:
        shift += 1
    return shift


@device_function
def draw_from(group, scores, count, state, out, at):
    """Write `count` distinct ones of a group, one after the other by weight; the sums are kept in a Fenwick tree."""
    size = group.size
    if count == size:
        for number in range(count):
            out[at + number] = group[number]
        return
    shift = choose_shift(group, scores)
    sums = np.zeros(size + 1, np.int64)
    total = np.int64(0)
    for number in range(1, size + 1):
        weight = weight_of(scores[group[number - 1]], shift)
        total += weight
        sums[number] += weight
        parent = number + (number & -number)
        if parent <= size:
            sums[parent] += sums[number]
    widest = np.int64(1)
    while 2 * widest <= size:
        widest *= 2
    for number in range(count):
        target = draw_below(state, number, total)
        found, step = np.int64(0), widest
        while step > 0:
            if found + step <= size and sums[found + step] <= target:
                found += step
                target -= sums[found]
            step //= 2
        out[at + number] = group[found]
        weight = weight_of(scores[group[found]], shift)
        total -= weight
        place = found + 1
        while place <= size:
            sums[place] -= weight
            place += place & -place


@device_function
def group_by_kind(nodes, scores, known, first_ids):
    """Return the places of the nodes that are not sampled, by node type, and where each type begins."""
    starts = np.zeros(first_ids.size, np.int64)
    kinds = np.empty(known, np.int64)
    for place in range(known):
        if scores[place] != SAMPLED:
            kinds[place] = first_above(first_ids, 0, first_ids.size, nodes[place]) - 1
            starts[kinds[place] + 1] += 1
    for kind in range(1, starts.size):
        starts[kind] += starts[kind - 1]
    ends = starts.copy()
    order = np.empty(starts[-1], np.int64)
    for place in range(known):
        if scores[place] != SAMPLED:
            order[ends[kinds[place]]] = place
            ends[kinds[place]] += 1
    return order, starts


@kernel
def sample_by_budget(arrays, first_ids, seeds, wanted, hop_keys, out, counts):
    """Write the nodes of each hop, type after type, with the ids of the graph.

    Args:
        arrays: Column starts, source nodes and edge types of the graph.
        first_ids: The first id of each node type, and the number of nodes.
        seeds: The nodes to start from.
        wanted: How many nodes of each type to sample, shape (hops, node types).
        hop_keys: The key of each hop.
        out: Written: the nodes, with room for all that are wanted.
        counts: Written: how many nodes of each type each hop has, shape (hops, node types).
    """
    indptr, indices, types = arrays
    keys, places = np.full(64, -1, np.int64), np.empty(64, np.int64)
    nodes, scores = np.empty(0, np.int64), np.empty(0, np.int64)
    keys, places, nodes, scores = make_room(keys, places, nodes, scores, np.int64(0), seeds.size + 1)
    picks = np.empty(MOST_NEIGHBORS, np.int64)
    known, at = np.int64(0), np.int64(0)
    for seed in seeds:
        place, known = enter(keys, places, nodes, scores, known, seed)
        scores[place] = SAMPLED
    newest = seeds
    for hop in range(wanted.shape[0]):
        key = hop_keys[hop]
        for node in newest:
            keys, places, nodes, scores, known = add_scores(
                indptr, indices, types, node, key, picks, keys, places, nodes, scores, known
            )
        order, starts = group_by_kind(nodes, scores, known, first_ids)
        before = at
        for kind in range(wanted.shape[1]):
            group = order[starts[kind] : starts[kind + 1]]
            count = min(wanted[hop, kind], group.size)
            draw_from(group, scores, count, node_state(key, kind), out, at)
            counts[hop, kind] = count
            at += count
        for number in range(before, at):
            place = out[number]
            scores[place] = SAMPLED
            out[number] = nodes[place]
        newest = out[before:at]
