"""Kernel that samples pairs of nodes which stand for missing edges."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.random import draw_below, node_state

ATTEMPTS = 32
"""How often a pair is drawn before all destinations are looked at."""


@device_function
def has_edge(edges, source, destination):
    """Tell whether an edge of the kind in question leads from one node to another, by a look at all to the second."""
    indptr, indices, types, kind, first_source, first_destination = edges
    if indptr.size == 0:
        return False
    column = first_destination + destination
    for edge in range(indptr[column], indptr[column + 1]):
        if np.int64(indices[edge]) == first_source + source and (types.size == 0 or np.int64(types[edge]) == kind):
            return True
    return False


@device_function
def draw_node(size, cumulative, state, number):
    """Draw a node: by the running sums of weights, or uniformly."""
    if cumulative.size == 0:
        return draw_below(state, number, size)
    target = draw_below(state, number, cumulative[cumulative.size - 1])
    low, high = np.int64(0), np.int64(cumulative.size - 1)
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@device_function
def weight_of(cumulative, node):
    """Return the weight of a node; 1 without weights."""
    if cumulative.size == 0:
        return np.int64(1)
    return cumulative[node] - (cumulative[node - 1] if node > 0 else np.int64(0))


@device_function
def exists(times, node, limit):
    """Tell whether a node is there at a time."""
    return times.size == 0 or times[node] <= limit


@device_function
def draw_destination(edges, destinations, source, limit, state, number):
    """Draw among all destinations that are right for a source, by weight; -1 if there is none."""
    size, cumulative, times = destinations
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


@kernel
def sample_negative_pairs(sources, destinations, fixed, limits, edges, key, out):
    """Write pairs, each drawn by its place; -1 where no pair is right.

    Args:
        sources: How many there are, running sums of their weights or nothing, and their times or nothing.
        destinations: The same.
        fixed: The source of each pair; or nothing, if it is drawn too.
        limits: The time of each pair, or nothing.
        edges: Column starts, sources, edge types, the edge type in question, and the first source and destination in
            the graph; column starts are empty if a pair may be an edge.
        key: The key of all draws.
        out: Written: shape (pairs, 2).
    """
    num_sources, source_sums, source_times = sources
    size, sums, times = destinations
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
