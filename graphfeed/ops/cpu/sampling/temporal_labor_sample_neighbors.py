"""Kernels of layer-neighbour sampling in time: the admitted edges whose shared variates are smallest."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.sampling.bottom_k import ROOM
from graphfeed.ops.cpu.sampling.labor_sample_neighbors import longest, pick_labor
from graphfeed.ops.cpu.sampling.pick import count_picks
from graphfeed.ops.cpu.sampling.temporal_eligibility import (
    close_timed_hop,
    cut,
    gather,
    most_edges,
    open_timed_hop,
    weight_before,
)
from graphfeed.ops.cpu.sampling.time_order import run_end
from graphfeed.ops.cpu.simd import LANES


@device_function
def read_run(indices, order, links, start, low, high, sources):
    """Return the sources of the edges of a run of ranks: a view where ranks are positions."""
    if links.size > 0:
        for rank in range(low, high):
            sources[np.uintp(rank - low)] = np.uint32(links[np.uintp(rank)])
        return sources[: high - low]
    if order.size == 0:
        return indices[low:high]
    for rank in range(low, high):
        sources[rank - low] = indices[np.uintp(start + order[np.uintp(rank)])]
    return sources[: high - low]


@kernel
def fill_timed_layer_neighbors(
    indptr, times, earliest, cumulative, types, indices, order, seeds, firsts, limits, fanouts, replace, keys, share,
    offsets, positions,
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    by_type = fanouts.size > 1
    windowed = firsts.size > 0
    late = earliest if windowed else earliest[:0]
    most = max(longest(offsets), ROOM)
    values, units, room = np.empty(most, np.uint64), np.empty(most, np.uint64), np.empty(ROOM, np.uint64)
    uppers = np.empty(LANES, np.uint32)
    size = most_edges(indptr, seeds)
    sources = np.empty(size, indices.dtype)
    found, sums = np.empty(size, np.int64), np.empty(size, np.int64)
    for column in range(seeds.size):
        start, end = np.int64(indptr[seeds[column]]), np.int64(indptr[seeds[column] + 1])
        first = firsts[column] if windowed else np.int64(0)
        at = offsets[column]
        low = end if at == offsets[column + 1] else start
        while low < end:
            high = run_end(types, low, end) if by_type else end
            fanout = fanouts[types[low]] if by_type else fanouts[0]
            bottom, top = cut(times, low, high, first, limits[column], windowed)
            before = weight_before(cumulative, start, bottom)
            own = read_run(indices, order, order[:0], start, bottom, top, sources)
            weights = cumulative[bottom:top] if cumulative.size > 0 else cumulative
            many = top - bottom
            if late.size > 0:
                many = gather(late, cumulative, bottom, top, before, first, found, sums)
                for number in range(many):
                    sources[number] = own[found[number] - bottom]
                own, before = sources[:many], np.int64(0)
                weights = sums[: many if cumulative.size > 0 else 0]
            count = count_picks(weights, 0, many, before, fanout, replace)
            if count > 0:
                pick_labor(
                    own, weights, 0, many, before, replace, fanout, keys[0], keys[1], share, values, units, room,
                    uppers, positions[at : at + count],
                )  # fmt: skip
            for edge in range(at, at + count):
                rank = found[positions[edge]] if late.size > 0 else bottom + positions[edge]
                positions[edge] = start + order[rank] if order.size > 0 else rank
            at += count
            low = high


@device_function
def fill_hop(
    indices, order, links, cumulative, fanout, replace, keys, share, bases, starts, sizes, out_indptr, positions
):  # fmt: skip
    """Write the ranks of the sampled edges of each node of a hop."""
    most = max(longest(out_indptr), ROOM)
    values, units, room = np.empty(most, np.uint64), np.empty(most, np.uint64), np.empty(ROOM, np.uint64)
    uppers = np.empty(LANES, np.uint32)
    size = np.int64(0)
    for row in range(starts.size):
        size = max(size, sizes[row])
    sources = np.empty(size if order.size > 0 or links.size > 0 else 0, indices.dtype)
    for row in range(starts.size):
        at, to = np.int64(out_indptr[row]), np.int64(out_indptr[row + 1])
        if at == to:
            continue
        low, high = starts[row], starts[row] + sizes[row]
        if to - at == sizes[row] and not replace:
            for number in range(to - at):
                positions[at + number] = low + number
            continue
        own = read_run(indices, order, links, bases[row], low, high, sources)
        weights = cumulative[low:high] if cumulative.size > 0 else cumulative
        before = weight_before(cumulative, bases[row], low)
        pick_labor(
            own, weights, 0, high - low, before, replace, fanout, keys[0], keys[1], share, values, units, room, uppers,
            positions[at:to],
        )  # fmt: skip
        for edge in range(at, to):
            positions[edge] += low


@kernel
def temporal_labor_sample_hops(
    indptr, indices, times, order, links, edge_times, cumulative, fanouts, replace, window, keys, share, hop,
    nodes, row_times, node_counts, bases, starts, sizes, out_indptr, edge_counts, positions, neighbors,
):  # fmt: skip
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `sample_hops`)."""
    while hop < fanouts.size:
        row = open_timed_hop(
            indptr, times, cumulative, fanouts, replace, window, hop, nodes, row_times, node_counts, bases, starts,
            sizes, out_indptr, edge_counts, positions,
        )  # fmt: skip
        if row < 0:
            return hop
        count = node_counts[hop]
        rows = out_indptr[row : row + count + 1]
        picked = positions[edge_counts[hop] : edge_counts[hop + 1]]
        fill_hop(
            indices, order, links, cumulative, fanouts[hop], replace, keys[hop], share, bases[:count],
            starts[:count], sizes[:count], rows, picked,
        )  # fmt: skip
        close_timed_hop(
            indices, order, links, edge_times, hop, nodes, row_times, node_counts, bases, rows, edge_counts,
            positions, neighbors,
        )  # fmt: skip
        hop += 1
    return hop
