"""Kernels that draw negatives: nodes, and pairs of nodes without an edge."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import EdgeTypes, IdPairs, Ids, Int64Matrix, Int64s, UInt64, device_function, kernel
from graphfeed.ops.cpu.random import draw_below, node_state
from graphfeed.ops.cpu.search import first_above


@kernel
def sample_negatives(pairs: IdPairs, negative_ratio: int, num_destinations: int, key: UInt64, out: IdPairs) -> None:
    count = pairs.shape[0]
    for row in range(count):
        out[row, 0] = pairs[row, 0]
        out[row, 1] = pairs[row, 1]
        for copy in range(negative_ratio):
            place = row * negative_ratio + copy
            out[count + place, 0] = pairs[row, 0]
            out[count + place, 1] = draw_below(node_state(key, place), 0, num_destinations)


ATTEMPTS = 32
"""Number of draws of a pair before all destinations are examined."""


class PopulationBlock(NamedTuple):
    """Number of nodes, running sums of their weights, and their times; the last two may be empty."""

    size: Int64s
    cumulative: Int64s
    times: Int64s


class KnownEdgeBlock(NamedTuple):
    """The graph; and in `wanted`, an edge type and the graph's ids of its first source and first destination."""

    indptr: Int64s
    indices: Ids
    types: EdgeTypes
    wanted: Int64s


@kernel
def sample_negative_pairs(
    sources: PopulationBlock,
    destinations: PopulationBlock,
    fixed: Int64s,
    limits: Int64s,
    edges: KnownEdgeBlock,
    key: UInt64,
    out: Int64Matrix,
) -> None:
    """Write pairs, each drawn from the key and its index; -1 if there is no valid pair."""
    # `fixed` is empty if sources are drawn too, `limits` if there are no times, and `edges.indptr` if pairs may be
    # edges.
    num_sources, source_sums, source_times = sources.size[0], sources.cumulative, sources.times
    size, sums, times = destinations.size[0], destinations.cumulative, destinations.times
    for place in range(out.shape[0]):
        state = node_state(key, place)
        limit = limits[place] if limits.size > 0 else np.int64(0)
        source = fixed[place] if fixed.size > 0 else np.int64(-1)
        destination = np.int64(-1)
        for attempt in range(ATTEMPTS):
            if fixed.size == 0:
                source = draw_node(num_sources, source_sums, state, 2 * attempt)
                if not exists(source_times, source, limit):
                    continue
            node = draw_node(size, sums, state, 2 * attempt + 1)
            if exists(times, node, limit) and not has_edge(edges, source, node):
                destination = node
                break
        if destination < 0 and fixed.size > 0:
            destination = draw_destination(edges, destinations, source, limit, state, 2 * ATTEMPTS)
        elif destination < 0:
            # Almost no pair is valid: try all sources, starting at a random one.
            first = draw_below(state, 2 * ATTEMPTS, num_sources)
            for step in range(num_sources):
                source = (first + step) % num_sources
                if pair_weight(source_sums, source) > 0 and exists(source_times, source, limit):
                    destination = draw_destination(edges, destinations, source, limit, state, 2 * ATTEMPTS + 1)
                    if destination >= 0:
                        break
        out[place, 0] = source
        out[place, 1] = destination


@device_function
def has_edge(edges, source, destination):
    """Return whether an edge of the type in `edges` connects two nodes, by a scan of the destination's column."""
    if edges.indptr.size == 0:
        return False
    kind, wanted, column = edges.wanted[0], edges.wanted[1] + source, edges.wanted[2] + destination
    # Clamped to the edges of the graph: a program may have edited `indptr` since it was checked.
    for edge in range(max(edges.indptr[column], 0), min(edges.indptr[column + 1], edges.indices.size)):
        if np.int64(edges.indices[edge]) == wanted and (edges.types.size == 0 or np.int64(edges.types[edge]) == kind):
            return True
    return False


@device_function
def draw_node(size, cumulative, state, number):
    if cumulative.size == 0:
        return draw_below(state, number, size)
    last = cumulative.size - 1
    return first_above(cumulative, np.int64(0), np.int64(last), draw_below(state, number, cumulative[last]))


@device_function
def pair_weight(cumulative, node):
    if cumulative.size == 0:
        return np.int64(1)
    return cumulative[node] - (cumulative[node - 1] if node > 0 else np.int64(0))


@device_function
def exists(times, node, limit):
    return times.size == 0 or times[node] <= limit


@device_function
def draw_destination(edges, destinations, source, limit, state, number):
    """Draw one of all valid destinations for a source, by weight; return -1 if there is none."""
    size, cumulative, times = destinations.size[0], destinations.cumulative, destinations.times
    # Two passes instead of an array of weights: kernels allocate nothing.
    total = np.int64(0)
    for node in range(size):
        weight = pair_weight(cumulative, node)
        if weight > 0 and exists(times, node, limit) and not has_edge(edges, source, node):
            total += weight
    if total == 0:
        return np.int64(-1)
    target = draw_below(state, number, total)
    for node in range(size):
        weight = pair_weight(cumulative, node)
        if weight > 0 and exists(times, node, limit) and not has_edge(edges, source, node):
            if target < weight:
                return np.int64(node)
            target -= weight
    return np.int64(-1)
