"""Kernel of personalized PageRank, by forward push in integers (Andersen, Chung and Lang, FOCS 2006)."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Ids, Int64Matrix, Int64s, device_function, kernel, prefetch
from graphfeed.ops.cpu.sampling.count_visits import insert_best
from graphfeed.ops.cpu.search import find_key

MASS = np.int64(1 << 32)
NODES_AHEAD, EDGES_AHEAD = 4, 8
"""Prefetch distances."""
DONE, SHORT, EDITED = 0, 1, 2
"""Results of a seed: the table is too small; the graph refers to a node or an edge that it does not have."""


class PushTable(NamedTuple):
    """A hash table of the nodes that a seed has reached; its size is a power of two. Keys are -1 between seeds."""

    keys: Int64s
    residuals: Int64s
    scores: Int64s
    least: Int64s
    """The residual from which the node is pushed."""
    reached: Int64s
    """The slots of all nodes; of those to push in this round, and their residuals; and of those in the next one."""
    pushed: Int64s
    amounts: Int64s
    following: Int64s
    count: Int64s
    """Number of nodes."""


@kernel
def push_mass(
    indptr: Int64s,
    indices: Ids,
    seeds: Int64s,
    limits: Int64s,
    first: int,
    table: PushTable,
    nodes: Int64Matrix,
    scores: Int64Matrix,
    sizes: Int64s,
    left: Int64s,
) -> int:
    """Write the best nodes of the seeds, starting at `first`; return the number of finished seeds, or -1 if invalid.

    If it is not the number of seeds, the table is too small for the next one. `limits` has the share of a residual that
    becomes the score, in units of 2**-31, and the bound of residuals, in units of the mass.
    """
    for row in range(first, seeds.size):
        result = push_seed(indptr, indices, seeds[row], limits, table)
        size, rest = 0, np.int64(0)
        for number in range(table.count[0]):
            slot = table.reached[number]
            rest += table.residuals[slot]
            if result == DONE and table.scores[slot] > 0:
                size = insert_best(nodes, scores, row, size, table.keys[slot], table.scores[slot])
        # After the loop, because searches need the keys of all nodes.
        for number in range(table.count[0]):
            table.keys[table.reached[number]] = -1
        if result != DONE:
            return row if result == SHORT else -1
        sizes[row], left[row] = size, rest
    return seeds.size


@device_function
def push_seed(indptr, indices, seed, limits, table):
    """Push the mass of a seed in rounds: each round pushes all nodes with enough of it, so that no order matters."""
    alpha, bound = np.uint64(limits[0]), limits[1]
    table.count[0] = 0
    slot = reach(indptr, indices, table, seed, bound)
    if slot < 0:
        return EDITED
    table.residuals[slot] = MASS
    pushing = 0
    if table.least[slot] <= MASS:
        table.following[0], pushing = slot, 1
    while pushing > 0:
        for number in range(pushing):
            slot = table.following[number]
            table.pushed[number], table.amounts[number] = slot, table.residuals[slot]
            table.residuals[slot] = 0
            prefetch(indptr, table.keys[slot])
        following = 0
        for number in range(pushing):
            slot, amount = table.pushed[number], table.amounts[number]
            low, high = indptr[table.keys[slot]], indptr[table.keys[slot] + 1]
            if high == low:
                table.scores[slot] += amount
                continue
            # At least 1 stays, or small amounts would go round a cycle forever.
            rest = amount - max(np.int64(np.uint64(amount) * alpha >> np.uint64(31)), np.int64(1))
            share = rest // (high - low)
            # The remainder of the division stays with the score.
            table.scores[slot] += amount - share * (high - low)
            if share == 0:
                continue
            ahead = table.keys[table.pushed[min(number + NODES_AHEAD, pushing - 1)]]
            prefetch(indices, indptr[ahead])
            for edge in range(low, high):
                prefetch(indptr, indices[np.uintp(min(edge + EDGES_AHEAD, high - 1))])
                slot = find_key(table.keys, table.keys.size, np.int64(indices[np.uintp(edge)]))
                if table.keys[slot] < 0:
                    # Half full, so that the search ends soon.
                    if 2 * table.count[0] >= table.keys.size:
                        return SHORT
                    slot = reach(indptr, indices, table, np.int64(indices[np.uintp(edge)]), bound)
                    if slot < 0:
                        return EDITED
                before = table.residuals[slot]
                table.residuals[slot] = before + share
                if before < table.least[slot] <= before + share:
                    table.following[following] = slot
                    following += 1
        pushing = following
    return DONE


@device_function
def reach(indptr, indices, table, node, bound):
    """Enter a node into the table; return its slot, or -1 if the graph is invalid."""
    if not 0 <= node < indptr.size - 1:
        return np.int64(-1)
    low, high = indptr[node], indptr[node + 1]
    if not 0 <= low <= high <= indices.size:
        return np.int64(-1)
    slot = find_key(table.keys, table.keys.size, node)
    table.keys[slot], table.residuals[slot], table.scores[slot] = node, 0, 0
    table.least[slot] = bound * max(high - low, 1)
    table.reached[table.count[0]] = slot
    table.count[0] += 1
    return slot
