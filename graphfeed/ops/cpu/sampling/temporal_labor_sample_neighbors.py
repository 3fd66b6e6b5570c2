"""Kernel of one temporal hop of LABOR: the eligible edges whose neighbours' shared variates are smallest."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.sampling.labor_sample_neighbors import new_scratch, pick_labor
from graphfeed.ops.cpu.sampling.pick import count_picks, read_segment, weight_before
from graphfeed.ops.cpu.sampling.temporal_eligibility import (
    base_of_columns,
    eligible_run,
    filter_run,
    max_degree,
    place_ranks,
)


@device_function
def read_sources(indices, order, links, start, low, high, sources):
    """Return the sources of the edges of a run of ranks: a view if ranks are positions, else a copy in `sources`."""
    if links.size > 0:
        for rank in range(low, high):
            sources[np.uintp(rank - low)] = np.uint32(links[np.uintp(rank)])
        return sources[: high - low]
    if order.size == 0:
        return indices[low:high]
    for rank in range(low, high):
        sources[rank - low] = indices[np.uintp(start + order[np.uintp(rank)])]
    return sources[: high - low]


@device_function
def fill_labor_ranks(
    indptr, times, earliest, cumulative, types, indices, order, links, seeds, firsts, limits, fanouts, replace, draws,
    offsets, ranks,
):  # fmt: skip
    """Write the ranks of the sampled edges of each column, a column's edge types in ascending order."""
    windowed = firsts.size > 0
    late = earliest if windowed else earliest[:0]
    scratch, size = new_scratch(offsets), max_degree(indptr, seeds)
    sources = np.empty(size, indices.dtype)
    found, sums = np.empty(size, np.int64), np.empty(size, np.int64)
    for column in range(seeds.size):
        start, end = np.int64(indptr[seeds[column]]), np.int64(indptr[seeds[column] + 1])
        first = firsts[column] if windowed else np.int64(0)
        at = offsets[column]
        low = end if at == offsets[column + 1] else start
        while low < end:
            high, _, fanout = read_segment(types, cumulative, fanouts, start, low, end)
            bottom, top = eligible_run(times, low, high, first, limits[column], windowed)
            before = weight_before(cumulative, start, bottom)
            own = read_sources(indices, order, links, start, bottom, top, sources)
            weights = cumulative[bottom:top] if cumulative.size > 0 else cumulative
            size = top - bottom
            if late.size > 0:
                size = np.int64(filter_run(late, cumulative, bottom, top, before, first, found, sums))
                for number in range(size):
                    sources[number] = own[found[number] - bottom]
                own, before = sources[:size], np.int64(0)
                weights = sums[: size if cumulative.size > 0 else 0]
            count = count_picks(weights, 0, size, before, fanout, replace)
            if count > 0:
                places = ranks[at : at + count]
                pick_labor(own, weights, 0, size, before, replace, fanout, draws, scratch, places)
            for edge in range(at, at + count):
                ranks[edge] = found[ranks[edge]] if late.size > 0 else bottom + ranks[edge]
            at += count
            low = high


@kernel
def fill_temporal_labor_neighbors(
    indptr, times, earliest, cumulative, types, indices, order, seeds, firsts, limits, fanouts, replace, keys,
    switch_threshold, offsets, positions,
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    no_links = np.empty(0, np.int64)
    fill_labor_ranks(
        indptr, times, earliest, cumulative, types, indices, order, no_links, seeds, firsts, limits, fanouts, replace,
        (keys[0], keys[1], switch_threshold), offsets, positions,
    )  # fmt: skip
    if order.size > 0:
        place_ranks(order, no_links, base_of_columns(indptr, seeds), offsets, positions)
