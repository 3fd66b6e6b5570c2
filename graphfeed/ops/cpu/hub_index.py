"""Kernels of the index of large columns: make it, and find the neighbours of small variates by it.

A bucket holds what was found for one column, each a variate's upper half in front of the edge's place in the column.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, inlined, kernel, prefetch
from graphfeed.ops.cpu.lanes import LANES, first_mark, mark_small_from
from graphfeed.ops.cpu.random import TURN, mix, short_bits

ONE = np.uint64(1)
HALF = np.uint64(32)
BATCH = 1024
"""How many nodes are looked up at a time."""


@kernel
def index_hubs(indptr, indices, columns, starts, entries):
    """Write the entries of each node, hub after hub; `starts` comes zeroed."""
    for column in columns:
        high = np.int64(indptr[column + 1])
        for edge in range(np.int64(indptr[column]), high):
            prefetch(starts, np.intp(indices[min(edge + AHEAD, high - 1)]))
            starts[indices[edge] + 1] += 1
    for node in range(starts.size - 1):
        starts[node + 1] += starts[node]
    cursor = starts[:-1].copy()
    for hub in range(columns.size):
        low, high = np.int64(indptr[columns[hub]]), np.int64(indptr[columns[hub] + 1])
        for edge in range(low, high):
            prefetch(cursor, np.intp(indices[min(edge + 2 * AHEAD, high - 1)]))
            prefetch(entries, np.intp(cursor[indices[min(edge + AHEAD, high - 1)]]))
            node = indices[edge]
            entries[cursor[node]] = (hub << 32) | (edge - low)
            cursor[node] += 1


@inlined
def find_hub(columns, degrees, node, degree):
    """Return the number of a column in the index, or -1."""
    low, high = np.int64(0), np.int64(columns.size)
    while low < high:
        middle = (low + high) >> 1
        if degrees[middle] < degree or (degrees[middle] == degree and columns[middle] < node):
            low = middle + 1
        else:
            high = middle
    return low if low < columns.size and columns[low] == node else np.int64(-1)


@inlined
def look_up(starts, entries, nodes, limits, slots, first, second, turn, sizes, room, buckets):
    """Put the entries of nodes into the buckets of those hubs that have one and whose limits they keep."""
    last = nodes.size - 1
    for number in range(-2 * AHEAD, nodes.size):
        far, near = min(number + 2 * AHEAD, last), number + AHEAD
        prefetch(starts, np.intp(nodes[far]))
        if near >= 0:
            prefetch(entries, np.intp(min(starts[nodes[min(near, last)]], entries.size - 1)))
        if number < 0:
            continue
        node = np.uintp(nodes[number])
        bits = np.uint32(short_bits(second if short_bits(TURN, node) < turn else first, node))
        for entry in range(starts[node], starts[node + np.uintp(1)]):
            found = np.uint64(entries[np.uintp(entry)])
            hub = np.uintp(found >> HALF)
            # The larger a hub, the lower its limit.
            if bits > limits[hub]:
                break
            slot = slots[hub]
            if slot >= 0:
                size = sizes[np.uintp(slot)]
                to = np.uintp(slot * room + min(size, room - 1))
                buckets[to] = (np.uint64(bits) << HALF) | np.uint64(np.uint32(found))
                sizes[np.uintp(slot)] = size + 1


@inlined
def fill_buckets(starts, entries, limits, slots, first, second, share, sizes, room, buckets):
    """Find all edges into hubs with a bucket whose variates' upper halves are up to the hubs' limits.

    Args:
        starts: Where the entries of each node begin.
        entries: What lies in which hub.
        limits: For each hub, falling.
        slots: The bucket of each hub, or -1.
        first: The first key.
        second: The second key.
        share: Which part of the nodes draws by it.
        sizes: Written: how many edges each bucket ought to hold; what exceeds its room is lost.
        room: How many edges a bucket has room for.
        buckets: Written: the edges, bucket after bucket.
    """
    mixed, other, turn = mix(first), mix(second), share >> HALF
    num_nodes = np.int64(starts.size - 1)
    most = np.uint64(limits[0])
    nodes = np.empty(BATCH + LANES, np.int64)
    held = 0
    for block in range(0, num_nodes, LANES):
        marks = mark_small_from(np.uint64(block), mixed, most)
        if turn != 0:
            gone = mark_small_from(np.uint64(block), TURN, turn - ONE)
            marks = (marks & ~gone) | (mark_small_from(np.uint64(block), other, most) & gone)
        while marks != 0:
            node = block + first_mark(marks)
            marks &= marks - ONE
            nodes[held] = node
            held += np.int64(node < num_nodes)
        if held >= BATCH or block + LANES >= num_nodes:
            look_up(starts, entries, nodes[:held], limits, slots, mixed, other, turn, sizes, room, buckets)
            held = 0
