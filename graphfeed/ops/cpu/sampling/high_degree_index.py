"""Kernels of the index of high-degree columns: build it, and collect the candidates of many columns by it.

A high-degree column has far more edges than LABOR picks from it, and a mini-batch meets it in every hop. So it is
not read at all. Instead the kernel draws the variate of every node of the graph, 32 nodes at a time; for the few nodes
of small variates, the index tells which of these columns they are sources of::

    columns, by degree     entries, by source node
    number 0: node 17      starts[4] -> | 0, place 905 | 2, place 31 |      node 4 is in columns 0 and 2
    number 1: node  5      starts[5] -> | 1, place   7 |                    node 5 is in column 1
    number 2: node 40

    an entry    63               32 31               0
                [ column's number  ][ place in column ]

The limits of the columns fall with their degree, and so along a node's entries: the first entry whose column's limit
is below the node's variate ends the search. What is found goes into the candidates of its column (see `bottom_k`).

Without the index, LABOR's mini-batches take 1.8 times as long on an ogbn-products shaped graph.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, always_inline, device_function, kernel, lowest_bit, prefetch
from graphfeed.ops.cpu.random import SWITCH, high_bits, mix
from graphfeed.ops.cpu.sampling.bottom_k import CACHE_LINE, HALF_BITS, LANES, MAX_COLLECTED, ONE, likely_limit

BATCH = 1024
"""How many nodes of small variates are collected before they are looked up, so that look-ups can be prefetched."""


@kernel
def build_high_degree_index(indptr, indices, columns, starts, entries):
    """Write the entries of each node, column after column; `starts` comes zeroed."""
    for column in columns:
        end = np.int64(indptr[column + 1])
        for edge in range(np.int64(indptr[column]), end):
            prefetch(starts, np.intp(indices[min(edge + AHEAD, end - 1)]))
            starts[indices[edge] + 1] += 1
    for node in range(starts.size - 1):
        starts[node + 1] += starts[node]
    cursor = starts[:-1].copy()
    for number in range(columns.size):
        start, end = np.int64(indptr[columns[number]]), np.int64(indptr[columns[number] + 1])
        for edge in range(start, end):
            # The cursor tells where the entry goes, so it has to be there before the entry can be prefetched.
            prefetch(cursor, np.intp(indices[min(edge + 2 * AHEAD, end - 1)]))
            prefetch(entries, np.intp(cursor[indices[min(edge + AHEAD, end - 1)]]))
            node = indices[edge]
            entries[cursor[node]] = (number << 32) | (edge - start)
            cursor[node] += 1


@device_function
def find_column(columns, degrees, node, degree):
    """Return the number of a column in the index, or -1; columns are sorted by degree and then by id."""
    low, high = np.int64(0), np.int64(columns.size)
    while low < high:
        middle = (low + high) >> 1
        if degrees[middle] < degree or (degrees[middle] == degree and columns[middle] < node):
            low = middle + 1
        else:
            high = middle
    return low if low < columns.size and columns[low] == node else np.int64(-1)


@device_function
def assign_buckets(index, nodes, fanout, degrees, slots, row_buckets):
    """Give each indexed column among the rows a bucket for its candidates, if that is less work than reading them.

    Args:
        index: The arrays of a `HighDegreeIndex`; empty arrays index nothing.
        nodes: Ids of the rows.
        fanout: How many edges each row takes.
        degrees: How many edges each row has.
        slots: Written: the bucket of each column of the index, or -1.
        row_buckets: Written: the bucket of each row, or -1.

    Returns:
        The number of buckets.
    """
    columns, sizes, starts, _ = index
    edges, used = np.int64(0), np.int64(0)
    slots[:] = -1
    row_buckets[:] = -1
    for row in range(nodes.size):
        if degrees[row] >= sizes[0] and degrees[row] > fanout:
            number = find_column(columns, sizes, nodes[row], degrees[row])
            if number >= 0:
                edges += degrees[row]
                if slots[number] < 0:
                    slots[number] = used
                    used += 1
                row_buckets[row] = slots[number]
    # Drawing the variates of all nodes costs as much as reading a column of as many edges.
    if edges < starts.size:
        row_buckets[:] = -1
        return np.int64(0)
    return used


@device_function
def collect_by_index(index, nodes, fanout, draws, degrees, row_buckets):
    """Collect the candidates of all rows that are in the index.

    Args:
        index: The arrays of a `HighDegreeIndex`; empty arrays index nothing.
        nodes: Ids of the rows.
        fanout: How many edges each row takes.
        draws: The two keys and the switch threshold.
        degrees: How many edges each row has.
        row_buckets: Written: the bucket of each row, or -1.

    Returns:
        For each bucket how many candidates there are; and their high bits and their places, a row per bucket, with
        room for twice as many as expected.
    """
    columns, sizes, _, _ = index
    row_buckets[:] = -1
    used = np.int64(0)
    slots = np.empty(columns.size, np.int32)
    if columns.size > 0 and 0 < fanout <= MAX_COLLECTED:
        used = assign_buckets(index, nodes, fanout, degrees, slots, row_buckets)
    counts = np.zeros(used, np.int64)
    room = 2 * (fanout + 2 * np.int64(np.sqrt(max(fanout, 0))) + 8)
    room = -(-room // LANES) * LANES
    high_halves, candidates = np.empty((used, room), np.uint32), np.empty((used, room), np.uint32)
    if used > 0:
        limits = np.empty(columns.size, np.uint32)
        for number in range(columns.size):
            limits[number] = np.uint32(likely_limit(fanout, sizes[number]) >> HALF_BITS)
        fill_buckets(index, limits, slots, draws, counts, high_halves, candidates)
    return counts, high_halves, candidates


@always_inline
def mark_range(node, count, key, limit):
    """Return which of `count` consecutive nodes have high bits up to a limit, as bits."""
    marks = np.uint64(0)
    for number in range(count):
        marks |= np.uint64(high_bits(key, node + number) <= limit) << np.uint64(number)
    return marks


@always_inline
def mark_likely_range(node, count, first, second, switch, limit):
    """Do as `mark_likely` for consecutive nodes."""
    marks = mark_range(node, LANES, first, limit)
    if switch != 0:
        switched = mark_range(node, LANES, SWITCH, switch - ONE)
        marks = (marks & ~switched) | (mark_range(node, LANES, second, limit) & switched)
    return marks & (ONE << np.uint64(count)) - ONE


@device_function
def fill_buckets(index, limits, slots, draws, counts, high_halves, candidates):
    """Draw the variate of every node, and look up those that are small enough for the column of the highest limit."""
    first, second, switch = mix(draws[0]), mix(draws[1]), draws[2] >> HALF_BITS
    num_nodes = np.int64(index[2].size - 1)
    highest = np.uint64(limits[0])
    nodes, size = np.empty(BATCH + LANES, np.int64), 0
    for block in range(0, num_nodes, LANES):
        marks = mark_likely_range(block, min(num_nodes - block, LANES), first, second, switch, highest)
        while marks != 0:
            nodes[np.uintp(size)] = block + lowest_bit(marks)
            marks &= marks - ONE
            size += 1
        if size >= BATCH:
            look_up(index, nodes[:size], limits, slots, first, second, switch, counts, high_halves, candidates)
            size = 0
    look_up(index, nodes[:size], limits, slots, first, second, switch, counts, high_halves, candidates)


@device_function
def look_up(index, nodes, limits, slots, first, second, switch, counts, high_halves, candidates):
    """Put the entries of nodes into the buckets of their columns, as far as they keep the columns' limits."""
    _, _, starts, entries = index
    last, last_entry = nodes.size - 1, entries.size - 1
    for number in range(-2 * AHEAD if nodes.size > 0 else 0, nodes.size):
        # Where the entries begin has to be known before they can be prefetched.
        prefetch(starts, np.intp(nodes[np.uintp(min(number + 2 * AHEAD, last))]))
        if number + AHEAD >= 0:
            start = starts[np.uintp(nodes[np.uintp(min(number + AHEAD, last))])]
            prefetch(entries, np.intp(min(start, last_entry)))
            prefetch(entries, np.intp(min(start + CACHE_LINE // entries.itemsize, last_entry)))
        if number < 0:
            continue
        node = np.uintp(nodes[np.uintp(number)])
        bits = high_bits(second if high_bits(SWITCH, node) < switch else first, node)
        for entry in range(starts[node], starts[node + np.uintp(1)]):
            found = np.uint64(entries[np.uintp(entry)])
            column = np.uintp(found >> HALF_BITS)
            if bits > limits[column]:
                break
            bucket = slots[column]
            if bucket >= 0:
                size = counts[np.uintp(bucket)]
                if size < candidates.shape[1]:
                    high_halves[np.uintp(bucket), np.uintp(size)] = np.uint32(bits)
                    candidates[np.uintp(bucket), np.uintp(size)] = np.uint32(found)
                counts[np.uintp(bucket)] = size + 1
