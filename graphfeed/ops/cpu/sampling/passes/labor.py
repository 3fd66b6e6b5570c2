"""Passes of LABOR: each run picks its edges with the smallest variates, its bottom-k.

Edges are compared by a fraction: the neighbour's variate over the edge's weight, or over 1. Fractions are compared by
cross products in 128 bits, so only equal fractions compare equal. Ties go to the first edge.

The high 32 bits of a variate need only 32-bit products, which LLVM vectorizes, and reject nearly all edges. The low
bits, from a 64-bit hash, are computed for the few remaining ones. These are collected first (`candidates.py`), or the
column is scanned with a heap of the best edges so far, whose top is the worst of them.
"""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import (
    UInt64s,
    device_function,
    kernel,
    less_product,
    lowest_bit,
    multiply_high,
)
from graphfeed.ops.cpu.random import draw_bits, mix, variate
from graphfeed.ops.cpu.sampling.passes.columns import fanout_of
from graphfeed.ops.cpu.sampling.passes.layout import sort_values
from graphfeed.ops.cpu.sampling.passes.marks import (
    HALF_BITS,
    LANES,
    MAX_UINT64,
    ONE,
    likely_limit,
    mark_block,
    prefetch_ahead,
)
from graphfeed.ops.cpu.sampling.passes.state import COUNT, PickBlock, Runs, Sources, Sums
from graphfeed.ops.cpu.sampling.passes.weighted import take_eligible, weight_before

TOP_BIT = np.uint64(1 << 63)
LIMIT_GROWTH = np.uint64(3)
"""Number of bits by which the limit grows after a scan that has found too few edges."""
MOST_SCANS = 1 + 64 // 3
"""Maximum number of scans: the limit of the last one is the largest value, even if the first one is 1."""
WEIGHT_BITS = np.uint64(31)
"""A weight has at most `2**31` units."""
TIME_BITS = 48
"""Fractional bits of a waiting time."""
FROM_BITS_TO_TIME = np.uint64(64 - TIME_BITS)
NOT_YET = np.int64(-1)
"""First position of a run whose edges are not chosen yet."""


class Heap(NamedTuple):
    """Scratch: the value and the weight of each edge in the heap."""

    values: UInt64s
    units: UInt64s


@kernel
def fill_labor(
    sources: Sources, sums: Sums, replace: bool, fill_all: bool, draws: UInt64s, columns: Runs, heap: Heap,
    picks: PickBlock,
) -> None:  # fmt: skip
    """Write the picks of each run in ascending order. Reads all edges of the run."""
    positions, indices, cumulative = picks.positions, sources.indices, sums.cumulative
    for number in range(columns.sizes[COUNT]):
        run = np.uintp(number)
        at, low, degree = columns.offsets[run], columns.starts[run], columns.degrees[run]
        count, fanout = columns.offsets[run + np.uintp(1)] - at, fanout_of(columns, number)
        # Unless `fill_all`, only runs that candidates have left undecided.
        if count == 0 or not (fill_all or positions[np.uintp(at)] == NOT_YET):
            continue
        repeats, places = replace and fanout > 0, positions[at : at + count]
        if not repeats and count == degree:
            for place in range(count):
                places[np.uintp(place)] = low + place
        elif not repeats and cumulative.size > 0 and (fanout < 0 or count < fanout):
            take_eligible(cumulative, columns, number, positions)
        else:
            pick_by_heap(indices, cumulative, columns, run, repeats, draws, heap, places)
            sort_values(places)


@device_function
def pick_by_heap(indices, cumulative, columns, run, replace, draws, heap, places):
    """Choose the `places.size` edges with the smallest fractions, in the order of a heap."""
    # Without replacement, the value of an edge is the neighbour's variate. With replacement, each neighbour has a
    # Poisson process whose rate is the edge's weight, and the values are the times of its events. So the probability
    # that an event falls on an edge is proportional to its weight, whatever came before, and columns share the
    # processes of their neighbours. A process can distinguish some 45,000 events of its heaviest edges; further picks
    # go to the first of these.
    values, units, low = heap.values, heap.units, columns.starts[run]
    high, before = low + columns.degrees[run], np.int64(0)
    if cumulative.size > 0:
        before = weight_before(cumulative, columns.bases[run], low)
    first, second, switch = mix(draws[0]), mix(draws[1]), draws[2] >> HALF_BITS
    count, weighted = places.size, cumulative.size > 0
    start = likely_limit(count, cumulative[high - 1] - before if weighted else high - low)
    bits = WEIGHT_BITS if weighted else np.uint64(0)
    if replace:
        start = (start >> (FROM_BITS_TO_TIME - ONE)) | ONE
        bits += FROM_BITS_TO_TIME
    for _ in range(MOST_SCANS):
        limit, per, size = start, ONE, 0
        highest = high_limit(limit, per, bits)
        for block in range(low, high, LANES):
            prefetch_ahead(indices, block, high)
            marks = mark_block(indices, block, high, first, second, switch, highest)
            while marks != 0:
                edge = block + lowest_bit(marks)
                marks &= marks - ONE
                unit = ONE
                if weighted:
                    unit = np.uint64(cumulative[edge] - (before if edge == low else cumulative[edge - 1]))
                if unit == 0:
                    continue
                state = variate(draws[0], draws[1], draws[2], indices[np.uintp(edge)])
                value = state
                if replace:
                    # Because -log2(1 - x) >= x, most edges are rejected without a logarithm.
                    if less_product(limit, unit, state >> FROM_BITS_TO_TIME, per):
                        continue
                    value = waiting_time(state)
                for event in range(count):
                    if size == count:
                        is_better = less_product(value, per, limit, unit)
                    else:
                        # Including the limit itself, so that the largest possible variate or time is accepted.
                        is_better = not less_product(limit, unit, value, per)
                    if not is_better:
                        break
                    size = push_heap(values, units, places, size, value, unit, edge)
                    if size == count:
                        limit, per = values[0], units[0]
                        highest = high_limit(limit, per, bits)
                    if not replace:
                        break
                    step = waiting_time(draw_bits(state, event))
                    value = value + step if value < MAX_UINT64 - step else MAX_UINT64
        if size == count:
            return
        # The limit was too low: scan the column again with a higher one.
        start = MAX_UINT64 if start > (MAX_UINT64 >> LIMIT_GROWTH) else start << LIMIT_GROWTH


@device_function
def high_limit(limit, per, bits):
    """Return the largest high bits of a value that, divided by up to `2**bits` units, does not exceed `limit / per`."""
    whole = limit // per
    return MAX_UINT64 >> HALF_BITS if whole >= MAX_UINT64 >> bits else ((whole + ONE) << bits) >> HALF_BITS


@device_function
def waiting_time(bits):
    """Return the time of the first event of a Poisson process from 64 random bits: -log2(1 - bits / 2**64)."""
    # The unit is `2**-TIME_BITS`. The logarithm is computed by repeated squaring of integers, since floating-point
    # logarithms differ between machines. It increases monotonically with the bits.
    rest = ~bits | ONE
    time = np.uint64(0)
    while rest < TOP_BIT:
        rest <<= ONE
        time += ONE
    for _ in range(TIME_BITS):
        rest = multiply_high(rest, rest)
        time <<= ONE
        if rest < TOP_BIT:
            rest <<= ONE
            time += ONE
    return time


@device_function
def push_heap(values, units, places, size, value, unit, place):
    """Push an entry onto a heap of `size` entries, and return the new size. A full heap drops its worst entry."""
    capacity = places.size
    # The worst entry is on top.
    entry = size if size < capacity else 0
    values[entry], units[entry], places[entry] = value, unit, place
    if size < capacity:
        while entry > 0 and is_worse(values, units, places, entry, (entry - 1) >> 1):
            swap(values, units, places, entry, (entry - 1) >> 1)
            entry = (entry - 1) >> 1
        return size + 1
    while 2 * entry + 1 < capacity:
        child = 2 * entry + 1
        if child + 1 < capacity and is_worse(values, units, places, child + 1, child):
            child += 1
        if not is_worse(values, units, places, child, entry):
            break
        swap(values, units, places, child, entry)
        entry = child
    return size


@device_function
def is_worse(values, units, places, left, right):
    """Return whether the left entry has the larger fraction, or the same fraction and a later position."""
    if less_product(values[right], units[left], values[left], units[right]):
        return True
    if less_product(values[left], units[right], values[right], units[left]):
        return False
    return places[left] > places[right]


@device_function
def swap(values, units, places, left, right):
    values[left], values[right] = values[right], values[left]
    units[left], units[right] = units[right], units[left]
    places[left], places[right] = places[right], places[left]
