"""Kernel of one hop of LABOR: each column takes the neighbours whose shared variates are smallest."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, always_inline, device_function, kernel, prefetch, without_refcount
from graphfeed.ops.cpu.sampling.bottom_k import MAX_CANDIDATES, MAX_COLLECTED, pick_by_heap, pick_few, sort
from graphfeed.ops.cpu.sampling.pick import count_picks, read_segment, take_eligible


@device_function
def max_length(offsets):
    """Return the length of the longest column."""
    longest = np.int64(0)
    for column in range(offsets.size - 1):
        longest = max(longest, np.int64(offsets[column + 1]) - np.int64(offsets[column]))
    return longest


@device_function
def new_scratch(offsets):
    """Return room for the values and units of a heap of any column's picks, and for candidates."""
    size = max_length(offsets)
    values, units = np.empty(size, np.uint64), np.empty(size, np.uint64)
    candidates = np.empty((3, MAX_CANDIDATES), np.uint32)
    return values, units, candidates[0], candidates[1], candidates[2], np.empty(MAX_CANDIDATES + 1, np.uint64)


@device_function
def uncounted(scratch):
    """Return the scratch arrays without their reference counts, for a loop whose caller keeps them."""
    values, units, high_halves, candidates, picked, words = scratch
    return (
        without_refcount(values), without_refcount(units), without_refcount(high_halves),
        without_refcount(candidates), without_refcount(picked), without_refcount(words),
    )  # fmt: skip


@always_inline
def pick_labor(indices, cumulative, low, high, before, replace, fanout, draws, scratch, places):
    """Write the edges that a segment is sampled to, in ascending order: as many as `places` holds by `count_picks`.

    Args:
        indices: Source node of each edge.
        cumulative: Fixed-point weights, or empty.
        low: The first edge of the segment.
        high: Where the segment ends.
        before: The cumulative weight in front of it.
        replace: Whether an edge may be chosen more than once.
        fanout: Of the segment.
        draws: The two keys and the switch threshold.
        scratch: As `new_scratch` makes it.
        places: Written.
    """
    count, repeats = places.size, replace and fanout > 0
    if not repeats and count == high - low:
        for number in range(count):
            places[number] = low + number
        return
    if not repeats and cumulative.size > 0 and (fanout < 0 or count < fanout):
        take_eligible(cumulative, low, high, before, places, 0)
        return
    few = not repeats and cumulative.size == 0 and count <= MAX_COLLECTED
    if few and pick_few(indices, low, high, draws, scratch, places):
        return
    pick_by_heap(indices, cumulative, low, high, before, repeats, draws, scratch, places)
    sort(places)


@kernel
def fill_labor_neighbors(
    indptr, indices, cumulative, types, seeds, fanouts, replace, keys, switch_threshold, offsets, positions
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    last = seeds.size - 1
    draws, scratch = (keys[0], keys[1], switch_threshold), new_scratch(offsets)
    for column in range(seeds.size):
        prefetch(indptr, np.intp(seeds[min(column + AHEAD, last)]))
        start, end = np.int64(indptr[seeds[column]]), np.int64(indptr[seeds[column] + 1])
        at = offsets[column]
        low = end if at == offsets[column + 1] else start
        while low < end:
            high, before, fanout = read_segment(types, cumulative, fanouts, start, low, end)
            count = count_picks(cumulative, low, high, before, fanout, replace)
            if count > 0:
                places = positions[at : at + count]
                pick_labor(indices, cumulative, low, high, before, replace, fanout, draws, scratch, places)
            at += count
            low = high
