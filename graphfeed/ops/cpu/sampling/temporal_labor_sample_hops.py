"""Kernel of all hops of temporal LABOR on a graph of one type, in one call without the interpreter lock."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel, without_refcount
from graphfeed.ops.cpu.sampling.labor_sample_neighbors import new_scratch, pick_labor, uncounted
from graphfeed.ops.cpu.sampling.pick import weight_before
from graphfeed.ops.cpu.sampling.sample_hops import column_starts, count_hop, open_columns
from graphfeed.ops.cpu.sampling.temporal_eligibility import append_rows, restrict_columns
from graphfeed.ops.cpu.sampling.temporal_labor_sample_neighbors import read_sources


@device_function
def fill_hop(indices, order, links, cumulative, fanout, replace, draws, hop, out):
    """Write the ranks of the sampled edges of each node of a hop."""
    rows, runs = column_starts(hop, out), (out.bases, out.starts, out.degrees)
    positions = out.positions[out.edge_counts[hop] : out.edge_counts[hop + 1]]
    fill_runs(indices, order, links, cumulative, fanout, replace, draws, rows, runs, positions)


@device_function
def fill_runs(indices, order, links, cumulative, fanout, replace, draws, rows, runs, positions):
    """Write the ranks of the sampled edges of runs: where each one's column starts, where it starts, how many."""
    bases, starts, sizes = runs
    scratch, largest = new_scratch(rows), np.int64(0)
    for row in range(rows.size - 1):
        largest = max(largest, sizes[row])
    sources = np.empty(largest if order.size > 0 or links.size > 0 else 0, indices.dtype)
    fill_rows(
        indices, order, links, cumulative, fanout, replace, draws, rows, bases, starts, sizes, scratch, sources,
        positions,
    )  # fmt: skip


@device_function
def fill_rows(
    indices, order, links, cumulative, fanout, replace, draws, rows, bases, starts, sizes, scratch, sources, positions
):
    """Do so; the caller keeps the arrays, so that none is counted in the loop."""
    indices, order, links = without_refcount(indices), without_refcount(order), without_refcount(links)
    cumulative, sources = without_refcount(cumulative), without_refcount(sources)
    positions, scratch = without_refcount(positions), uncounted(scratch)
    for row in range(rows.size - 1):
        places = positions[rows[row] : rows[row + 1]]
        low, high = starts[row], starts[row] + sizes[row]
        if places.size == sizes[row] and not replace:
            # Whole columns need no sources.
            for number in range(places.size):
                places[number] = low + number
        elif places.size > 0:
            own = read_sources(indices, order, links, bases[row], low, high, sources)
            weights = cumulative[low:high] if cumulative.size > 0 else cumulative
            before = weight_before(cumulative, bases[row], low)
            pick_labor(own, weights, 0, high - low, before, replace, fanout, draws, scratch, places)
            for number in range(places.size):
                places[number] += low


@kernel
def temporal_labor_sample_hops(graph, fanouts, replace, window, keys, switch_threshold, hop, out):
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `temporal_sample_hops`)."""
    indptr, indices, times, order, links, edge_times, cumulative = graph
    while hop < fanouts.size:
        if not open_columns(indptr, hop, out):
            return hop
        restrict_columns(times, window, hop, out)
        if not count_hop(cumulative, fanouts[hop], replace, hop, out):
            return hop
        draws = keys[hop, 0], keys[hop, 1], switch_threshold
        fill_hop(indices, order, links, cumulative, fanouts[hop], replace, draws, hop, out)
        append_rows(indices, order, links, edge_times, column_starts(hop, out), hop, out)
        hop += 1
    return hop
