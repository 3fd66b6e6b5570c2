"""Kernels of one temporal hop: count the picks of each column, fill in their positions."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.random import timed_state, typed_state
from graphfeed.ops.cpu.sampling.pick import count_picks, pick, read_segment, weight_before
from graphfeed.ops.cpu.sampling.temporal_eligibility import (
    base_of_columns,
    eligible_run,
    filter_run,
    max_degree,
    place_ranks,
)


@device_function
def count_eligible_picks(earliest, cumulative, low, high, before, first, fanout, replace, found, sums):
    """Count what is picked of a run, after filtering it if its edges have a second time; return the run's size, too."""
    if earliest.size > 0:
        size = filter_run(earliest, cumulative, low, high, before, first, found, sums)
        return count_picks(sums[: size if cumulative.size > 0 else 0], 0, size, np.int64(0), fanout, replace), size
    return count_picks(cumulative, low, high, before, fanout, replace), high - low


@device_function
def count_in_time(
    indptr, times, earliest, cumulative, types, seeds, firsts, limits, fanouts, replace, offsets
):  # fmt: skip
    """Write the running sum of the columns' picks to `offsets` (one longer than `seeds`)."""
    offsets[0] = 0
    total = np.int64(0)
    windowed = firsts.size > 0
    late = earliest if windowed else earliest[:0]
    size = max_degree(indptr, seeds) if late.size > 0 else 0
    found, sums = np.empty(size, np.int64), np.empty(size, np.int64)
    for column in range(seeds.size):
        start, end = np.int64(indptr[seeds[column]]), np.int64(indptr[seeds[column] + 1])
        first = firsts[column] if windowed else np.int64(0)
        low = start
        while low < end:
            high, _, fanout = read_segment(types, cumulative, fanouts, start, low, end)
            bottom, top = eligible_run(times, low, high, first, limits[column], windowed)
            before = weight_before(cumulative, start, bottom)
            count, _ = count_eligible_picks(late, cumulative, bottom, top, before, first, fanout, replace, found, sums)
            total += count
            low = high
        offsets[column + 1] = total


@device_function
def fill_ranks(
    indptr, times, earliest, cumulative, types, seeds, firsts, limits, fanouts, replace, latest, key, offsets, table,
    ranks,
):  # fmt: skip
    """Write the ranks of the sampled edges of each column, a column's edge types in ascending order."""
    windowed = firsts.size > 0
    late = earliest if windowed else earliest[:0]
    size = max_degree(indptr, seeds) if late.size > 0 else 0
    found, sums = np.empty(size, np.int64), np.empty(size, np.int64)
    for column in range(seeds.size):
        start, end = np.int64(indptr[seeds[column]]), np.int64(indptr[seeds[column] + 1])
        first = firsts[column] if windowed else np.int64(0)
        state = timed_state(key, seeds[column], limits[column])
        at = offsets[column]
        low = end if at == offsets[column + 1] else start
        while low < end:
            high, _, fanout = read_segment(types, cumulative, fanouts, start, low, end)
            bottom, top = eligible_run(times, low, high, first, limits[column], windowed)
            before = weight_before(cumulative, start, bottom)
            count, size = count_eligible_picks(
                late, cumulative, bottom, top, before, first, fanout, replace, found, sums
            )  # fmt: skip
            weights = cumulative
            if late.size > 0:
                weights, before = sums[: size if cumulative.size > 0 else 0], np.int64(0)
                bottom, top = np.int64(0), np.int64(size)
            if latest:
                for number in range(count):
                    ranks[at + number] = top - count + number
            elif count > 0:
                segment = typed_state(state, types[low]) if fanouts.size > 1 else state
                pick(weights, bottom, top, before, count, replace, fanout, segment, ranks, at, table)
            for edge in range(at, at + count if late.size > 0 else at):
                ranks[edge] = found[ranks[edge]]
            at += count
            low = high


@kernel
def count_temporal_neighbors(
    indptr, times, earliest, cumulative, types, seeds, firsts, limits, fanouts, replace, offsets
):  # fmt: skip
    """Write the running sum of the columns' picks to `offsets` (one longer than `seeds`)."""
    count_in_time(indptr, times, earliest, cumulative, types, seeds, firsts, limits, fanouts, replace, offsets)


@kernel
def fill_temporal_neighbors(
    indptr, times, earliest, cumulative, types, order, seeds, firsts, limits, fanouts, replace, latest, key, offsets,
    table, positions,
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    fill_ranks(
        indptr, times, earliest, cumulative, types, seeds, firsts, limits, fanouts, replace, latest, key, offsets,
        table, positions,
    )  # fmt: skip
    if order.size > 0:
        place_ranks(order, np.empty(0, np.int64), base_of_columns(indptr, seeds), offsets, positions)
