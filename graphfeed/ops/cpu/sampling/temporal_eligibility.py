"""Which edges of a column are eligible at a time: the parts that all temporal kernels share.

An edge's rank is its place once each column (or each edge type in it) is sorted by time; so the edges before a time
are a run of ranks. An edge is eligible if its time is below the column's time and not below the window's first time.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, prefetch

EARLIEST = np.int64(np.iinfo(np.int64).min)
BLOCK = 128
"""How many columns are bisected in lockstep."""
FEW_TIMES = 16
"""This many times, which lie in two or three cache lines, are compared one after the other."""


@device_function
def first_from(times, low, high, bound):
    """Return the first place in `low .. high - 1` of a rising array whose value is not below the bound, else `high`."""
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@device_function
def eligible_run(times, low, high, first, limit, windowed):
    """Return the run of a segment whose times are eligible; all of it if there are no times."""
    if times.size == 0:
        return low, high
    high = first_from(times, low, high, limit)
    return (first_from(times, low, high, first) if windowed else low), high


@device_function
def filter_run(earliest, cumulative, low, high, before, first, found, sums):
    """Write which of a run's edges are not too early by their second time, and the running sum of their weights.

    Returns:
        How many edges are left.
    """
    count, total = 0, np.int64(0)
    for edge in range(low, high):
        unit = np.int64(0)
        if cumulative.size > 0:
            unit = cumulative[edge] - before
            before = cumulative[edge]
        if earliest[edge] >= first:
            total += unit
            found[count], sums[count] = edge, total
            count += 1
    return count


@device_function
def max_degree(indptr, seeds):
    """Return the length of the longest column."""
    longest = np.int64(0)
    for column in range(seeds.size):
        longest = max(longest, np.int64(indptr[seeds[column] + 1]) - np.int64(indptr[seeds[column]]))
    return longest


@device_function
def window_start(time, window):
    """Return the first time inside of an open window before a time."""
    steps = max(window - 1, 0)
    return EARLIEST if time < EARLIEST + steps else time - steps


@device_function
def prefetch_step(times, low, size):
    """Prefetch what the next step of a bisection reads."""
    prefetch(times, np.intp(low + (size >> 1)))
    if size <= FEW_TIMES:
        prefetch(times, np.intp(low))
        prefetch(times, np.intp(low + size - 1))


@device_function
def count_below(times, starts, sizes, bounds, below):
    """Write how many times of each column are below its bound.

    A bisection waits for a cache miss at each halving. Here the columns of a block take each halving together, and
    each prefetches what it reads next, so that their misses overlap. Bisecting one column after the other makes
    mini-batches on an ogbn-products shaped graph take 1.6 to 1.9 times as long.
    """
    left = np.empty(BLOCK, np.int64)
    for first in range(0, starts.size, BLOCK):
        count, longest = min(BLOCK, starts.size - first), np.int64(0)
        for number in range(count):
            row = np.uintp(first + number)
            below[row], left[number] = starts[row], sizes[row]
            longest = max(longest, sizes[row])
            prefetch_step(times, starts[row], sizes[row])
        while longest > FEW_TIMES:
            longest -= longest >> 1
            for number in range(count):
                size = left[number]
                if size > FEW_TIMES:
                    row, half = np.uintp(first + number), size >> 1
                    low = below[row]
                    # A selection instead of a branch, since the comparison can't be predicted.
                    low = low + half if times[np.uintp(low + half)] < bounds[row] else low
                    below[row], left[number] = low, size - half
                    prefetch_step(times, low, size - half)
        for number in range(count):
            row = np.uintp(first + number)
            low, passed = below[row], np.int64(0)
            for rank in range(low, low + left[number]):
                passed += np.int64(times[np.uintp(rank)] < bounds[row])
            below[row] = low - starts[row] + passed


@device_function
def restrict_runs(times, firsts, limits, starts, sizes):
    """Reduce runs of ranks to their eligible edges; without `firsts` there are no windows."""
    below = np.empty(starts.size, np.int64)
    count_below(times, starts, sizes, limits, below)
    sizes[:] = below
    if firsts.size > 0:
        count_below(times, starts, sizes, firsts, below)
        for row in range(starts.size):
            starts[row] += below[row]
            sizes[row] -= below[row]


@device_function
def restrict_columns(times, window, hop, out):
    """Reduce the columns of a hop's new rows to their eligible edges; a window of -1 is none.

    Rows keep their times, so what the hop before has found for its rows holds on.
    """
    if times.size == 0:
        return
    known, count = (out.node_counts[hop - 1] if hop > 0 else np.int64(0)), out.node_counts[hop]
    limits, firsts = out.times[known:count], np.empty(count - known if window >= 0 else 0, np.int64)
    for row in range(firsts.size):
        firsts[row] = window_start(limits[row], window)
    restrict_runs(times, firsts, limits, out.starts[known:count], out.degrees[known:count])


@device_function
def repeat_rows(rows, owners):
    """Write the column of each edge: loops over edges alone keep more reads in flight than loops inside of rows."""
    at = np.int64(0)
    for row in range(rows.size - 1):
        end = np.int64(rows[row + 1])
        for edge in range(at, end):
            owners[np.uintp(edge)] = row
        at = end


@device_function
def ranks_to_positions(order, bases, owners, positions):
    """Replace ranks by positions in the graph."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(order, np.intp(positions[min(edge + AHEAD, last)]))
        base = bases[np.uintp(owners[np.uintp(edge)])]
        positions[np.uintp(edge)] = base + order[np.uintp(positions[np.uintp(edge)])]


@device_function
def follow_links(links, bases, owners, positions, nodes, count):
    """Replace ranks by positions in the graph, and append the source of each edge to the nodes, with one read."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(links, np.intp(positions[min(edge + AHEAD, last)]))
        link = links[np.uintp(positions[np.uintp(edge)])]
        nodes[np.uintp(count + edge)] = np.uint32(link)
        positions[np.uintp(edge)] = bases[np.uintp(owners[np.uintp(edge)])] + (link >> 32)


@device_function
def base_of_columns(indptr, seeds):
    """Return where the column of each seed starts."""
    bases = np.empty(seeds.size, np.int64)
    for column in range(seeds.size):
        bases[column] = indptr[seeds[column]]
    return bases


@device_function
def place_ranks(order, links, bases, offsets, picks):
    """Replace ranks by positions in the graph, column by column; without order and links they are the same."""
    last = picks.size - 1
    for column in range(offsets.size - 1 if links.size > 0 else 0):
        base = bases[column]
        for place in range(offsets[column], offsets[column + 1]):
            prefetch(links, np.intp(picks[np.uintp(min(place + AHEAD, last))]))
            picks[np.uintp(place)] = base + (links[np.uintp(picks[np.uintp(place)])] >> 32)
    for column in range(offsets.size - 1 if order.size > 0 else 0):
        base = bases[column]
        for place in range(offsets[column], offsets[column + 1]):
            picks[np.uintp(place)] = base + order[np.uintp(picks[np.uintp(place)])]


@device_function
def append_sources(indices, positions, nodes, count):
    """Append the source of each edge to the nodes."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(indices, np.intp(positions[min(edge + AHEAD, last)]))
        nodes[np.uintp(count + edge)] = indices[np.uintp(positions[edge])]


@device_function
def inherit(of_columns, owners, of_rows):
    """Give the row of each edge what its column has."""
    for edge in range(owners.size):
        of_rows[np.uintp(edge)] = of_columns[np.uintp(owners[np.uintp(edge)])]


@device_function
def append_times(edge_times, positions, neighbors, row_times, count):
    """Give the row of each edge its column's time, or the edge's if there are any.

    Args:
        edge_times: Time of each edge of the graph, or empty.
        positions: The edges of the hop.
        neighbors: The column of each edge; written: its row.
        row_times: Times of the rows; `count` are there.
        count: How many columns there are.
    """
    last = positions.size - 1
    if edge_times.size > 0:
        for edge in range(positions.size):
            prefetch(edge_times, np.intp(positions[min(edge + AHEAD, last)]))
            row_times[np.uintp(count + edge)] = edge_times[np.uintp(positions[np.uintp(edge)])]
    else:
        inherit(row_times, neighbors, row_times[count:])
    for edge in range(positions.size):
        neighbors[np.uintp(edge)] = count + edge


@device_function
def append_rows(indices, order, links, edge_times, rows, hop, out):
    """Turn the ranks that a hop has picked into positions in the graph, and their sources into new rows."""
    count = out.node_counts[hop]
    first, last = out.edge_counts[hop], out.edge_counts[hop + 1]
    positions, owners = out.positions[first:last], out.neighbors[first:last]
    repeat_rows(rows, owners)
    if links.size > 0:
        follow_links(links, out.bases, owners, positions, out.nodes, count)
    else:
        if order.size > 0:
            ranks_to_positions(order, out.bases, owners, positions)
        append_sources(indices, positions, out.nodes, count)
    append_times(edge_times, positions, owners, out.times, count)
    out.node_counts[hop + 1] = count + last - first
