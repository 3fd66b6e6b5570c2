"""Kernel of personalized PageRank, by forward push in integers (Andersen, Chung and Lang, FOCS 2006)."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Ids, Int64s, UInt8s, device_function, kernel, prefetch
from graphfeed.ops.cpu.sampling.count_visits import insert_best, sort_best
from graphfeed.ops.cpu.search import find_entry

MASS = np.int64(1 << 32)
NODES_AHEAD, EDGES_AHEAD = 2, 32
"""Prefetch distances."""
DONE, SHORT, EDITED = 0, 1, 2
"""Results of a seed: the table is too small; the graph refers to a node or an edge that it does not have."""


class PushTable(NamedTuple):
    """The nodes that a seed has reached, in the order of their first appearance, so that new ones are adjacent."""

    table: Int64s
    """A hash table of numbers of nodes; its size is a power of two. All slots are -1 between seeds."""
    slots: Int64s
    """The slot of each node in the table."""
    nodes: Int64s
    lows: Int64s
    """Where the column begins, or -1 if it was not read yet, and how long it is."""
    degrees: Int64s
    least: Int64s
    """The residual from which a node is pushed, or a smaller one before its column is read."""
    residuals: Int64s
    scores: Int64s
    pushed: Int64s
    amounts: Int64s
    following: Int64s
    """The nodes to push in this round, and their residuals; and those that may be pushed in the next one."""
    count: Int64s
    """Number of nodes."""


@kernel
def push_mass(
    indptr: Int64s,
    indices: Ids,
    short_degrees: UInt8s,
    seeds: Int64s,
    limits: Int64s,
    groups: Int64s,
    first: int,
    reached: PushTable,
    top: int,
    starts: Int64s,
    nodes: Int64s,
    scores: Int64s,
    left: Int64s,
) -> int:
    """Write the best nodes of the seeds, starting at `first`; return the number of finished seeds, or -1 if invalid.

    If it is not the number of seeds, the table is too small for the next one. `limits` has the share of a residual that
    becomes the score, in units of 2**-31, and the bound of residuals, in units of the mass. `groups` has the first node
    of each group, and the number of nodes; a seed has up to `top` nodes of each, which end where the next ones start.
    `short_degrees` has the degrees of nodes, or 255 for more. If it is not empty, columns of nodes that are not pushed
    are not read.
    """
    num_groups = groups.size - 1
    for row in range(first, seeds.size):
        prefetch(indptr, seeds[min(row + 2, seeds.size - 1)])
        prefetch(indices, indptr[seeds[min(row + 1, seeds.size - 1)]])
        result = push_seed(indptr, indices, short_degrees, seeds[row], limits, reached)
        rest = np.int64(0)
        for entry in range(reached.count[0]):
            reached.table[reached.slots[entry]] = -1
            rest += reached.residuals[entry]
        if result != DONE:
            return row if result == SHORT else -1
        left[row] = rest
        for group in range(num_groups):
            own = row * num_groups + group
            start, size, low, high = starts[own], 0, groups[group], groups[group + 1]
            for entry in range(reached.count[0]):
                node, score = reached.nodes[entry], reached.scores[entry]
                if score > 0 and low <= node < high:
                    size = insert_best(nodes, scores, start, size, top, node, score)
            sort_best(nodes, scores, start, size)
            starts[own + 1] = start + size
    return seeds.size


@device_function
def push_seed(indptr, indices, short_degrees, seed, limits, reached):
    """Push the mass of a seed in rounds: each round pushes all nodes with enough of it, so that no order matters."""
    alpha, bound, num_nodes = np.uint64(limits[0]), limits[1], indptr.size - 1
    reached.count[0] = 0
    reach(reached, seed, find_entry(reached.table, reached.nodes, seed), bound)
    reached.residuals[0], reached.following[0], waiting = MASS, 0, 1
    while waiting > 0:
        pushing = list_pushed(indptr, indices, reached, waiting, bound)
        if pushing < 0:
            return EDITED
        waiting = 0
        for number in range(min(NODES_AHEAD, pushing)):
            open_sources(indices, short_degrees, reached, number)
        for number in range(pushing):
            if number + NODES_AHEAD < pushing:
                open_sources(indices, short_degrees, reached, number + NODES_AHEAD)
            entry, amount = reached.pushed[number], reached.amounts[number]
            low, degree = reached.lows[entry], reached.degrees[entry]
            if degree == 0:
                reached.scores[entry] += amount
                continue
            # At least 1 stays, or small amounts would go round a cycle forever.
            rest = amount - max(np.int64(np.uint64(amount) * alpha >> np.uint64(31)), np.int64(1))
            share = rest // degree
            # The remainder of the division stays with the score.
            reached.scores[entry] += amount - share * degree
            if share == 0:
                continue
            for edge in range(low, low + degree):
                if edge + EDGES_AHEAD < low + degree:
                    prefetch(short_degrees, indices[np.uintp(edge + EDGES_AHEAD)])
                node = np.int64(indices[np.uintp(edge)])
                slot = find_entry(reached.table, reached.nodes, node)
                entry = reached.table[slot]
                if entry < 0:
                    # Half full, so that the search ends soon.
                    if 2 * reached.count[0] >= reached.table.size:
                        return SHORT
                    if not 0 <= node < num_nodes:
                        return EDITED
                    entry = reached.count[0]
                    short = np.int64(short_degrees[node]) if short_degrees.size > 0 else 1
                    reach(reached, node, slot, bound * max(short, 1))
                before, least = reached.residuals[entry], reached.least[entry]
                reached.residuals[entry] = before + share
                if before < least <= before + share:
                    prefetch(indptr, node)
                    reached.following[waiting] = entry
                    waiting += 1
    return DONE


@device_function
def list_pushed(indptr, indices, reached, waiting, bound):
    """Read the columns of nodes that may be pushed; list those that are. Returns their number, or -1 if invalid."""
    pushing = 0
    for number in range(waiting):
        entry = reached.following[number]
        if reached.lows[entry] < 0:
            node = reached.nodes[entry]
            low, high = indptr[node], indptr[node + 1]
            if not 0 <= low <= high <= indices.size:
                return -1
            reached.lows[entry], reached.degrees[entry] = low, high - low
            reached.least[entry] = bound * max(high - low, 1)
        if reached.residuals[entry] >= reached.least[entry]:
            prefetch(indices, reached.lows[entry])
            prefetch(indices, reached.lows[entry] + 8)
            prefetch(indices, reached.lows[entry] + reached.degrees[entry] - 1)
            reached.pushed[pushing], reached.amounts[pushing] = entry, reached.residuals[entry]
            reached.residuals[entry] = 0
            pushing += 1
    return pushing


@device_function
def open_sources(indices, short_degrees, reached, number):
    """Prefetch the degrees of the first sources of a node to push."""
    entry = reached.pushed[number]
    low = reached.lows[entry]
    for edge in range(low, low + min(reached.degrees[entry], EDGES_AHEAD)):
        prefetch(short_degrees, indices[np.uintp(edge)])


@device_function
def reach(reached, node, slot, least):
    """Append a node whose slot is free."""
    entry = reached.count[0]
    reached.table[slot], reached.slots[entry], reached.nodes[entry] = entry, slot, node
    reached.lows[entry], reached.least[entry] = -1, least
    reached.residuals[entry], reached.scores[entry] = 0, 0
    reached.count[0] = entry + 1
