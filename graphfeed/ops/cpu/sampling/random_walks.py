"""Kernel of random walks. The walks of a block take each step together, so that their cache misses overlap.

Each part of a step prefetches the reads of the next one::

    open_columns    read where the column of each node begins and ends; drop walks that stop
    weigh_columns   with weights, read the weight of each column
    draw_edges      draw an edge of each column, and prefetch its source
    draw_again      node2vec: reject some of the edges, and draw others instead, in rounds
    follow_edges    go to the sources, and prefetch where their columns begin
"""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import (
    EdgeTypes,
    Float64s,
    Ids,
    Int32s,
    Int64Matrix,
    Int64s,
    UInt64s,
    device_function,
    kernel,
    prefetch,
)
from graphfeed.ops.cpu.random import GOLDEN, HALF, draw_below, draw_bits, mix, node_state, type_state
from graphfeed.ops.cpu.sampling.passes.weighted import (
    LINE,
    find_passing_edge,
    guess_line,
    look_closer,
    weight_before,
)
from graphfeed.ops.cpu.search import first_above

ROUNDS = 1024
"""Number of edges that node2vec draws for a step. If all others were rejected, the last one is accepted."""
SHORT = 32
"""Up to this number of edges, all sources of a column are compared, which is faster than a search (node2vec)."""
ACCEPT, STOP = 1 << 32, 1 << 33
"""Numbers of the draws that accept an edge of a round, and that stop a walk. Smaller numbers draw edges."""


class WalkGraph(NamedTuple):
    """The arrays of a graph. Those that are not needed are empty."""

    indptr: Int64s
    indices: Ids
    types: EdgeTypes
    cumulative: Int64s
    guides: Int32s
    sources: Int64s
    """The sources of each column in ascending order, for node2vec."""


class WalkSteps(NamedTuple):
    """The parameters of each step, and the chances of node2vec."""

    keys: UInt64s
    stops: UInt64s
    """Chance of each step to be left out, with all that follow, in units of 2**-32; empty if walks don't stop."""
    types: Int64s
    """Edge type of each step; empty if the graph has no types."""
    firsts: Int64s
    """First id of the type of each node of a walk."""
    chances: UInt64s
    """Chances in units of 2**-32 of the previous node, of a node with an edge to it, and of any other; or empty."""


class Walkers(NamedTuple):
    """The walks of a block: their nodes, and the draws of a step. `goals` and `guesses` are scratch."""

    active: Int64s
    """The walks that continue; of these, those that draw again; and those whose edge is being searched for."""
    pending: Int64s
    searched: Int64s
    nodes: Int64s
    previous: Int64s
    """The node before, or -1."""
    hashes: UInt64s
    states: UInt64s
    lows: Int64s
    highs: Int64s
    befores: Int64s
    """The running sum before the first edge, the sum of the weights, and the number of edges per weight."""
    totals: Int64s
    densities: Float64s
    goals: Int64s
    guesses: Int64s
    places: Int64s
    """The edge that is drawn."""


@kernel
def random_walks(
    graph: WalkGraph,
    steps: WalkSteps,
    starts: Int64s,
    trees: Int64s,
    walks: Walkers,
    out: Int64Matrix,
    edges: Int64Matrix,
) -> bool:
    """Write the nodes and, unless `edges` is empty, the edges of each walk. Returns False if the graph is invalid."""
    # As many walks take each step together as there is scratch for.
    for block in range((out.shape[0] + walks.active.size - 1) // walks.active.size):
        first = block * walks.active.size
        size = min(walks.active.size, out.shape[0] - first)
        for walk in range(size):
            node = starts[first + walk]
            prefetch(graph.indptr, node)
            walks.active[walk], walks.nodes[walk], walks.previous[walk] = walk, node, -1
            # The part of `tree_key` that doesn't depend on the step.
            walks.hashes[walk] = mix(np.uint64(trees[first + walk]) + GOLDEN)
            out[first + walk, 0] = node - steps.firsts[0]
        for step in range(out.shape[1] - 1):
            size = open_columns(graph, steps, step, walks, size, first, out, edges)
            if size > 0 and graph.cumulative.size > 0:
                size = weigh_columns(graph, step, walks, size, first, out, edges)
            if size < 0:
                return False
            if size == 0:
                break
            draw_edges(graph, walks, walks.active, size, 0)
            if steps.chances.size > 0 and step > 0 and not draw_again(graph, steps, walks, size):
                return False
            if not follow_edges(graph, steps, step, walks, size, first, out, edges):
                return False
    return True


@device_function
def open_columns(graph, steps, step, walks, size, first, out, edges):
    """Read the columns of the nodes; end walks that stop, or have no edges. Returns the number of others, or -1."""
    kept, key, num_edges = 0, steps.keys[step], graph.indices.size
    chance = steps.stops[step] if steps.stops.size > 0 else np.uint64(0)
    for number in range(size):
        walk = walks.active[number]
        node = walks.nodes[walk]
        low, high = graph.indptr[node], graph.indptr[node + 1]
        if not 0 <= low <= high <= num_edges:
            return -1
        state = node_state(mix(key ^ walks.hashes[walk]), node)
        walks.befores[walk] = low
        if steps.types.size > 0:
            kind = steps.types[step]
            low = first_above(graph.types, low, high, kind - 1)
            high = first_above(graph.types, low, high, kind)
            state = type_state(state, kind)
        if low == high or (chance > 0 and draw_bits(state, STOP) >> HALF < chance):
            end_walk(first + walk, step, out, edges)
            continue
        walks.states[walk], walks.lows[walk], walks.highs[walk] = state, low, high
        if graph.cumulative.size > 0:
            prefetch(graph.cumulative, max(low - 1, 0))
            prefetch(graph.cumulative, high - 1)
        walks.active[kept] = walk
        kept += 1
    return kept


@device_function
def end_walk(row, step, out, edges):
    for later in range(step, out.shape[1] - 1):
        out[row, later + 1] = -1
        if edges.size > 0:
            edges[row, later] = -1


@device_function
def weigh_columns(graph, step, walks, size, first, out, edges):
    """Read the weight of each column; end the walks whose edges all have weight 0. Returns the number of others."""
    kept = 0
    for number in range(size):
        walk = walks.active[number]
        low, high = walks.lows[walk], walks.highs[walk]
        before = weight_before(graph.cumulative, walks.befores[walk], low)
        total = graph.cumulative[high - 1] - before
        if total <= 0:
            end_walk(first + walk, step, out, edges)
            continue
        walks.befores[walk], walks.totals[walk] = before, total
        walks.densities[walk] = np.float64(high - low) / np.float64(total)
        walks.active[kept] = walk
        kept += 1
    return kept


@device_function
def draw_edges(graph, walks, listed, size, round_number):
    """Draw an edge for each of the listed walks, and prefetch its source."""
    if graph.cumulative.size == 0:
        for number in range(size):
            walk = listed[number]
            low = walks.lows[walk]
            place = low + draw_below(walks.states[walk], round_number, walks.highs[walk] - low)
            walks.places[walk] = place
            prefetch(graph.indices, place)
        return
    for number in range(size):
        walk = listed[number]
        guess_line(graph, walks, walk, walk, draw_below(walks.states[walk], round_number, walks.totals[walk]))
    for number in range(size):
        look_closer(graph, walks, listed[number], listed[number])
    for number in range(size):
        walk = listed[number]
        walks.places[walk] = find_passing_edge(graph.cumulative, walks, walk, walk)
        prefetch(graph.indices, walks.places[walk])


@device_function
def draw_again(graph, steps, walks, size):
    """Accept or reject the edges that were drawn, and draw others for those rejected. Returns False if invalid."""
    num_nodes, left = graph.indptr.size - 1, size
    to_previous, to_near, to_far = steps.chances[0], steps.chances[1], steps.chances[2]
    # Only between these bounds, it must be known whether the node has an edge to the previous one.
    least, most = min(to_near, to_far), max(to_near, to_far)
    for number in range(size):
        walks.pending[number] = walks.active[number]
    for round_number in range(ROUNDS):
        if left == 0:
            break
        if round_number > 0:
            draw_edges(graph, walks, walks.pending, left, round_number)
        kept, searched, outside = 0, 0, np.int64(0)
        # No branches, because half of them could not be predicted.
        for number in range(left):
            walk = walks.pending[number]
            node = np.int64(graph.indices[np.uintp(walks.places[walk])])
            outside |= node | (num_nodes - 1 - node)
            bits = draw_bits(walks.states[walk], ACCEPT + round_number) >> HALF
            is_previous = node == walks.previous[walk]
            accepted = (is_previous & (bits < to_previous)) | ((not is_previous) & (bits < least))
            is_open = (not is_previous) & (bits >= least) & (bits < most)
            walks.goals[walk] = node
            walks.pending[kept] = walk
            kept += np.int64(not (accepted | is_open))
            walks.searched[searched] = walk
            searched += np.int64(is_open)
            prefetch(graph.indptr, node if is_open else np.int64(0))
        if outside < 0:
            return False
        for number in range(searched):
            walk = walks.searched[number]
            low, high = graph.indptr[walks.goals[walk]], graph.indptr[walks.goals[walk] + 1]
            if not 0 <= low <= high <= graph.sources.size:
                return False
            walks.goals[walk], walks.guesses[walk] = low, high
            # All lines of a short column; of a long one, where the search begins.
            if high - low <= SHORT:
                for place in range(low, high, LINE):
                    prefetch(graph.sources, place)
            prefetch(graph.sources, (low + high) >> 1)
            prefetch(graph.sources, high - 1)
        for number in range(searched):
            walk = walks.searched[number]
            high, previous = walks.guesses[walk], walks.previous[walk]
            low = walks.goals[walk]
            if high - low <= SHORT:
                place = find_above(graph.sources, low, high, previous - 1)
            else:
                place = first_above(graph.sources, low, high, previous - 1)
            is_near = place < high and graph.sources[place] == previous
            walks.pending[kept] = walk
            kept += np.int64(is_near != (to_near > to_far))
        left = kept
    return True


@device_function
def find_above(values, low, high, target):
    """Return the result of `first_above` on a short array, without branches that could not be predicted."""
    size, passed, last = high - low, np.int64(0), np.int64(0)
    if size < LINE:
        for place in range(low, high):
            passed += np.int64(values[np.uintp(place)] <= target)
        return low + passed
    # LLVM vectorizes loops of constant length.
    for line in range(size // LINE):
        for number in range(LINE):
            passed += np.int64(values[np.uintp(low + line * LINE + number)] <= target)
    for number in range(LINE):
        last += np.int64(values[np.uintp(high - LINE + number)] <= target)
    return low + passed if passed < size // LINE * LINE else high - LINE + last


@device_function
def follow_edges(graph, steps, step, walks, size, first, out, edges):
    """Go to the sources of the edges that were drawn. Returns False if one is not a node."""
    num_nodes, first_id = graph.indptr.size - 1, steps.firsts[step + 1]
    for number in range(size):
        walk = walks.active[number]
        place = walks.places[walk]
        node = np.int64(graph.indices[place])
        if not 0 <= node < num_nodes:
            return False
        prefetch(graph.indptr, node)
        walks.previous[walk], walks.nodes[walk] = walks.nodes[walk], node
        out[first + walk, step + 1] = node - first_id
        if edges.size > 0:
            edges[first + walk, step] = place
    return True
