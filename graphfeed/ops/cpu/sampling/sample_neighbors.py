"""Kernels of one hop: count the picks of each column, fill in their positions, group them by edge type."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, kernel, prefetch, without_refcount
from graphfeed.ops.cpu.random import node_state, typed_state
from graphfeed.ops.cpu.sampling.edge_types import count_kinds, list_kinds, sort_picks, split_picks
from graphfeed.ops.cpu.sampling.pick import count_picks, pick, read_segment
from graphfeed.ops.cpu.sampling.sample_hops import fill_plain
from graphfeed.ops.cpu.sampling.weighted_picks import fill_weighted


@kernel
def count_neighbors(indptr, cumulative, types, seeds, fanouts, replace, offsets):
    """Write the running sum of the columns' picks to `offsets` (one longer than `seeds`)."""
    cumulative, types = without_refcount(cumulative), without_refcount(types)
    offsets[0] = 0
    total = np.int64(0)
    last = seeds.size - 1
    if cumulative.size == 0 and fanouts.size == 1 and not replace:
        # Deciding for each column what holds for all takes four times as long.
        limit = np.int64(np.iinfo(np.int64).max) if fanouts[0] < 0 else fanouts[0]
        for column in range(seeds.size):
            prefetch(indptr, np.intp(seeds[min(column + AHEAD, last)]))
            node = np.uintp(seeds[column])
            total += min(np.int64(indptr[node + np.uintp(1)]) - np.int64(indptr[node]), limit)
            offsets[column + 1] = total
        return
    for column in range(seeds.size):
        prefetch(indptr, np.intp(seeds[min(column + AHEAD, last)]))
        start, end = np.int64(indptr[seeds[column]]), np.int64(indptr[seeds[column] + 1])
        low = start
        while low < end:
            high, before, fanout = read_segment(types, cumulative, fanouts, start, low, end)
            total += count_picks(cumulative, low, high, before, fanout, replace)
            low = high
        offsets[column + 1] = total


@kernel
def fill_neighbors(indptr, cumulative, types, seeds, fanouts, replace, key, offsets, table, positions):
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    last, by_type = seeds.size - 1, fanouts.size > 1
    no_times = np.empty(0, np.int64)
    starts, degrees = np.empty(seeds.size, np.int64), np.empty(seeds.size, np.int64)
    for column in range(seeds.size):
        prefetch(indptr, np.intp(seeds[min(column + AHEAD, last)]))
        starts[column] = indptr[seeds[column]]
        degrees[column] = np.int64(indptr[seeds[column] + 1]) - starts[column]
    if cumulative.size > 0:
        columns = seeds, starts, starts, degrees
        fill_weighted(cumulative, types, no_times, fanouts, replace, key, table, columns, offsets, positions)
        return
    if not by_type and not replace:
        fill_plain(seeds, no_times, key, starts, degrees, offsets, table, positions)
        return
    for column in range(seeds.size):
        at, low = offsets[column], starts[column]
        end, state = low + degrees[column], node_state(key, seeds[column])
        while low < end and at < offsets[column + 1]:
            high, before, fanout = read_segment(types, cumulative, fanouts, low, low, end)
            count = count_picks(cumulative, low, high, before, fanout, replace)
            segment = typed_state(state, types[low]) if by_type else state
            if count > 0:
                pick(cumulative, low, high, before, count, replace, fanout, segment, positions, at, table)
            at += count
            low = high


@kernel
def group_by_type(types, positions, offsets, column_starts, destinations, bounds, indptr, grouped):
    """Sort sampled edges by edge type, inside a type by column and position; write each type's own indptr.

    Args:
        types: Edge type of each edge of the graph.
        positions: Sampled edges, column by column.
        offsets: Where each column's edges start in `positions`.
        column_starts: Where the columns of each node type start.
        destinations: Destination node type of each edge type.
        bounds: Where each edge type's indptr starts in `indptr`; written: nothing.
        indptr: Written: for each edge type the running count of its columns' edges.
        grouped: Written: the edges, type by type.
    """
    sort_picks(offsets, positions)
    kinds, starts = np.empty(positions.size, np.int32), np.zeros(destinations.size, np.int64)
    counts = np.zeros(destinations.size, np.int64)
    count_kinds(types, positions, kinds, counts)
    for edge_type in range(1, destinations.size):
        starts[edge_type] = starts[edge_type - 1] + counts[edge_type - 1]
    listed, begins = list_kinds(destinations, counts >= 0, column_starts.size - 1)
    split_picks(positions, kinds, offsets, column_starts, listed, begins, bounds, starts, indptr, grouped)
