"""Passes of LABOR for small fan-outs without weights and replacement: the edges that may be chosen are collected first.

The candidates of a run lie in two arrays side by side::

    high bits:         [ 17 | 803 |  95 | 411 | FULL | FULL ...   padded to a multiple of LANES, for SIMD
    place in the run:  [  2 |  31 |  40 |  77 |

If their high bits can't tell which edges are chosen, or they are too many, the run is left to the heap of `labor.py`,
which alone is 1.3 to 1.6 times as slow. A high-degree column is not read: a pass draws the variate of every node of the
graph, and for the few small ones an index tells which of these columns they are sources of.
"""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import (
    Int32s,
    Int64s,
    UInt32Matrix,
    UInt32s,
    UInt64s,
    count_bits,
    device_function,
    kernel,
    lowest_bit,
    mark_below,
)
from graphfeed.ops.cpu.random import SWITCH, high_bits, mix
from graphfeed.ops.cpu.sampling.passes.labor import NOT_YET
from graphfeed.ops.cpu.sampling.passes.layout import sort_values
from graphfeed.ops.cpu.sampling.passes.marks import (
    COLUMNS_AHEAD,
    HALF_BITS,
    LANES,
    ONE,
    likely_limit,
    mark_block,
    prefetch_ahead,
    prefetch_column,
)
from graphfeed.ops.cpu.sampling.passes.state import COUNT, UNDECIDED, Picks, Runs, Sources

FULL = np.uint32(2**32 - 1)
MAX_COLLECTED = 48
"""Candidates are collected for up to this many picks: ranking them takes quadratic time."""
MAX_CANDIDATES = 4 * MAX_COLLECTED
BATCH = 1024
"""How many nodes of small variates are collected before they are looked up, so that look-ups can be prefetched."""


class Candidates(NamedTuple):
    """Scratch: the candidates of a run, those that are chosen, and the marks of its blocks."""

    high_halves: UInt32s
    places: UInt32s
    chosen: UInt32s
    words: UInt64s


class Index(NamedTuple):
    """The arrays of a `HighDegreeIndex`; empty arrays index nothing."""

    columns: Int64s
    degrees: Int64s
    starts: Int64s
    entries: Int64s


class Buckets(NamedTuple):
    """The candidates that the index finds, for each of its columns that a hop meets."""

    of_index: Int32s
    """The bucket of each column of the index, or -1."""
    of_runs: Int32s
    """The bucket of each run, or -1."""
    limits: UInt32s
    """The largest high bits of each column of the index."""
    counts: Int64s
    """Of each bucket how many candidates there are, which may be more than there is room for."""
    high_halves: UInt32Matrix
    places: UInt32Matrix
    nodes: Int64s
    """Scratch for a batch of nodes."""


@kernel
def fill_likely(
    sources: Sources, draws: UInt64s, columns: Runs, candidates: Candidates, buckets: Buckets, picks: Picks
) -> int:
    """Write the picks of runs, ascending, where collected candidates decide; in others, `NOT_YET` for the first."""
    positions, indices, code = picks.positions, sources.indices, 0
    last, indexed = columns.sizes[COUNT] - 1, buckets.of_runs.size > 0
    for number in range(last + 1):
        run, coming = np.uintp(number), np.uintp(min(number + COLUMNS_AHEAD, last))
        if not indexed or buckets.of_runs[coming] < 0:
            prefetch_column(indices, columns.starts[coming], columns.degrees[coming])
        at, low, degree = columns.offsets[run], columns.starts[run], columns.degrees[run]
        places = positions[at : columns.offsets[run + np.uintp(1)]]
        if places.size == degree:
            for place in range(degree):
                places[np.uintp(place)] = low + place
        # A run costs little more than reading all its edges; one that has a bucket, less than its picks.
        elif places.size > 0:
            bucket = buckets.of_runs[run] if indexed else np.int32(-1)
            high_halves, found, size = candidates.high_halves, candidates.places, np.int64(-1)
            if bucket >= 0:
                high_halves, found = buckets.high_halves[bucket], buckets.places[bucket]
                size = buckets.counts[np.uintp(bucket)]
            elif places.size <= MAX_COLLECTED:
                size = collect_candidates(indices, low, low + degree, places.size, draws, candidates)
            fits = places.size <= size <= high_halves.size
            if not (fits and choose(indices, high_halves, found, candidates.chosen, size, low, places)):
                places[0], code = NOT_YET, UNDECIDED
            # A bucket's candidates come in the order of the nodes.
            elif bucket >= 0:
                sort_values(places)
    return code


@device_function
def collect_candidates(sources, low, high, count, draws, candidates):
    """Write the edges of small high bits, `count` or more; return how many there are. More than fit are not written."""
    # Two passes, since how many edges of a block there are can't be predicted: with a loop over them inside of the loop
    # over blocks, a column of 325 edges takes twice as long.
    first, second, switch = mix(draws[0]), mix(draws[1]), draws[2] >> HALF_BITS
    words, size, wanted = candidates.words, np.int64(0), count
    while size < count:
        # Nearly always the first guess is right.
        limit, size, used = likely_limit(wanted, high - low) >> HALF_BITS, np.int64(0), np.int64(0)
        for block in range(low, high, LANES):
            prefetch_ahead(sources, block, high)
            marks = mark_block(sources, block, high, first, second, switch, limit)
            words[np.uintp(min(used, MAX_CANDIDATES))] = np.uint64(block - low) << HALF_BITS | marks
            used += np.int64(marks != 0)
            size += count_bits(marks)
        wanted *= 2
    if size > MAX_CANDIDATES:
        return size
    # A word has the place of a block in its upper half, and the marks of its edges that are not read yet in the lower.
    at, word = np.int64(0), words[0]
    for number in range(size):
        place = (word >> HALF_BITS) + np.uint64(lowest_bit(word))
        node = sources[np.uintp(low + np.int64(place))]
        key = second if high_bits(SWITCH, node) < switch else first
        candidates.high_halves[np.uintp(number)] = np.uint32(high_bits(key, node))
        candidates.places[np.uintp(number)] = np.uint32(place)
        word &= word - ONE
        is_done = np.uint32(word) == 0
        at += np.int64(is_done)
        word = words[np.uintp(at)] if is_done else word
    return size


@device_function
def choose(sources, high_halves, candidates, chosen, size, low, places):
    """Choose as many edges as `places` holds from at least as many candidates; return whether the choice is certain."""
    count = np.int64(0)
    end = -(-size // LANES) * LANES
    # So that what follows in the last block of lanes is below nothing.
    for number in range(size, end):
        high_halves[np.uintp(number)] = FULL
    for number in range(size):
        value, rank = high_halves[np.uintp(number)], np.int64(0)
        for block in range(0, end, LANES):
            rank += count_bits(mark_below(high_halves, block, value))
        # Whether a candidate is chosen can't be predicted, so there is no branch.
        chosen[np.uintp(count)] = candidates[np.uintp(number)]
        count += np.int64(rank < places.size)
    # Equal high bits have one rank: if too many are chosen, the last of them are tied.
    if count != places.size:
        return choose_tied(sources, high_halves, candidates, size, low, places)
    for number in range(places.size):
        places[np.uintp(number)] = low + np.int64(chosen[np.uintp(number)])
    return True


@device_function
def choose_tied(sources, high_halves, candidates, size, low, places):
    """Like `choose`, where those that are tied are parallel edges from one node: the first of them are chosen."""
    # Large columns have many of these, and else would be read by the heap.
    count, chosen, tied = places.size, 0, np.int64(-1)
    for number in range(size):
        value, below, before, equal = high_halves[number], 0, 0, 0
        for other in range(size):
            below += high_halves[other] < value
            equal += high_halves[other] == value
            before += other < number and high_halves[other] == value
        if below < count < below + equal:
            node = np.int64(sources[low + np.int64(candidates[number])])
            # The low bits of several nodes decide, so the choice is not certain.
            if tied >= 0 and node != tied:
                return False
            tied = node
        if below + before < count:
            places[chosen] = low + np.int64(candidates[number])
            chosen += 1
    return True
