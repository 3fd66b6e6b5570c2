"""Kernel of all hops of temporal sampling on a graph of one type, in one call without the interpreter lock."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.sampling.sample_hops import column_starts, count_hop, fill_hop, open_columns
from graphfeed.ops.cpu.sampling.temporal_eligibility import append_rows, restrict_columns


@device_function
def take_latest(starts, sizes, rows, positions):
    """Write the last edges of each column."""
    for row in range(rows.size - 1):
        at, end = rows[row], rows[row + 1]
        rank = starts[row] + sizes[row] - (end - at)
        for edge in range(at, end):
            positions[edge] = rank
            rank += 1


@kernel
def temporal_sample_hops(graph, fanouts, replace, latest, window, keys, table, hop, out):
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `sample_hops`).

    Args:
        graph: `indptr`, `indices`, `times`, `order`, `links`, `edge_times` and `cumulative` of `TemporalGraph`.
        fanouts: One number per hop.
        replace: Whether an edge may be chosen more than once.
        latest: Whether to take the latest edges instead of random ones.
        window: How long before its column's time an edge may be; -1 is no limit.
        keys: One per hop.
        table: Scratch for large fan-outs (see `pick_many`).
        hop: The hop to begin with.
        out: The arrays of `HopArrays`.
    """
    indptr, indices, times, order, links, edge_times, cumulative = graph
    guides = np.empty(0, np.int32)  # they guide to whole columns
    while hop < fanouts.size:
        if not open_columns(indptr, hop, out):
            return hop
        restrict_columns(times, window, hop, out)
        if not count_hop(cumulative, fanouts[hop], replace, hop, out):
            return hop
        rows = column_starts(hop, out)
        if latest:
            take_latest(out.starts, out.degrees, rows, out.positions[out.edge_counts[hop] : out.edge_counts[hop + 1]])
        else:
            fill_hop(cumulative, guides, out.times, fanouts[hop], replace, keys[hop], table, hop, out)
        append_rows(indices, order, links, edge_times, rows, hop, out)
        hop += 1
    return hop
