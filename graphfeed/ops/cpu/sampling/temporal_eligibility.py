"""Which edges of a column may be sampled at a time: the parts that all temporal kernels share.

Edges are named by their rank, their place when each column (or each type in it) is in the order of time; so those
before a time are a run. An edge is admitted to a column if its time is below the column's, and not below its first.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, always_inline, device_function, prefetch
from graphfeed.ops.cpu.sampling.pick import count_picks

EARLIEST = np.int64(np.iinfo(np.int64).min)
COLUMNS_AHEAD = 16
FEW = 16
"""So many times are compared one after the other: two cache lines."""


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
def cut(times, low, high, first, limit, windowed):
    """Return the run of a segment whose times are admitted; all of it where there are no times."""
    if times.size == 0:
        return low, high
    high = first_from(times, low, high, limit)
    return (first_from(times, low, high, first) if windowed else low), high


@device_function
def weight_before(cumulative, start, low):
    """Return the cumulative weight of a column in front of a rank."""
    return cumulative[low - 1] if cumulative.size > 0 and low > start else np.int64(0)


@device_function
def gather(earliest, cumulative, low, high, before, first, found, sums):
    """Write which of a run's edges are not too early, and the running sum of their weights; return how many."""
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
def most_edges(indptr, seeds):
    """Return the length of the longest column."""
    most = np.int64(0)
    for column in range(seeds.size):
        most = max(most, np.int64(indptr[seeds[column] + 1]) - np.int64(indptr[seeds[column]]))
    return most


@device_function
def window_start(time, window):
    """Return the first time inside of an open window before a time."""
    steps = max(window - 1, 0)
    return EARLIEST if time < EARLIEST + steps else time - steps


@device_function
def open_columns(indptr, nodes, bases, starts, sizes):
    """Write where each column starts, twice, and how many edges it has."""
    last = nodes.size - 1
    for row in range(nodes.size):
        prefetch(indptr, np.intp(nodes[min(row + AHEAD, last)]))
        node = np.uintp(nodes[row])
        start = np.int64(indptr[node])
        bases[row] = start
        starts[row] = start
        sizes[row] = np.int64(indptr[node + np.uintp(1)]) - start


@always_inline
def guess_rank(low, high, first, last, bound):
    """Return where a bound would be among the ranks `low .. high` if times rose evenly between those two's."""
    spread = max(np.float64(last) - np.float64(first), 1.0)
    return low + np.int64((np.float64(bound) - np.float64(first)) / spread * np.float64(high - low))


@always_inline
def guess_by_ends(times, low, high, bound):
    """Return where a bound would be in a column if its times were spread evenly."""
    first, last = times[np.uintp(low)], times[np.uintp(high)]
    return guess_rank(low, high, first, last, min(max(bound, first), last))


@always_inline
def guess_again(times, low, high, guess, bound):
    """Do so between the guess and that end of the column beyond which the bound can't be."""
    first, last, middle = times[np.uintp(low)], times[np.uintp(high)], times[np.uintp(guess)]
    bound = min(max(bound, first), last)
    above = middle < bound
    low, first = (guess, middle) if above else (low, first)
    high, last = (high, last) if above else (guess, middle)
    return guess_rank(low, high, first, last, bound)


@always_inline
def count_near(times, low, bound, size):
    """Count the times below a bound among `size` from `low` on."""
    below = np.int64(0)
    for rank in range(low, low + size):
        below += np.int64(times[np.uintp(rank)] < bound)
    return below


@device_function
def rank_from(times, low, high, guess, bound):
    """Do as `first_from`, from a guess outwards, at first as far as evenly spread times would make it."""
    step = FEW + abs(guess_again(times, low, high - 1, guess, bound) - guess)
    if times[np.uintp(guess)] < bound:
        low = guess + 1
        top = guess + step
        while top < high and times[np.uintp(top)] < bound:
            low, step = top + 1, 2 * step
            top += step
        high = min(top, high)
    else:
        high = guess
        bottom = guess - step
        while bottom >= low and times[np.uintp(bottom)] >= bound:
            high, step = bottom, 2 * step
            bottom -= step
        low = max(bottom + 1, low)
    while high - low > FEW:
        middle = (low + high) >> 1
        if times[np.uintp(middle)] < bound:
            low = middle + 1
        else:
            high = middle
    return low + count_near(times, low, bound, high - low)


@always_inline
def rank_near(times, low, high, near, bound):
    """Do as `first_from`, which mostly finds it among the `FEW` times from `near` on, or in a column of no more."""
    if high - low <= FEW:
        rank = low + count_near(times, low, bound, high - low)
    else:
        below = count_near(times, near, bound, FEW)
        rank = near + below
        if (below == 0 and near > low) or (below == FEW and rank < high):
            rank = rank_from(times, low, high, near + max(below - 1, 0), bound)
    return rank


@device_function
def count_below(times, starts, sizes, bounds, below):
    """Write how many times of each column are below its bound.

    What a search will look at is asked for in three steps while columns before it are searched: the ends of the
    column, the place that those make likely, and the few times about the place that this one makes likely.
    """
    count = starts.size
    for row in range(-3 * COLUMNS_AHEAD, count):
        far, near, close = row + 3 * COLUMNS_AHEAD, row + 2 * COLUMNS_AHEAD, row + COLUMNS_AHEAD
        if far < count and sizes[far] > 0:
            low, size = starts[far], sizes[far]
            prefetch(times, np.intp(low))
            prefetch(times, np.intp(low + size - 1))
            if size <= FEW:
                prefetch(times, np.intp(low + (size >> 1)))
        if near >= 0 and near < count and sizes[near] > FEW:
            low, high = starts[near], starts[near] + sizes[near] - 1
            below[near] = guess_by_ends(times, low, high, bounds[near])
            prefetch(times, np.intp(below[near]))
        if close >= 0 and close < count and sizes[close] > FEW:
            low, high = starts[close], starts[close] + sizes[close] - 1
            guess = guess_again(times, low, high, below[close], bounds[close]) - FEW // 2
            guess = min(max(guess, low), high + 1 - FEW)
            for place in (guess, guess + FEW // 2, guess + FEW - 1):
                prefetch(times, np.intp(place))
            below[close] = guess
        if row >= 0:
            low = starts[row]
            below[row] = rank_near(times, low, low + sizes[row], below[row], bounds[row]) - low


@device_function
def cut_columns(times, row_times, window, starts, sizes):
    """Reduce all columns to the edges whose times are admitted; a window of -1 is none."""
    below = np.empty(starts.size, np.int64)
    count_below(times, starts, sizes, row_times, below)
    sizes[:] = below
    if window < 0:
        return
    firsts = np.empty(starts.size, np.int64)
    for row in range(starts.size):
        firsts[row] = window_start(row_times[row], window)
    count_below(times, starts, sizes, firsts, below)
    for row in range(starts.size):
        starts[row] += below[row]
        sizes[row] -= below[row]


@device_function
def repeat_rows(out_indptr, owners):
    """Write the column of each edge: loops over edges alone keep more reads in flight than loops inside of rows."""
    at = np.int64(0)
    for row in range(out_indptr.size - 1):
        end = np.int64(out_indptr[row + 1])
        for edge in range(at, end):
            owners[np.uintp(edge)] = row
        at = end


@device_function
def follow(order, bases, owners, positions):
    """Replace ranks by positions in the graph."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(order, np.intp(positions[min(edge + AHEAD, last)]))
        base = bases[np.uintp(owners[np.uintp(edge)])]
        positions[np.uintp(edge)] = base + order[np.uintp(positions[np.uintp(edge)])]


@device_function
def follow_links(links, bases, owners, positions, nodes, count):
    """Replace ranks by positions in the graph, and give the source of each edge a row of its own, in one read."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(links, np.intp(positions[min(edge + AHEAD, last)]))
        link = links[np.uintp(positions[np.uintp(edge)])]
        nodes[np.uintp(count + edge)] = np.uint32(link)
        positions[np.uintp(edge)] = bases[np.uintp(owners[np.uintp(edge)])] + (link >> 32)


@device_function
def append_sources(indices, positions, nodes, count):
    """Give the source of each edge a row of its own."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(indices, np.intp(positions[min(edge + AHEAD, last)]))
        nodes[np.uintp(count + edge)] = indices[np.uintp(positions[edge])]


@device_function
def append_times(edge_times, positions, neighbors, row_times, count):
    """Give the row of each edge its column's time, or the edge's where those are given.

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
        for edge in range(positions.size):
            row_times[np.uintp(count + edge)] = row_times[np.uintp(neighbors[np.uintp(edge)])]
    for edge in range(positions.size):
        neighbors[np.uintp(edge)] = count + edge


@device_function
def count_hop(cumulative, fanout, replace, bases, starts, sizes, out_indptr):
    """Write the running count of each column's picks; return the sum."""
    total = np.int64(0)
    out_indptr[0] = 0
    most = np.int64(np.iinfo(np.int64).max) if fanout < 0 else np.int64(fanout)
    plain = cumulative.size == 0
    for row in range(starts.size):
        size = sizes[row]
        if plain and replace and fanout > 0:
            total += fanout if size > 0 else 0
        elif plain:
            total += min(size, most)
        else:
            low = starts[row]
            before = weight_before(cumulative, bases[row], low)
            total += count_picks(cumulative, low, low + size, before, fanout, replace)
        out_indptr[row + 1] = total
    return total


@device_function
def open_timed_hop(
    indptr, times, cumulative, fanouts, replace, window, hop, nodes, row_times, node_counts, bases, starts, sizes,
    out_indptr, edge_counts, positions,
):  # fmt: skip
    """Count the picks of a hop; return where its column starts begin, or -1 where an output is too short for it."""
    count, first = node_counts[hop], edge_counts[hop]
    row = hop
    for earlier in range(hop):
        row += node_counts[earlier]
    edge_counts[hop + 1] = first
    if starts.size < count or out_indptr.size < row + count + 1:
        return np.int64(-1)
    # Rows keep their times, so what the hop before has found for its rows holds on.
    known = node_counts[hop - 1] if hop > 0 else np.int64(0)
    open_columns(indptr, nodes[known:count], bases[known:count], starts[known:count], sizes[known:count])
    if times.size > 0:
        cut_columns(times, row_times[known:count], window, starts[known:count], sizes[known:count])
    own = out_indptr[row : row + count + 1]
    total = count_hop(cumulative, fanouts[hop], replace, bases, starts[:count], sizes[:count], own)
    edge_counts[hop + 1] = first + total
    if positions.size < first + total or nodes.size < count + total:
        return np.int64(-1)
    return np.int64(row)


@device_function
def close_timed_hop(
    indices, order, links, edge_times, hop, nodes, row_times, node_counts, bases, rows, edge_counts, positions,
    neighbors,
):  # fmt: skip
    """Turn what a hop has picked into positions in the graph, and their sources into new rows."""
    count = node_counts[hop]
    first, last = edge_counts[hop], edge_counts[hop + 1]
    picked, own = positions[first:last], neighbors[first:last]
    repeat_rows(rows, own)
    if links.size > 0:
        follow_links(links, bases, own, picked, nodes, count)
    else:
        if order.size > 0:
            follow(order, bases, own, picked)
        append_sources(indices, picked, nodes, count)
    append_times(edge_times, picked, own, row_times, count)
    node_counts[hop + 1] = count + last - first
