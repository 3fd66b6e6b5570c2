"""Passes that collect LABOR's candidates of all high-degree columns at once, with an index.

The limits of columns decrease along a node's entries, so the first limit below the node's variate ends the search.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, UInt64s, device_function, kernel, lowest_bit, prefetch
from graphfeed.ops.cpu.random import SWITCH, high_bits, mix
from graphfeed.ops.cpu.sampling.passes.candidates import BATCH, Buckets, Index
from graphfeed.ops.cpu.sampling.passes.marks import CACHE_LINE, HALF_BITS, LANES, ONE, likely_limit
from graphfeed.ops.cpu.sampling.passes.state import COUNT, Runs
from graphfeed.ops.cpu.search import first_above


@kernel
def assign_buckets(index: Index, columns: Runs, buckets: Buckets) -> None:
    """Assign a bucket for candidates to each indexed column of a hop, if that is less work than reading the columns."""
    count, fanout, edges, used = columns.sizes[COUNT], columns.fanouts[0], np.int64(0), np.int64(0)
    buckets.of_index[:] = -1
    buckets.of_runs[:count] = -1
    for column in range(count):
        degree = columns.degrees[column]
        if degree >= index.degrees[0] and degree > fanout:
            # One bisection of the index per high-degree column.
            number = find_column(index, columns.ids[column], degree)
            if number >= 0:
                edges += degree
                if buckets.of_index[number] < 0:
                    buckets.of_index[number] = used
                    buckets.counts[used] = 0
                    used += 1
                buckets.of_runs[column] = buckets.of_index[number]
    # Drawing the variates of all nodes costs as much as reading a column with this number of edges.
    if edges < index.starts.size:
        buckets.of_runs[:count] = -1
        buckets.of_index[:] = -1
        return
    for number in range(index.columns.size):
        buckets.limits[number] = np.uint32(likely_limit(fanout, index.degrees[number]) >> HALF_BITS)


@device_function
def find_column(index, node, degree):
    """Return the number of a column in the index, or -1. Columns are sorted by degree, then by id."""
    size = np.int64(index.columns.size)
    low = first_above(index.degrees, np.int64(0), size, degree - 1)
    high = first_above(index.degrees, low, size, degree)
    number = first_above(index.columns, low, high, node - 1)
    return number if number < high and index.columns[number] == node else np.int64(-1)


@kernel
def fill_buckets(index: Index, draws: UInt64s, buckets: Buckets) -> None:
    """Draw the variate of every node, and look up the nodes whose variate is within the highest limit of a column."""
    if is_empty(buckets):
        return
    first, second, switch = mix(draws[0]), mix(draws[1]), draws[2] >> HALF_BITS
    num_nodes, nodes, size = np.int64(index.starts.size - 1), buckets.nodes, 0
    # Limits decrease with the degree, and columns are sorted by ascending degree.
    highest = np.uint64(buckets.limits[0])
    # A few instructions per node of the graph, and two random reads, prefetched, per lookup. The last iteration is
    # after the nodes, and looks up the remaining ones.
    for block in range(0, num_nodes + LANES, LANES):
        marks = np.uint64(0)
        if block < num_nodes:
            marks = mark_likely_range(block, min(num_nodes - block, LANES), first, second, switch, highest)
        while marks != 0:
            nodes[np.uintp(size)] = block + lowest_bit(marks)
            marks &= marks - ONE
            size += 1
        if size >= BATCH or block >= num_nodes:
            find_bucket(index, nodes[:size], first, second, switch, buckets)
            size = 0


@device_function
def is_empty(buckets):
    for bucket in buckets.of_index:  # noqa: SIM110 - Numba has no all()
        if bucket >= 0:
            return False
    return True


@device_function
def mark_range(node, count, key, limit):
    """Return a mask of those of `count` consecutive nodes whose high bits don't exceed a limit."""
    marks = np.uint64(0)
    for number in range(count):
        marks |= np.uint64(high_bits(key, node + number) <= limit) << np.uint64(number)
    return marks


@device_function
def mark_likely_range(node, count, first, second, switch, limit):
    """Like `mark_likely`, for consecutive nodes."""
    marks = mark_range(node, LANES, first, limit)
    if switch != 0:
        switched = mark_range(node, LANES, SWITCH, switch - ONE)
        marks = (marks & ~switched) | (mark_range(node, LANES, second, limit) & switched)
    return marks & (ONE << np.uint64(count)) - ONE


@device_function
def find_bucket(index, nodes, first, second, switch, buckets):
    """Add the entries of nodes to the buckets of their columns, if they are within the columns' limits."""
    starts, entries = index.starts, index.entries
    last, last_entry = nodes.size - 1, entries.size - 1
    for number in range(-2 * AHEAD if nodes.size > 0 else 0, nodes.size):
        # The start of the entries must be loaded before they can be prefetched.
        prefetch(starts, nodes[np.uintp(min(number + 2 * AHEAD, last))])
        if number + AHEAD >= 0:
            start = starts[np.uintp(nodes[np.uintp(min(number + AHEAD, last))])]
            prefetch(entries, min(start, last_entry))
            prefetch(entries, min(start + CACHE_LINE // entries.itemsize, last_entry))
        if number < 0:
            continue
        node = np.uintp(nodes[np.uintp(number)])
        bits = high_bits(second if high_bits(SWITCH, node) < switch else first, node)
        for entry in range(starts[node], starts[node + np.uintp(1)]):
            found = np.uint64(entries[np.uintp(entry)])
            column = np.uintp(found >> HALF_BITS)
            if bits > buckets.limits[column]:
                break
            bucket = buckets.of_index[column]
            if bucket >= 0:
                size = buckets.counts[np.uintp(bucket)]
                if size < buckets.places.shape[1]:
                    buckets.high_halves[np.uintp(bucket), np.uintp(size)] = np.uint32(bits)
                    buckets.places[np.uintp(bucket), np.uintp(size)] = np.uint32(found)
                buckets.counts[np.uintp(bucket)] = size + 1
