"""Kernels that draw negatives: nodes, and pairs of nodes that are no edges."""

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
"""How often a pair is drawn before all destinations are looked at."""


class Population(NamedTuple):
    """How many nodes there are, running sums of their weights or nothing, and their times or nothing."""

    size: Int64s
    cumulative: Int64s
    times: Int64s


class KnownEdges(NamedTuple):
    """The graph; and the edge type in question, and the ids in the graph of its first source and destination."""

    indptr: Int64s
    indices: Ids
    types: EdgeTypes
    wanted: Int64s


@kernel
def sample_negative_pairs(
    sources: Population,
    destinations: Population,
    fixed: Int64s,
    limits: Int64s,
    edges: KnownEdges,
    key: UInt64,
    out: Int64Matrix,
) -> None:
    """Write pairs, each drawn by its place; -1 where no pair is right."""
    # `fixed` is empty if sources are drawn too, `limits` is without times, and column starts are if a pair may be an
    # edge.
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
            # Almost all pairs are wrong: go through the sources from a random one on.
            first = draw_below(state, 2 * ATTEMPTS, num_sources)
            for step in range(num_sources):
                source = (first + step) % num_sources
                if weight_of(source_sums, source) > 0 and exists(source_times, source, limit):
                    destination = draw_destination(edges, destinations, source, limit, state, 2 * ATTEMPTS + 1)
                    if destination >= 0:
                        break
        out[place, 0] = source
        out[place, 1] = destination


@device_function
def has_edge(edges, source, destination):
    """Tell whether an edge of the kind in question leads from one node to another, by a look at all to the second."""
    if edges.indptr.size == 0:
        return False
    kind, wanted, column = edges.wanted[0], edges.wanted[1] + source, edges.wanted[2] + destination
    # Within the edges that there are: starts that were edited in NumPy since the graph was checked lead anywhere.
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
def weight_of(cumulative, node):
    if cumulative.size == 0:
        return np.int64(1)
    return cumulative[node] - (cumulative[node - 1] if node > 0 else np.int64(0))


@device_function
def exists(times, node, limit):
    return times.size == 0 or times[node] <= limit


@device_function
def draw_destination(edges, destinations, source, limit, state, number):
    """Draw among all destinations that are right for a source, by weight; -1 if there is none."""
    size, cumulative, times = destinations.size[0], destinations.cumulative, destinations.times
    # Two passes instead of an array of weights: kernels allocate nothing.
    total = np.int64(0)
    for node in range(size):
        weight = weight_of(cumulative, node)
        if weight > 0 and exists(times, node, limit) and not has_edge(edges, source, node):
            total += weight
    if total == 0:
        return np.int64(-1)
    target = draw_below(state, number, total)
    for node in range(size):
        weight = weight_of(cumulative, node)
        if weight > 0 and exists(times, node, limit) and not has_edge(edges, source, node):
            if target < weight:
                return np.int64(node)
            target -= weight
    return np.int64(-1)
