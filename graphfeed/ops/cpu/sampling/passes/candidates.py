"""Passes of LABOR for small fan-outs without weights and replacement, which collect candidates first.

The candidates of a run, edges that may be picked, are stored in two parallel arrays::

    high bits:         [ 17 | 803 |  95 | 411 | FULL | FULL ...   padded to a multiple of LANES, for SIMD
    place in the run:  [  2 |  31 |  40 |  77 |

If their high bits don't decide which edges are picked, or there are too many candidates, the run is left to the heap of
`labor.py`, which is 1.3 to 1.6 times as slow. High-degree columns are not read: one pass draws the variate of every
node of the graph, and for the few small ones an index lists the high-degree columns with the node as a source.
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
    lanes_below,
    lowest_bit,
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
from graphfeed.ops.cpu.sampling.passes.state import COUNT, UNDECIDED, PickBlock, Runs, Sources

FULL = np.uint32(2**32 - 1)
MAX_COLLECTED = 48
"""Maximum number of picks for which candidates are collected: ranking them takes quadratic time."""
MAX_CANDIDATES = 4 * MAX_COLLECTED
BATCH = 1024
"""Number of nodes with small variates that are looked up together, so that lookups can be prefetched."""


class Candidates(NamedTuple):
    """Scratch: the candidates of a run, the chosen ones, and the marks of its blocks."""

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
    """Candidates found by the index, for each of its columns that occurs in a hop."""

    of_index: Int32s
    """Bucket of each column of the index, or -1."""
    of_runs: Int32s
    """Bucket of each run, or -1."""
    limits: UInt32s
    """Limit of the high bits of each column of the index."""
    counts: Int64s
    """Number of candidates of each bucket. It may exceed the capacity."""
    high_halves: UInt32Matrix
    places: UInt32Matrix
    nodes: Int64s
    """Scratch for a batch of nodes."""


@kernel
def fill_likely(
    sources: Sources, draws: UInt64s, columns: Runs, candidates: Candidates, buckets: Buckets, picks: PickBlock
) -> int:
    """Write the ascending picks of runs that candidates decide. The first pick of other runs becomes `NOT_YET`."""
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
        # A run costs little more than a scan of its edges; a run with a bucket needs no scan.
        elif places.size > 0:
            bucket = buckets.of_runs[run] if indexed else np.int32(-1)
            high_halves, found, size = candidates.high_halves, candidates.places, np.int64(-1)
            if bucket >= 0:
                high_halves, found = buckets.high_halves[bucket], buckets.places[bucket]
                size = buckets.counts[np.uintp(bucket)]
            elif places.size <= MAX_COLLECTED:
                size = collect_candidates(indices, low, low + degree, places.size, draws, candidates)
            fits = places.size <= size <= high_halves.size
            if not (fits and choose_size(indices, high_halves, found, candidates.chosen, size, low, places)):
                places[0], code = NOT_YET, UNDECIDED
            # The candidates of a bucket are in the order of the nodes.
            elif bucket >= 0:
                sort_values(places)
    return code


@device_function
def collect_candidates(sources, low, high, count, draws, candidates):
    """Write at least `count` edges with small high bits; return their number. Writes nothing if there are too many."""
    # Two passes, since the number of edges per block can't be predicted: with a loop over them inside the loop over
    # blocks, a column of 325 edges takes twice as long.
    first, second, switch = mix(draws[0]), mix(draws[1]), draws[2] >> HALF_BITS
    words, size, wanted = candidates.words, np.int64(0), count
    while size < count:
        # The first limit is nearly always high enough.
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
    # A word has the offset of a block in its upper half, and the marks of the remaining edges in its lower half.
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
def choose_size(sources, high_halves, candidates, chosen, size, low, places):
    """Choose `places.size` edges from at least as many candidates; return whether the choice is certain."""
    count = np.int64(0)
    end = -(-size // LANES) * LANES
    # Pad the last block of lanes with values that are never below a candidate.
    for number in range(size, end):
        high_halves[np.uintp(number)] = FULL
    for number in range(size):
        value, rank = high_halves[np.uintp(number)], np.int64(0)
        for block in range(0, end, LANES):
            rank += count_bits(lanes_below(high_halves, block, value))
        # Whether a candidate is chosen can't be predicted, so there is no branch.
        chosen[np.uintp(count)] = candidates[np.uintp(number)]
        count += np.int64(rank < places.size)
    # Equal high bits have the same rank: if too many are chosen, the last ones are tied.
    if count != places.size:
        return choose_tied(sources, high_halves, candidates, size, low, places)
    for number in range(places.size):
        places[np.uintp(number)] = low + np.int64(chosen[np.uintp(number)])
    return True


@device_function
def choose_tied(sources, high_halves, candidates, size, low, places):
    """Like `choose_size`, but resolves ties between parallel edges from one node: the first of them are chosen."""
    # Large columns have many of these ties, and would otherwise be left to the heap.
    count, chosen, tied = places.size, 0, np.int64(-1)
    for number in range(size):
        value, below, before, equal = high_halves[number], 0, 0, 0
        for other in range(size):
            below += high_halves[other] < value
            equal += high_halves[other] == value
            before += other < number and high_halves[other] == value
        if below < count < below + equal:
            node = np.int64(sources[low + np.int64(candidates[number])])
            # The low bits of several nodes would decide, so the choice is not certain.
            if tied >= 0 and node != tied:
                return False
            tied = node
        if below + before < count:
            places[chosen] = low + np.int64(candidates[number])
            chosen += 1
    return True
