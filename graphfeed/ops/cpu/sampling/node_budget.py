"""Kernels that sample nodes of each type by how well they are joined to those that were sampled before."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt64, device_function, kernel
from graphfeed.ops.cpu.random import draw_below, node_state
from graphfeed.ops.cpu.search import find_key, first_above

UNITS = np.int64(1 << 32)
"""The score that a node shares among its neighbours."""
SAMPLED = np.int64(-1)
"""Stands for the score of a node that was sampled."""
WIDEST = 62
"""How many bits the sum of all weights may have."""


class Known(NamedTuple):
    """The nodes that were met."""

    keys: Int64s
    """A hash table: ids, or -1; and their places in the order."""
    places: Int64s
    nodes: Int64s
    """By place, the ids and the scores."""
    scores: Int64s
    count: Int64s
    """How many there are."""


class Draws(NamedTuple):
    """Scratch of a hop: what can be drawn, by node type; where each type begins; a type and a sum each."""

    order: Int64s
    starts: Int64s
    kinds: Int64s
    sums: Int64s


@kernel
def enter_sampled(sampled: Int64s, known: Known) -> None:
    for node in sampled:
        known.scores[enter(known, node)] = SAMPLED


@kernel
def enter_again(nodes: Int64s, scores: Int64s, known: Known) -> None:
    for number in range(nodes.size):
        known.scores[enter(known, nodes[number])] = scores[number]


@kernel
def share_scores(offsets: Int64s, neighbors: Int64s, known: Known) -> None:
    """Share one point among the neighbours of each run that are not sampled yet."""
    for run in range(offsets.size - 1):
        count = offsets[run + 1] - offsets[run]
        for edge in range(offsets[run], offsets[run + 1]):
            place = enter(known, neighbors[edge])
            if known.scores[place] != SAMPLED:
                known.scores[place] += UNITS // count


@kernel
def draw_hop(
    first_ids: Int64s, wanted: Int64s, key: UInt64, known: Known, draws: Draws, out: Int64s, counts: Int64s
) -> None:
    """Draw nodes of each type, which are sampled then; they are written with the ids of the graph."""
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
def enter(known, node):
    """Return the place of a node; a new one has the score 0."""
    keys = known.keys
    slot = find_key(keys, keys.size, node)
    if keys[slot] == -1:
        place = known.count[0]
        keys[slot], known.places[slot] = node, place
        known.nodes[place], known.scores[place] = node, 0
        known.count[0] = place + 1
    return known.places[slot]


@device_function
def weight_of(score, shift):
    units = max(score >> shift, np.int64(1))
    # As HGSampling draws: by the squares of scores. One unit at least, so that all can be drawn.
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
def draw_from(group, scores, count, state, sums, out, at):
    """Write `count` distinct ones of a group, one after the other by weight; the sums are kept in a Fenwick tree."""
    size = group.size
    if count == size:
        for number in range(count):
            out[at + number] = group[number]
        return
    shift = choose_shift(group, scores)
    sums[: size + 1] = 0
    total = np.int64(0)
    for number in range(1, size + 1):
        weight = weight_of(scores[group[number - 1]], shift)
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
        weight = weight_of(scores[group[found]], shift)
        total -= weight
        place = found + 1
        while place <= size:
            sums[place] -= weight
            place += place & -place


@device_function
def group_by_kind(known, first_ids, draws):
    """Write the places of the nodes that are not sampled, by node type, and where each type begins."""
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
    # Each start has moved to the next one's: move them back.
    for kind in range(first_ids.size - 1, 0, -1):
        starts[kind] = starts[kind - 1]
    starts[0] = 0
