"""Kernels of the index of large columns: make it, and find the neighbours of small variates by it.

A bucket holds what was found for one column, each a variate's upper half in front of the edge's place in the column.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, kernel, prefetch
from graphfeed.ops.cpu.random import TURN, mix, short_bits
from graphfeed.ops.cpu.simd import LANES, count_marks, first_mark, mark_small_from

ONE = np.uint64(1)
HALF = np.uint64(32)
FIVE = np.uint64(LANES.bit_length() - 1)
LINE = 64
"""Bytes of a cache line."""
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


@device_function
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


@device_function
def place(pending, owners, held, room, sizes, buckets):
    """Put what has been found into the buckets."""
    for number in range(held):
        slot = np.uintp(owners[np.uintp(number)])
        size = sizes[slot]
        buckets[np.uintp(np.int64(slot) * room + min(size, room - 1))] = pending[np.uintp(number)]
        sizes[slot] = size + 1


@device_function
def look_up(starts, entries, nodes, limits, slots, first, second, turn, sizes, room, buckets, pending, owners):
    """Put the entries of nodes into the buckets of those hubs that have one and whose limits they keep.

    In two steps without a branch on whether a hub has one: that can't be predicted.
    """
    if nodes.size == 0:
        return
    last = nodes.size - 1
    held = np.int64(0)
    for number in range(-2 * AHEAD, nodes.size):
        far, near = min(number + 2 * AHEAD, last), number + AHEAD
        prefetch(starts, np.intp(nodes[np.uintp(far)]))
        if near >= 0:
            start = starts[np.uintp(nodes[np.uintp(min(near, last))])]
            prefetch(entries, np.intp(min(start, entries.size - 1)))
            prefetch(entries, np.intp(min(start + LINE // entries.itemsize, entries.size - 1)))
        if number < 0:
            continue
        node = np.uintp(nodes[np.uintp(number)])
        bits = np.uint32(short_bits(second if short_bits(TURN, node) < turn else first, node))
        front = np.uint64(bits) << HALF
        entry, end = starts[node], starts[node + np.uintp(1)]
        while entry < end:
            until = min(end, entry + BATCH)
            while entry < until:
                found = np.uint64(entries[np.uintp(entry)])
                hub = np.uintp(found >> HALF)
                # The larger a hub, the lower its limit.
                if bits > limits[hub]:
                    end = entry
                    break
                slot = slots[hub]
                pending[np.uintp(held)] = front | np.uint64(np.uint32(found))
                owners[np.uintp(held)] = slot
                held += np.int64(slot >= 0)
                entry += 1
            if held >= BATCH:
                place(pending, owners, held, room, sizes, buckets)
                held = 0
    place(pending, owners, held, room, sizes, buckets)


@device_function
def unfold(words, size, nodes):
    """Write the nodes whose marks stand in words, behind the first node of each."""
    at = np.int64(0)
    marks = words[0]
    for number in range(size):
        nodes[np.uintp(number)] = np.int64((marks >> HALF << FIVE) + np.uint64(first_mark(marks)))
        marks &= marks - ONE
        used_up = np.uint32(marks) == 0
        at += np.int64(used_up)
        marks = words[np.uintp(at)] if used_up else marks


@device_function
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
    words, nodes = np.empty(BATCH + LANES + 1, np.uint64), np.empty(BATCH + LANES, np.int64)
    pending, owners = np.empty(2 * BATCH, np.uint64), np.empty(2 * BATCH, np.int32)
    used, held = np.int64(0), np.int64(0)
    for block in range(0, num_nodes, LANES):
        marks = mark_small_from(np.uint64(block), mixed, most)
        if turn != 0:
            gone = mark_small_from(np.uint64(block), TURN, turn - ONE)
            marks = (marks & ~gone) | (mark_small_from(np.uint64(block), other, most) & gone)
        if block + LANES > num_nodes:
            marks &= (ONE << np.uint64(num_nodes - block)) - ONE
        words[np.uintp(used)] = np.uint64(block // LANES) << HALF | marks
        used += np.int64(marks != 0)
        held += count_marks(marks)
        if held >= BATCH or block + LANES >= num_nodes:
            unfold(words, held, nodes)
            look_up(
                starts, entries, nodes[:held], limits, slots, mixed, other, turn, sizes, room, buckets, pending, owners
            )  # fmt: skip
            used, held = np.int64(0), np.int64(0)
