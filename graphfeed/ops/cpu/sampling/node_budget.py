"""Kernels that sample nodes of each type by how strongly they are connected to the nodes sampled before."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt64, device_function, kernel
from graphfeed.ops.cpu.random import draw_below, node_state
from graphfeed.ops.cpu.search import find_key, first_above

UNITS = np.int64(1 << 32)
"""Score that a node distributes among its neighbours."""
SAMPLED = np.int64(-1)
"""Score of a node that was sampled."""
WIDEST = 62
"""Maximum number of bits of the sum of all weights."""


class Known(NamedTuple):
    """The nodes that were found so far."""

    keys: Int64s
    """Hash table: ids, or -1; and the index of each in `nodes`."""
    places: Int64s
    nodes: Int64s
    """Ids and scores of the nodes."""
    scores: Int64s
    count: Int64s
    """Number of nodes."""


class BudgetDraws(NamedTuple):
    """Scratch of a hop: nodes that can be drawn, by node type; starts of the types; type of each node; weight sums."""

    order: Int64s
    starts: Int64s
    kinds: Int64s
    sums: Int64s


@kernel
def enter_sampled(sampled: Int64s, known: Known) -> None:
    for node in sampled:
        known.scores[add_node(known, node)] = SAMPLED


@kernel
def enter_again(nodes: Int64s, scores: Int64s, known: Known) -> None:
    for number in range(nodes.size):
        known.scores[add_node(known, nodes[number])] = scores[number]


@kernel
def share_scores(offsets: Int64s, neighbors: Int64s, known: Known) -> None:
    """Distribute one point evenly among the neighbours of each run; those already sampled keep their score."""
    for run in range(offsets.size - 1):
        count = offsets[run + 1] - offsets[run]
        for edge in range(offsets[run], offsets[run + 1]):
            place = add_node(known, neighbors[edge])
            if known.scores[place] != SAMPLED:
                known.scores[place] += UNITS // count


@kernel
def draw_hop(
    first_ids: Int64s, wanted: Int64s, key: UInt64, known: Known, draws: BudgetDraws, out: Int64s, counts: Int64s
) -> None:
    """Draw nodes of each type, mark them as sampled, and write their ids in the graph."""
    group_by_kind(known, first_ids, draws)
    at = np.int64(0)
    for kind in range(wanted.size):
        group = draws.order[draws.starts[kind] : draws.starts[kind + 1]]
        counts[kind] = min(wanted[kind], group.size)
        draw_from(group, known.scores, counts[kind], node_state(key, kind), draws.sums, out, at)
        at += counts[kind]
    for number in range(at):
        known.scores[out[number]] = SAMPLED
        out[number] = known.nodes[out[number]]


@device_function
def add_node(known, node):
    """Return the index of a node. New nodes are added with score 0."""
    keys = known.keys
    slot = find_key(keys, keys.size, node)
    if keys[slot] == -1:
        place = known.count[0]
        keys[slot], known.places[slot] = node, place
        known.nodes[place], known.scores[place] = node, 0
        known.count[0] = place + 1
    return known.places[slot]


@device_function
def node_weight(score, shift):
    units = max(score >> shift, np.int64(1))
    # HGSampling draws by the squares of scores. At least one unit, so that every node can be drawn.
    return units * units


@device_function
def choose_shift(group, scores):
    """Return the right shift of scores with which the sum of a group's weights has at most `WIDEST` bits."""
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
def draw_from(group, scores, count, state, sums, out, at):
    """Draw `count` distinct nodes of a group by weight, one after the other, with a Fenwick tree of sums."""
    size = group.size
    if count == size:
        for number in range(count):
            out[at + number] = group[number]
        return
    shift = choose_shift(group, scores)
    sums[: size + 1] = 0
    total = np.int64(0)
    for number in range(1, size + 1):
        weight = node_weight(scores[group[number - 1]], shift)
        total += weight
        sums[number] += weight
        parent = number + (number & -number)  # the next sum that includes this one
        if parent <= size:
            sums[parent] += sums[number]
    widest = np.int64(1)
    while 2 * widest <= size:
        widest *= 2
    for number in range(count):
        target = draw_below(state, number, total)
        # Down the tree, to the first node of the group whose running sum exceeds the target.
        found, step = np.int64(0), widest
        while step > 0:
            if found + step <= size and sums[found + step] <= target:
                found += step
                target -= sums[found]
            step //= 2
        out[at + number] = group[found]
        weight = node_weight(scores[group[found]], shift)
        total -= weight
        place = found + 1
        while place <= size:
            sums[place] -= weight
            place += place & -place


@device_function
def group_by_kind(known, first_ids, draws):
    """Write the indices of nodes that are not sampled, grouped by node type, and the starts of the types."""
    starts, kinds, order = draws.starts, draws.kinds, draws.order
    starts[:] = 0
    for place in range(known.count[0]):
        if known.scores[place] != SAMPLED:
            kinds[place] = first_above(first_ids, 0, first_ids.size, known.nodes[place]) - 1
            starts[kinds[place] + 1] += 1
    for kind in range(1, first_ids.size):
        starts[kind] += starts[kind - 1]
    for place in range(known.count[0]):
        if known.scores[place] != SAMPLED:
            order[starts[kinds[place]]] = place
            starts[kinds[place]] += 1
    # Each start has advanced to the next one: move them back.
    for kind in range(first_ids.size - 1, 0, -1):
        starts[kind] = starts[kind - 1]
    starts[0] = 0
