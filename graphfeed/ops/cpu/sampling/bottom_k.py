"""The bottom-k of a column: its edges of the smallest variates. All LABOR kernels are made of these parts.

Edges compete by a fraction: a neighbour's variate over the edge's weight, or over 1. Fractions are compared by their
cross products in 128 bits, so two of them look equal only if they are. Ties go to the first edge: without such a rule
the result would depend on the order of the comparisons.

A variate has two halves, and nearly all edges are rejected by the upper one alone::

    63              32 31               0
    [    high bits    ][    low bits    ]
     32-bit products:   a 64-bit hash: computed
     LLVM turns their   only for the few edges
     loop into SIMD     that may be chosen

So a column costs little more than reading it. Where the weights are equal and few edges are wanted, those that may be
chosen are collected first: the candidates, in two arrays side by side::

    high bits:            [ 17 | 803 |  95 | 411 | FULL | FULL ...   padded to a multiple of LANES, for SIMD as well
    place in the column:  [  2 |  31 |  40 |  77 |

If the high bits of two nodes can't tell the last edge that is chosen from the first that is not, or if the guess of how
many candidates there would be was wrong, the column is scanned again with a heap of the best edges so far, the worst of
them on top. The result is the same.

Candidates make LABOR's mini-batches 1.3 to 1.6 times as fast as the heap alone (ogbn-products and ogbn-arxiv shaped
graphs, fan-outs (10, 10) and (15, 10, 5)); scalar code and a heap would be 2.1 to 4.5 times as slow.
"""

import numpy as np

from graphfeed.ops.cpu.jit import (
    always_inline,
    count_bits,
    device_function,
    less_product,
    lowest_bit,
    mark_below,
    multiply_high,
    prefetch,
)
from graphfeed.ops.cpu.random import SWITCH, draw_bits, high_bits, mix, variate

MAX_UINT64 = np.uint64(2**64 - 1)
ONE = np.uint64(1)
HALF_BITS = np.uint64(32)
TOP_BIT = np.uint64(1 << 63)
LIMIT_GROWTH = np.uint64(3)
"""The limit of a scan that has found too few edges grows by this many bits."""
LANES = 32
"""How many edges are compared with a limit at once: as many as fill four AVX2 registers."""
FULL = np.uint32(2**32 - 1)
MAX_COLLECTED = 48
"""Candidates are collected for up to this many picks: ranking them takes quadratic time."""
MAX_CANDIDATES = 4 * MAX_COLLECTED
WEIGHT_BITS = np.uint64(31)
"""A weight has at most `2**31` units."""
TIME_BITS = 48
"""Fractional bits of a waiting time."""
FROM_BITS_TO_TIME = np.uint64(64 - TIME_BITS)
CACHE_LINE = 64
COLUMNS_AHEAD = 2
LINES_AHEAD = 16
"""How far ahead a column is prefetched. The processor's own prefetcher stops at the end of each page of memory."""


@device_function
def is_worse(values, units, places, left, right):
    """Tell whether one entry's fraction exceeds another's, or equals it at a later place."""
    if less_product(values[right], units[left], values[left], units[right]):
        return True
    if less_product(values[left], units[right], values[right], units[left]):
        return False
    return places[left] > places[right]


@device_function
def swap(values, units, places, left, right):
    """Swap two entries."""
    values[left], values[right] = values[right], values[left]
    units[left], units[right] = units[right], units[left]
    places[left], places[right] = places[right], places[left]


@device_function
def push(values, units, places, size, value, unit, place):
    """Push an entry onto a heap of `size` entries; a full heap drops its worst. Return the new size."""
    capacity = places.size
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
def likely_limit(count, total):
    """Return a limit that a few more than `count` of the fractions are expected to lie below.

    Args:
        count: How many are wanted.
        total: The sum of the units: fractions of uniform variates have this density.
    """
    wanted = count + 2 * np.int64(np.sqrt(count)) + 4
    return MAX_UINT64 if wanted >= total else MAX_UINT64 // np.uint64(total) * np.uint64(wanted)


@always_inline
def high_limit(limit, per, bits):
    """Return the largest high bits of a value that, over a unit of up to `2**bits`, does not exceed `limit / per`."""
    whole = limit // per
    return MAX_UINT64 >> HALF_BITS if whole >= MAX_UINT64 >> bits else ((whole + ONE) << bits) >> HALF_BITS


@always_inline
def mark_edges(indices, edge, count, key, limit):
    """Return which of `count` edges have high bits up to a limit, as bits: the lowest for the first edge."""
    marks = np.uint64(0)
    for number in range(count):
        is_likely = high_bits(key, indices[np.uintp(edge + number)]) <= limit
        marks |= np.uint64(is_likely) << np.uint64(number)
    return marks


@always_inline
def mark_likely(indices, edge, count, first, second, switch, limit):
    """Do so with two keys.

    Args:
        indices: Source node of each edge.
        edge: The first edge.
        count: How many edges to mark, at most `LANES`.
        first: The first key, mixed.
        second: The second key, mixed.
        switch: Nodes whose high bits under `SWITCH` are below it draw by the second key.
        limit: The largest high bits to mark.
    """
    marks = mark_edges(indices, edge, count, first, limit)
    if switch != 0:
        switched = mark_edges(indices, edge, count, SWITCH, switch - ONE)
        marks = (marks & ~switched) | (mark_edges(indices, edge, count, second, limit) & switched)
    return marks


@always_inline
def mark_block(indices, block, end, first, second, switch, limit):
    """Do so for the `LANES` edges from `block` on, as far as the column goes."""
    left = end - block
    if block + LANES > indices.size:
        return mark_likely(indices, block, left, first, second, switch, limit)
    # LLVM makes SIMD code of a constant count alone, so the edges of the next column are marked too, and masked out.
    marks = mark_likely(indices, block, LANES, first, second, switch, limit)
    return marks if left >= LANES else marks & ((ONE << np.uint64(left)) - ONE)


@always_inline
def prefetch_values(values, first, count):
    """Prefetch the cache lines of `count` values."""
    for number in range(0, count, CACHE_LINE // values.itemsize):
        prefetch(values, np.intp(first + number))


@always_inline
def prefetch_column(indices, start, degree):
    """Prefetch the beginning of a column; `prefetch_ahead` goes on from there."""
    prefetch_values(indices, start, min(degree, LINES_AHEAD * (CACHE_LINE // indices.itemsize)))


@always_inline
def prefetch_ahead(indices, block, end):
    """Prefetch the edges of a column `LINES_AHEAD` cache lines after a block."""
    ahead = block + LINES_AHEAD * (CACHE_LINE // indices.itemsize)
    if ahead < end:
        prefetch_values(indices, ahead, LANES)


@always_inline
def collect_candidates(indices, low, high, limit, draws, words, high_halves, places):
    """Write the edges whose high bits are up to a limit; return how many there are. More than fit are not written.

    There are two passes, since how many edges of a block there are can't be predicted: with a loop over them inside of
    the loop over blocks, a column of 325 edges takes twice as long.

    Args:
        indices: Source node of each edge.
        low: Where the column starts.
        high: Where it ends.
        limit: The largest high bits.
        draws: The two keys and the switch threshold.
        words: Scratch: the marks of each block that has any, below where the block begins.
        high_halves: Written.
        places: Written: the edges' places in the column.
    """
    first, second, switch = mix(draws[0]), mix(draws[1]), draws[2] >> HALF_BITS
    size, used = np.int64(0), np.int64(0)
    for block in range(low, high, LANES):
        prefetch_ahead(indices, block, high)
        marks = mark_block(indices, block, high, first, second, switch, limit)
        words[np.uintp(min(used, MAX_CANDIDATES))] = np.uint64(block - low) << HALF_BITS | marks
        used += np.int64(marks != 0)
        size += count_bits(marks)
    if size > MAX_CANDIDATES:
        return size
    at, word = np.int64(0), words[0]
    for number in range(size):
        place = (word >> HALF_BITS) + np.uint64(lowest_bit(word))
        node = indices[np.uintp(low + np.int64(place))]
        key = second if high_bits(SWITCH, node) < switch else first
        high_halves[np.uintp(number)] = np.uint32(high_bits(key, node))
        places[np.uintp(number)] = np.uint32(place)
        word &= word - ONE
        is_done = np.uint32(word) == 0
        at += np.int64(is_done)
        word = words[np.uintp(at)] if is_done else word
    return size


@device_function
def pick_candidates(indices, high_halves, candidates, picked, size, low, places):
    """Choose as many edges as `places` holds from at least as many candidates; return whether the choice is certain.

    Args:
        indices: Source node of each edge.
        high_halves: Of the candidates; what follows in the last block of `LANES` is overwritten.
        candidates: Their places in the column; those of one node ascend.
        picked: Scratch, as long as there are candidates.
        size: How many there are.
        low: Where the column starts.
        places: Written.
    """
    chosen = np.int64(0)
    end = -(-size // LANES) * LANES
    for number in range(size, end):
        high_halves[np.uintp(number)] = FULL
    for number in range(size):
        value, rank = high_halves[np.uintp(number)], np.int64(0)
        for block in range(0, end, LANES):
            rank += count_bits(mark_below(high_halves, np.intp(block), value))
        # Whether a candidate is chosen can't be predicted, so there is no branch.
        picked[np.uintp(chosen)] = candidates[np.uintp(number)]
        chosen += np.int64(rank < places.size)
    # Equal high bits have one rank: if too many are chosen, the last of them are tied.
    if chosen != places.size:
        return pick_tied(indices, high_halves, candidates, size, low, places)
    for number in range(places.size):
        places[np.uintp(number)] = low + np.int64(picked[np.uintp(number)])
    return True


@device_function
def pick_tied(indices, high_halves, candidates, size, low, places):
    """Do as `pick_candidates` if those that are tied are parallel edges from one node: the first of them are chosen.

    Large columns have many of these, and else would be read whole. If the tied edges come from several nodes, their
    low bits decide, and the choice is not certain.
    """
    count, chosen, tied = places.size, 0, np.int64(-1)
    for number in range(size):
        value, below, before, equal = high_halves[number], 0, 0, 0
        for other in range(size):
            below += high_halves[other] < value
            equal += high_halves[other] == value
            before += other < number and high_halves[other] == value
        if below < count < below + equal:
            node = np.int64(indices[low + np.int64(candidates[number])])
            if tied >= 0 and node != tied:
                return False
            tied = node
        if below + before < count:
            places[chosen] = low + np.int64(candidates[number])
            chosen += 1
    return True


@always_inline
def pick_few(indices, low, high, draws, scratch, places):
    """Choose the edges of the smallest variates from collected candidates; return whether that was possible."""
    limit = likely_limit(places.size, high - low) >> HALF_BITS
    high_halves, candidates, picked = scratch[2], scratch[3], scratch[4]
    size = collect_candidates(indices, low, high, limit, draws, scratch[5], high_halves, candidates)
    return places.size <= size <= MAX_CANDIDATES and pick_candidates(
        indices, high_halves, candidates, picked, size, low, places
    )


@device_function
def waiting_time(bits):
    """Return the time of the first event of a Poisson process from 64 random bits: -log2(1 - bits / 2**64).

    The unit is `2**-TIME_BITS`. The logarithm is made by repeated squaring of integers, since the floating-point one
    differs between machines; it never falls as the bits grow.
    """
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
def pick_by_heap(indices, cumulative, low, high, before, replace, draws, scratch, places):
    """Choose as many edges as `places` holds, those of the smallest fractions, in the order of a heap.

    Without replacement an edge's value is the neighbour's variate. With replacement each neighbour has a Poisson
    process, which runs at the edge's weight, and the values are the times of its events. So each event falls on an
    edge with a chance in proportion to its weight, whatever came before, and columns share their neighbours' processes.
    """
    values, units = scratch[0], scratch[1]
    first, second, switch = mix(draws[0]), mix(draws[1]), draws[2] >> HALF_BITS
    count, weighted = places.size, cumulative.size > 0
    total = cumulative[high - 1] - before if weighted else high - low
    start = likely_limit(count, total)
    bits = WEIGHT_BITS if weighted else np.uint64(0)
    if replace:
        start = (start >> (FROM_BITS_TO_TIME - ONE)) | ONE
        bits += FROM_BITS_TO_TIME
    while True:
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
                    # Since -log2(1 - x) >= x, most edges are rejected without a logarithm.
                    if not less_product(state >> FROM_BITS_TO_TIME, per, limit, unit):
                        continue
                    value = waiting_time(state)
                event = 0
                while True:
                    if replace or size == count:
                        is_better = less_product(value, per, limit, unit)
                    else:
                        # Up to the limit and not below it: the largest variate there is must find a place.
                        is_better = not less_product(limit, unit, value, per)
                    if not is_better:
                        break
                    size = push(values, units, places, size, value, unit, edge)
                    if size == count:
                        limit, per = values[0], units[0]
                        highest = high_limit(limit, per, bits)
                    if not replace:
                        break
                    step = waiting_time(draw_bits(state, event))
                    value = value + step if value < MAX_UINT64 - step else MAX_UINT64
                    event += 1
        if size == count:
            return
        # The guess was too low: scan the column again with a higher limit.
        start = MAX_UINT64 if start > (MAX_UINT64 >> LIMIT_GROWTH) else start << LIMIT_GROWTH


@device_function
def sort(places):
    """Sort positions; a few, which are nearly in order, by insertion."""
    if places.size > MAX_COLLECTED:
        places.sort()
        return
    for number in range(1, places.size):
        place = places[number]
        at = number
        while at > 0 and places[at - 1] > place:
            places[at] = places[at - 1]
            at -= 1
        places[at] = place
