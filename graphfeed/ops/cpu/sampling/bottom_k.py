"""Which of a column's neighbours have the smallest variates: the parts that layer-neighbour kernels share.

What competes is a value over a unit (the weight, or 1). Such fractions are compared by their cross products in 128
bits, so that no two of them look equal that aren't. A column's best so far are a heap, the worst of them on top.

Nearly all edges are passed by on the upper half of their variate alone, which vector instructions compute: so a column
costs little more than to read it. What is not passed by goes into a bucket: the upper half, then the edge's place.
"""

import numpy as np

from graphfeed.ops.cpu.jit import always_inline, device_function, less_product, prefetch, without_refcount
from graphfeed.ops.cpu.random import TURN, mix, shared_state, short_bits
from graphfeed.ops.cpu.simd import LANES, count_marks, first_mark, mark_small, mark_up_to

MOST = np.uint64(2**64 - 1)
SHORT = np.uint64(32)
FULL = np.uint32(2**32 - 1)
TOP = np.uint64(1 << 63)
ONE = np.uint64(1)
WIDER = np.uint64(3)
"""By how many bits the limit of a scan is raised that has found too few."""
FEW = 48
"""Up to so many picks, those that may be among them are gathered first and sorted then."""
ROOM = 8 * FEW
"""For the blocks where they lie, and as many that may be among them."""
LINE = 64
"""Bytes of a cache line."""
COLUMNS_AHEAD = 2
ROWS_BEHIND = 4
"""How long after its picks the sources of a row are read: until then those of a hub are in the cache as well."""
LINES_AHEAD = 16
"""How far ahead a column is asked for, across the pages at which the machine's own prefetching ends."""


@device_function
def is_later(values, units, places, left, right):
    """Tell whether one entry's value over its unit exceeds another's, or equals it at a later place."""
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
def keep(values, units, places, held, value, unit, place):
    """Put an entry into a heap of `held`; where it is full, in place of the one on top. Return how many it holds."""
    count = places.size
    entry = held if held < count else 0
    values[entry], units[entry], places[entry] = value, unit, place
    if held < count:
        while entry > 0 and is_later(values, units, places, entry, (entry - 1) >> 1):
            swap(values, units, places, entry, (entry - 1) >> 1)
            entry = (entry - 1) >> 1
        return held + 1
    while 2 * entry + 1 < count:
        below = 2 * entry + 1
        if below + 1 < count and is_later(values, units, places, below + 1, below):
            below += 1
        if not is_later(values, units, places, below, entry):
            break
        swap(values, units, places, below, entry)
        entry = below
    return held


@device_function
def likely_limit(count, total):
    """Return what a few more than `count` of the values over units will lie below, where the units sum to `total`."""
    wanted = count + 2 * np.int64(np.sqrt(count)) + 4
    return MOST if wanted >= total else MOST // np.uint64(total) * np.uint64(wanted)


@device_function
def widen(limit):
    """Raise a limit below which there were too few."""
    return MOST if limit > (MOST >> WIDER) else limit << WIDER


@always_inline
def mark_likely(indices, edge, high, first, second, turn, limit):
    """Return which of the `LANES` edges from `edge` on have variates whose upper halves are up to a limit, as bits.

    Args:
        indices: Source node of each edge.
        edge: The first edge.
        high: Where the column ends.
        first: The first key, mixed.
        second: The second key, mixed.
        turn: Nodes whose bits under `TURN` are below it draw by the second key.
        limit: What an upper half may be at most.
    """
    left = high - edge
    marks = np.uint64(0)
    if edge + LANES > indices.size:
        for number in range(left):
            node = indices[np.uintp(edge + number)]
            key = second if short_bits(TURN, node) < turn else first
            marks |= np.uint64(short_bits(key, node) <= limit) << np.uint64(number)
        return marks
    marks = mark_small(indices, np.intp(edge), first, limit)
    if turn != 0:
        gone = mark_small(indices, np.intp(edge), TURN, turn - ONE)
        marks = (marks & ~gone) | (mark_small(indices, np.intp(edge), second, limit) & gone)
    return marks if left >= LANES else marks & ((ONE << np.uint64(left)) - ONE)


@always_inline
def ask_for(values, first, count):
    """Ask for the cache lines of so many values."""
    for number in range(0, count, LINE // values.itemsize):
        prefetch(values, np.intp(first + number))


@always_inline
def ask_ahead(indices, block, high):
    """Ask for the edges of a column that come after a block."""
    ahead = block + LINES_AHEAD * (LINE // indices.itemsize)
    if ahead < high:
        ask_for(indices, ahead, LANES)


@always_inline
def short_limit(limit, per, bits):
    """Return what the upper half is at most of a value that over a unit up to `2**bits` is not above `limit / per`."""
    whole = limit // per
    return MOST >> SHORT if whole >= MOST >> bits else ((whole + ONE) << bits) >> SHORT


@device_function
def pick_smallest(indices, low, high, first, second, share, values, units, places):
    """Choose as many edges as `places` holds: those of the smallest variates, of equal ones the first."""
    count = places.size
    start = likely_limit(count, high - low)
    mixed, other, turn = mix(first), mix(second), share >> SHORT
    while True:
        limit = start
        held = 0
        for block in range(low, high, LANES):
            ask_ahead(indices, block, high)
            marks = mark_likely(indices, block, high, mixed, other, turn, limit >> SHORT)
            while marks != 0:
                edge = block + first_mark(marks)
                marks &= marks - ONE
                value = shared_state(first, second, share, indices[np.uintp(edge)])
                if value > limit or (value == limit and held == count):
                    continue
                held = keep(values, units, places, held, value, ONE, edge)
                if held == count:
                    limit = values[0]
        if held == count:
            return
        start = widen(start)


@always_inline
def gather_small(indices, low, high, limit, first, second, share, found, uppers):
    """Write the edges whose variates' upper halves are up to a limit, as a bucket has them; return how many there are.

    The bucket is the latter half of `found`, and complete unless there are more; the upper halves are in `uppers`, too,
    as `pick_from_lanes` wants them. No branch depends on how many edges of a block there are: that can't be predicted.
    """
    mixed, other, turn = mix(first), mix(second), share >> SHORT
    room = found.size >> 1
    most = np.int64(room - 1)
    blocks, size = np.int64(0), np.int64(0)
    # All but the last block are whole, and those have no other branch.
    for block in range(low, high - LANES if turn == 0 else low, LANES):
        ask_ahead(indices, block, high)
        marks = mark_small(indices, np.intp(block), mixed, limit)
        found[np.uintp(min(blocks, most))] = np.uint64(block - low) << SHORT | marks
        blocks += np.int64(marks != 0)
        size += count_marks(marks)
    begun = (high - low - 1) // LANES * LANES if turn == 0 else 0
    for block in range(low + begun, high, LANES):
        ask_ahead(indices, block, high)
        marks = mark_likely(indices, block, high, mixed, other, turn, limit)
        found[np.uintp(min(blocks, most))] = np.uint64(block - low) << SHORT | marks
        blocks += np.int64(marks != 0)
        size += count_marks(marks)
    uppers[:] = FULL
    if size > most:
        return size
    at = np.int64(0)
    marks = found[0]
    for number in range(size):
        place = (marks >> SHORT) + np.uint64(first_mark(marks))
        node = indices[np.uintp(low + np.int64(place))]
        bits = short_bits(other if turn != 0 and short_bits(TURN, node) < turn else mixed, node)
        found[np.uintp(room + number)] = bits << SHORT | place
        uppers[np.uintp(min(number, LANES - 1))] = np.uint32(bits)
        marks &= marks - ONE
        used_up = np.uint32(marks) == 0
        at += np.int64(used_up)
        marks = found[np.uintp(at)] if used_up else marks
    return size


@always_inline
def pick_from_lanes(bucket, uppers, low, places):
    """Do as `pick_from_bucket`, of up to `LANES` edges whose upper halves lie in `uppers`, where what follows is full.

    Return whether one upper half divides them.
    """
    count = places.size
    chosen = np.uint64(0)
    for number in range(bucket.size):
        marks = mark_up_to(uppers, np.uint64(uppers[np.uintp(number)]))
        chosen = marks if count_marks(marks) == count else chosen
    if chosen == 0:
        return False
    for number in range(count):
        places[np.uintp(number)] = low + np.int64(np.uint32(bucket[np.uintp(first_mark(chosen))]))
        chosen &= chosen - ONE
    return True


@always_inline
def spread(bucket, uppers):
    """Write the upper halves of a bucket as `pick_from_lanes` wants them."""
    uppers[:] = FULL
    for number in range(min(bucket.size, LANES)):
        uppers[np.uintp(number)] = np.uint32(bucket[np.uintp(number)] >> SHORT)


@device_function
def pick_by_rank(indices, bucket, low, places):
    """Do as `pick_from_bucket`, of a bucket of any size."""
    count = places.size
    kept, most, least = np.int64(0), np.uint64(0), MOST
    for number in range(bucket.size):
        value = bucket[np.uintp(number)]
        below = np.int64(0)
        for other in range(bucket.size):
            below += np.int64(bucket[np.uintp(other)] < value)
        if below < count:
            places[np.uintp(kept)] = low + np.int64(np.uint32(value))
            most = max(most, value)
            kept += 1
        else:
            least = min(least, value)
    if most >> SHORT < least >> SHORT:
        return True
    node = indices[low + np.int64(np.uint32(most))]
    for value in bucket:
        if value >> SHORT == most >> SHORT and indices[low + np.int64(np.uint32(value))] != node:
            return False
    return True


@always_inline
def pick_from_bucket(indices, bucket, uppers, low, places):
    """Choose as many edges as `places` holds of a bucket that has as many; return whether they are surely the right.

    They are not where upper halves that are equal are of several nodes: then the lower halves have to be compared.
    Those of up to `LANES` edges lie in `uppers`, too, and what follows is full.
    """
    done = False
    if bucket.size <= LANES:
        done = pick_from_lanes(bucket, uppers, low, places)
    if not done:
        done = pick_by_rank(indices, bucket, low, places)
    return done


@device_function
def pick_few(indices, low, high, first, second, share, found, uppers, places):
    """Do as `pick_smallest`, where few are wanted; return whether it could."""
    limit = likely_limit(places.size, high - low) >> SHORT
    size = gather_small(indices, low, high, limit, first, second, share, found, uppers)
    room = found.size >> 1
    done = False
    if places.size <= size < room:
        done = pick_from_bucket(indices, found[room : room + size], uppers, low, places)
    return done


@device_function
def sort(places):
    """Sort a few positions, which are nearly in order."""
    if places.size > FEW:
        places.sort()
        return
    for number in range(1, places.size):
        place = places[number]
        at = number
        while at > 0 and places[at - 1] > place:
            places[at] = places[at - 1]
            at -= 1
        places[at] = place


@device_function
def fill_few(
    indices, keys, share, starts, degrees, out_indptr, row_hubs, counts, buckets, positions, neighbors, values, units,
    found, uppers,
):  # fmt: skip
    """Write up to `FEW` edges of each row, those of the smallest variates, and their sources.

    Args:
        indices: Source node of each edge.
        keys: The two keys.
        share: Which part of the nodes draws by the second.
        starts: Where each row's edges start.
        degrees: How many there are.
        out_indptr: Where each row's picks start.
        row_hubs: The bucket of each row, or -1.
        counts: How many edges each bucket ought to hold.
        buckets: As `fill_buckets` makes them.
        positions: Written: the picks.
        neighbors: Written: their sources.
        values: Scratch, as the rest, kept by the caller.
    """
    indices, starts, degrees, out_indptr = (
        without_refcount(indices),
        without_refcount(starts),
        without_refcount(degrees),
        without_refcount(out_indptr),
    )
    row_hubs, counts, buckets = without_refcount(row_hubs), without_refcount(counts), without_refcount(buckets)
    positions, neighbors, found, uppers = (
        without_refcount(positions),
        without_refcount(neighbors),
        without_refcount(found),
        without_refcount(uppers),
    )
    first, second = keys[0], keys[1]
    rows = out_indptr.size - 1
    gathered = found.size >> 1
    room = buckets.size // max(counts.size, 1)
    most = LINES_AHEAD * (LINE // indices.itemsize)
    for row in range(rows + ROWS_BEHIND if rows > 0 else 0):
        coming = min(row + COLUMNS_AHEAD, rows - 1)
        if row_hubs[np.uintp(coming)] < 0:
            ask_for(indices, starts[np.uintp(coming)], min(degrees[np.uintp(coming)], most))
        if row < rows:
            at, to = np.int64(out_indptr[np.uintp(row)]), np.int64(out_indptr[np.uintp(row + 1)])
            low, degree, hub = starts[np.uintp(row)], degrees[np.uintp(row)], row_hubs[np.uintp(row)]
            places = positions[at:to]
            if degree == to - at:
                for number in range(degree):
                    places[np.uintp(number)] = low + number
            else:
                done = False
                if hub >= 0:
                    size = counts[np.uintp(hub)]
                    if to - at <= size <= room:
                        bucket = buckets[hub * room : hub * room + size]
                        spread(bucket, uppers)
                        done = pick_from_bucket(indices, bucket, uppers, low, places)
                    if done:
                        sort(places)
                        for place in places:
                            prefetch(indices, np.intp(place))
                else:
                    limit = likely_limit(to - at, degree) >> SHORT
                    size = gather_small(indices, low, low + degree, limit, first, second, share, found, uppers)
                    if to - at <= size < gathered:
                        bucket = found[gathered : gathered + size]
                        done = pick_from_bucket(indices, bucket, uppers, low, places)
                if not done:
                    pick_smallest(indices, low, low + degree, first, second, share, values, units, places)
                    sort(places)
        if row >= ROWS_BEHIND:
            done_row = np.uintp(row - ROWS_BEHIND)
            for edge in range(out_indptr[done_row], out_indptr[done_row + np.uintp(1)]):
                neighbors[np.uintp(edge)] = indices[np.uintp(positions[np.uintp(edge)])]
