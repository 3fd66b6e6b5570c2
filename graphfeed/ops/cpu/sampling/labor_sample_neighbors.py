"""Kernels of layer-neighbour sampling: each column takes the neighbours whose shared variates are smallest.

Those of the largest columns are found without reading these, by an index.
"""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel, less_product, multiply_high, prefetch, without_refcount
from graphfeed.ops.cpu.random import draw_bits, mix, shared_state
from graphfeed.ops.cpu.sampling.bottom_k import (
    COLUMNS_AHEAD,
    FEW,
    LINE,
    LINES_AHEAD,
    MOST,
    ONE,
    ROOM,
    SHORT,
    ask_ahead,
    ask_for,
    fill_few,
    keep,
    likely_limit,
    mark_likely,
    pick_few,
    pick_smallest,
    short_limit,
    sort,
    widen,
)
from graphfeed.ops.cpu.sampling.high_degree_index import fill_buckets, find_hub
from graphfeed.ops.cpu.sampling.pick import count_picks, first_above, take_eligible
from graphfeed.ops.cpu.sampling.sample_hops import forget, open_hop, place_seeds, relabel
from graphfeed.ops.cpu.simd import LANES, first_mark

HALF = np.uint64(2**63)
HEAVIEST = np.uint64(31)
"""No weight has more units than 2**31."""
TIME_BITS = 48
"""Fractional bits of a waiting time."""
FROM_BITS_TO_TIME = np.uint64(64 - TIME_BITS)
AHEAD = 16


@device_function
def pick_by_weight(indices, cumulative, low, high, before, first, second, share, values, units, places):
    """Choose as many edges as `places` holds: those of the smallest variates over weights, of equal ones the first."""
    count = places.size
    start = likely_limit(count, cumulative[high - 1] - before)
    mixed, other, turn = mix(first), mix(second), share >> SHORT
    while True:
        limit, per = start, ONE
        short = short_limit(limit, per, HEAVIEST)
        held = 0
        for block in range(low, high, LANES):
            ask_ahead(indices, block, high)
            marks = mark_likely(indices, block, high, mixed, other, turn, short)
            while marks != 0:
                edge = block + first_mark(marks)
                marks &= marks - ONE
                unit = np.uint64(cumulative[edge] - (before if edge == low else cumulative[edge - 1]))
                if unit == 0:
                    continue
                value = shared_state(first, second, share, indices[np.uintp(edge)])
                if less_product(limit, unit, value, per):
                    continue
                if held == count and not less_product(value, per, limit, unit):
                    continue
                held = keep(values, units, places, held, value, unit, edge)
                if held == count:
                    limit, per = values[0], units[0]
                    short = short_limit(limit, per, HEAVIEST)
        if held == count:
            return
        start = widen(start)


@device_function
def waiting_time(bits):
    """Return the time of the first event of a Poisson process, as 64 bits draw it: -log2(1 - bits / 2**64).

    In units of 2**-TIME_BITS, by repeated squaring: it never falls as the bits grow.
    """
    rest = ~bits | ONE
    time = np.uint64(0)
    while rest < HALF:
        rest <<= ONE
        time += ONE
    for _ in range(TIME_BITS):
        rest = multiply_high(rest, rest)
        time <<= ONE
        if rest < HALF:
            rest <<= ONE
            time += ONE
    return time


@device_function
def pick_with_replacement(indices, cumulative, low, high, before, first, second, share, values, units, places):
    """Choose as many edges as `places` holds: those of the first events, where each edge has a Poisson process.

    The rates are the weights, so that each event falls on an edge with a chance in proportion to its weight, whatever
    came before. The processes are those of the neighbours, faster or slower.
    """
    count = places.size
    weighted = cumulative.size > 0
    total = cumulative[high - 1] - before if weighted else high - low
    # Bits of a state exceed the time that they draw by so many, and a unit of 1 by as many as a weight may have.
    most = FROM_BITS_TO_TIME + (HEAVIEST if weighted else np.uint64(0))
    start = (likely_limit(count, total) >> (FROM_BITS_TO_TIME - ONE)) | ONE
    mixed, other, turn = mix(first), mix(second), share >> SHORT
    while True:
        limit, per = start, ONE
        short = short_limit(limit, per, most)
        held = 0
        for block in range(low, high, LANES):
            ask_ahead(indices, block, high)
            marks = mark_likely(indices, block, high, mixed, other, turn, short)
            while marks != 0:
                edge = block + first_mark(marks)
                marks &= marks - ONE
                unit = ONE
                if weighted:
                    unit = np.uint64(cumulative[edge] - (before if edge == low else cumulative[edge - 1]))
                if unit == 0:
                    continue
                state = shared_state(first, second, share, indices[np.uintp(edge)])
                # The time is at least this, for -log2(1 - x) >= x.
                if not less_product(state >> FROM_BITS_TO_TIME, per, limit, unit):
                    continue
                time = waiting_time(state)
                number = 0
                while less_product(time, per, limit, unit):
                    held = keep(values, units, places, held, time, unit, edge)
                    if held == count:
                        limit, per = values[0], units[0]
                        short = short_limit(limit, per, most)
                    step = waiting_time(draw_bits(state, number))
                    time = time + step if time < MOST - step else MOST
                    number += 1
        if held == count:
            return
        start = widen(start)


@device_function
def pick_labor(
    indices,
    cumulative,
    low,
    high,
    before,
    replace,
    fanout,
    first,
    second,
    share,
    values,
    units,
    found,
    uppers,
    places,
):
    """Write the edges, as many as `places` holds by `count_picks`, that a segment is sampled to, in ascending order."""
    count = places.size
    if replace and fanout > 0:
        pick_with_replacement(
            indices, cumulative, low, high, before, first, second, share, values, units, places
        )  # fmt: skip
    elif count == high - low:
        for number in range(count):
            places[number] = low + number
        return
    elif cumulative.size == 0:
        if count <= FEW and pick_few(indices, low, high, first, second, share, found, uppers, places):
            return
        pick_smallest(indices, low, high, first, second, share, values, units, places)
    elif fanout < 0 or count < fanout:
        take_eligible(cumulative, low, high, before, places, 0)
        return
    else:
        pick_by_weight(indices, cumulative, low, high, before, first, second, share, values, units, places)
    sort(places)


@device_function
def longest(offsets):
    """Return the length of the longest column."""
    most = np.int64(0)
    for column in range(offsets.size - 1):
        most = max(most, np.int64(offsets[column + 1]) - np.int64(offsets[column]))
    return most


@kernel
def fill_layer_neighbors(
    indptr, indices, cumulative, types, seeds, fanouts, replace, keys, share, offsets, positions
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    last = seeds.size - 1
    by_type = fanouts.size > 1
    most = max(longest(offsets), ROOM)
    values, units, found = np.empty(most, np.uint64), np.empty(most, np.uint64), np.empty(ROOM, np.uint64)
    uppers = np.empty(LANES, np.uint32)
    for column in range(seeds.size):
        prefetch(indptr, np.intp(seeds[min(column + AHEAD, last)]))
        start, end = np.int64(indptr[seeds[column]]), np.int64(indptr[seeds[column] + 1])
        at = offsets[column]
        low = end if at == offsets[column + 1] else start
        while low < end:
            high = first_above(types, low, end, types[low]) if by_type else end
            before = cumulative[low - 1] if cumulative.size > 0 and low > start else 0
            fanout = fanouts[types[low]] if by_type else fanouts[0]
            count = count_picks(cumulative, low, high, before, fanout, replace)
            if count > 0:
                pick_labor(
                    indices, cumulative, low, high, before, replace, fanout, keys[0], keys[1], share, values, units,
                    found, uppers, positions[at : at + count],
                )  # fmt: skip
            at += count
            low = high


@device_function
def open_buckets(hubs, nodes, fanout, first, second, share, degrees, row_hubs):
    """Find the neighbours of small variates of all rows that are hubs, if that is less work than to read those.

    Args:
        hubs: The arrays of a `HubIndex`; empty ones are none.
        nodes: Ids of the rows.
        fanout: How many edges each row takes.
        first: The first key.
        second: The second key.
        share: Which part of the nodes draws by it.
        degrees: How many edges each row has.
        row_hubs: Written: the bucket of each row, or -1.

    Returns:
        How many edges each bucket ought to hold, and the buckets one after the other, with room for equally many each.
    """
    columns, sizes, starts, entries = hubs
    row_hubs[:] = -1
    reads, used = np.int64(0), np.int64(0)
    if columns.size > 0 and 0 < fanout <= FEW:
        slots = np.full(columns.size, -1, np.int32)
        for row in range(nodes.size):
            if degrees[row] >= sizes[0] and degrees[row] > fanout:
                hub = find_hub(columns, sizes, nodes[row], degrees[row])
                if hub >= 0:
                    reads += degrees[row]
                    if slots[hub] < 0:
                        slots[hub] = used
                        used += 1
                    row_hubs[row] = slots[hub]
    if used == 0 or reads < starts.size:
        row_hubs[:] = -1
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    limits = np.empty(columns.size, np.uint32)
    for hub in range(columns.size):
        limits[hub] = np.uint32(likely_limit(fanout, sizes[hub]) >> SHORT)
    counts = np.zeros(used, np.int64)
    room = 2 * (fanout + 2 * np.int64(np.sqrt(fanout)) + 8)
    buckets = np.empty(used * room, np.uint64)
    fill_buckets(starts, entries, limits, slots, first, second, share, counts, room, buckets)
    return counts, buckets


@device_function
def fill_jointly(
    indices, cumulative, hubs, nodes, fanout, replace, keys, share, starts, degrees, out_indptr, positions,
    neighbors,
):  # fmt: skip
    """Write the sampled edges of each node of a hop, and their sources."""
    most = max(longest(out_indptr), ROOM)
    values, units, found = np.empty(most, np.uint64), np.empty(most, np.uint64), np.empty(ROOM, np.uint64)
    uppers = np.empty(LANES, np.uint32)
    row_hubs = np.empty(nodes.size, np.int32)
    by_index = fanout if cumulative.size == 0 and not replace else -1
    counts, buckets = open_buckets(hubs, nodes, by_index, keys[0], keys[1], share, degrees, row_hubs)
    if by_index > 0 and fanout <= FEW:
        fill_few(
            indices, keys, share, starts, degrees, out_indptr, row_hubs, counts, buckets, positions, neighbors, values,
            units, found, uppers,
        )  # fmt: skip
    else:
        fill_many(
            indices, cumulative, fanout, replace, keys, share, starts, degrees, out_indptr, positions, neighbors,
            values, units, found, uppers,
        )  # fmt: skip


@device_function
def fill_many(
    indices, cumulative, fanout, replace, keys, share, starts, degrees, out_indptr, positions, neighbors, values, units,
    found, uppers,
):  # fmt: skip
    """Write the sampled edges of each node of a hop and their sources, however they are chosen."""
    indices, cumulative, starts, degrees = (
        without_refcount(indices),
        without_refcount(cumulative),
        without_refcount(starts),
        without_refcount(degrees),
    )
    out_indptr, positions, neighbors = (
        without_refcount(out_indptr),
        without_refcount(positions),
        without_refcount(neighbors),
    )
    values, units, found, uppers = (
        without_refcount(values),
        without_refcount(units),
        without_refcount(found),
        without_refcount(uppers),
    )
    last = out_indptr.size - 2
    for row in range(out_indptr.size - 1):
        coming = min(row + COLUMNS_AHEAD, last)
        ask_for(indices, starts[coming], min(degrees[coming], LINES_AHEAD * (LINE // indices.itemsize)))
        at, to = np.int64(out_indptr[row]), np.int64(out_indptr[row + 1])
        if at < to:
            low, high = starts[row], starts[row] + degrees[row]
            pick_labor(
                indices, cumulative, low, high, 0, replace, fanout, keys[0], keys[1], share, values, units, found,
                uppers, positions[at:to],
            )  # fmt: skip
        # Now, while the column is in the cache.
        for edge in range(at, to):
            neighbors[np.uintp(edge)] = indices[np.uintp(positions[np.uintp(edge)])]


@kernel
def labor_sample_hops(
    indptr, indices, cumulative, hubs, fanouts, replace, keys, share, node_map, hop,
    nodes, node_counts, starts, degrees, out_indptr, edge_counts, positions, neighbors,
):  # fmt: skip
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `sample_hops`)."""
    if hop == 0:
        place_seeds(node_map, nodes[: node_counts[0]])
    while hop < fanouts.size:
        row = open_hop(
            indptr, cumulative, fanouts, replace, hop, nodes, node_counts, starts, degrees, out_indptr, edge_counts,
            positions,
        )  # fmt: skip
        if row < 0:
            return hop
        count = node_counts[hop]
        rows, own = out_indptr[row : row + count + 1], slice(edge_counts[hop], edge_counts[hop + 1])
        fill_jointly(
            indices, cumulative, hubs, nodes[:count], fanouts[hop], replace, keys[hop], share, starts, degrees, rows,
            positions[own], neighbors[own],
        )  # fmt: skip
        node_counts[hop + 1] = relabel(node_map, neighbors[own], nodes, count)
        hop += 1
    forget(node_map, nodes[: node_counts[hop]])
    return hop
