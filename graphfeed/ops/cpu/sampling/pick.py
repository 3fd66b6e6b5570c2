"""Which edges of one column are sampled: the parts that all kernels of neighbour sampling share.

A segment is the run of edges `low .. high - 1` of one column, or those of one edge type in it. `before` is the
cumulative weight in front of the segment. Positions are written to `out[at:]`. Weights are integers, and so is every
draw, because sums of floating-point numbers differ between machines and a comparison might turn out either way.
"""

import numpy as np

from graphfeed.ops.cpu.jit import always_inline, device_function, prefetch
from graphfeed.ops.cpu.random import draw_below

LINE_WEIGHTS = 8
"""Cumulative weights in a cache line."""


@device_function
def weight_before(cumulative, start, low):
    """Return the cumulative weight of a column in front of an edge; 0 without weights."""
    return cumulative[low - 1] if cumulative.size > 0 and low > start else np.int64(0)


@device_function
def run_end(types, low, end):
    """Return where the run of edges of one type ends that begins at `low`; the column's end without types."""
    return first_above(types, low, end, types[low]) if types.size > 0 else end


@device_function
def read_segment(types, cumulative, fanouts, start, low, end):
    """Return where the segment from `low` on ends, the cumulative weight in front of it, and its fan-out.

    Args:
        types: Edge types; of use if there is a fan-out for each.
        cumulative: Fixed-point weights, or empty.
        fanouts: One number, or one per edge type.
        start: Where the column starts.
        low: Where the segment starts.
        end: Where the column ends.
    """
    by_type = fanouts.size > 1
    high = run_end(types, low, end) if by_type else end
    return high, weight_before(cumulative, start, low), fanouts[types[low]] if by_type else fanouts[0]


@device_function
def count_eligible(cumulative, low, high, before, fanout):
    """Count the edges of non-zero weight in a segment, at most `fanout` of them unless it is -1."""
    if cumulative.size == 0:
        return high - low
    count = 0
    for edge in range(low, high):
        if cumulative[edge] != before:
            before = cumulative[edge]
            count += 1
            if count == fanout:
                break
    return count


@device_function
def count_picks(cumulative, low, high, before, fanout, replace):
    """Count what `pick` will write for a segment."""
    if low == high or fanout == 0:
        return np.int64(0)
    if replace and fanout > 0:
        return np.int64(fanout) if count_eligible(cumulative, low, high, before, 1) > 0 else np.int64(0)
    eligible = np.int64(count_eligible(cumulative, low, high, before, fanout))
    return eligible if fanout < 0 else min(np.int64(fanout), eligible)


@device_function
def first_above(values, low, high, target):
    """Return the first place in `low .. high - 1` of an ascending array with a value above `target`, else `high`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@device_function
def guess_edge(low, high, total, target):
    """Guess the edge of a target: where it would be if all weights were equal."""
    return min(low + np.int64(np.float64(target) / np.float64(total) * np.float64(high - low)), high - 1)


@device_function
def gallop(cumulative, low, high, place, goal):
    """Return the first edge of a segment whose sum exceeds a goal: in steps that double away from a place, then halve.

    With weights of a usual spread the edge is near, which takes one or two cache misses; a plain bisection takes one
    for each of its first halvings.
    """
    step = LINE_WEIGHTS
    if cumulative[place] > goal:
        bottom = place - step
        while bottom >= low and cumulative[bottom] > goal:
            place, step = bottom, 2 * step
            bottom = place - step
        return first_above(cumulative, max(bottom + 1, low), place, goal)
    top = place + step
    while top < high and cumulative[top] <= goal:
        place, step = top, 2 * step
        top = place + step
    return first_above(cumulative, place + 1, min(top, high - 1), goal)


@device_function
def find_edge(cumulative, low, high, before, total, target):
    """Return the first edge of a segment whose cumulative weight exceeds `before + target`."""
    return gallop(cumulative, low, high, guess_edge(low, high, total, target), before + target)


@device_function
def prefetch_edges(cumulative, low, high, total, count, state):
    """Prefetch the cache lines that `count` draws will look at first."""
    for number in range(count):
        target = draw_below(state, number, total)
        prefetch(cumulative, np.intp(guess_edge(low, high, total, target)))


@device_function
def insert(table, position):
    """Add a position to an open-addressing table of a power-of-two size; return False if it was there."""
    mask = table.size - 1
    slot = (position * 0x9E3779B1) & mask
    while table[slot] != -1:
        if table[slot] == position:
            return False
        slot = (slot + 1) & mask
    table[slot] = position
    return True


@always_inline
def pick_few(low, degree, count, state, out, at):
    """Choose `count` of `degree` edges, each set equally likely (Floyd's algorithm; Bentley, CACM 1987)."""
    for number in range(count):
        last = degree - count + number
        position = low + draw_below(state, number, last + 1)
        for chosen in range(at, at + number):
            if out[np.uintp(chosen)] == position:
                position = low + last
                break
        out[np.uintp(at + number)] = position


@device_function
def pick_many(low, degree, count, state, out, at, table):
    """Do as `pick_few`, but look edges up in a hash table.

    For large fan-outs: with comparisons of all pairs, mini-batches take 1.3 times as long at a fan-out of 64, and 1.75
    times at 200 (ogbn-products shaped graph).
    """
    for number in range(count):
        last = degree - count + number
        position = low + draw_below(state, number, last + 1)
        if not insert(table, position):
            position = low + last
            insert(table, position)
        out[at + number] = position
    table[:] = -1


@device_function
def pick_weighted(cumulative, low, high, before, count, state, out, at):
    """Choose `count` distinct edges one after the other by weight, cutting the weight of each out of the rest.

    The picks so far are kept in ascending order, so that one walk along them maps a draw from what is left of the
    segment to the whole segment. It ends sorted, and the edges need no flags.
    """
    total = cumulative[high - 1] - before
    remaining = total
    prefetch_edges(cumulative, low, high, total, count, state)
    for number in range(count):
        target = draw_below(state, number, remaining)
        place = at
        while place < at + number:
            edge = out[place]
            start = before if edge == low else cumulative[edge - 1]
            if before + target < start:
                break
            target += cumulative[edge] - start
            place += 1
        edge = find_edge(cumulative, low, high, before, total, target)
        for shifted in range(at + number, place, -1):
            out[shifted] = out[shifted - 1]
        out[place] = edge
        remaining -= cumulative[edge] - (before if edge == low else cumulative[edge - 1])


@device_function
def take_eligible(cumulative, low, high, before, out, at):
    """Write all edges of a segment that have a weight."""
    for edge in range(low, high):
        if cumulative[edge] != before:
            before = cumulative[edge]
            out[at] = edge
            at += 1


@device_function
def pick(cumulative, low, high, before, count, replace, fanout, state, out, at, table):
    """Write the `count` edges, as counted by `count_picks`, that a segment is sampled to."""
    weighted = cumulative.size > 0
    if replace and fanout > 0:
        total = cumulative[high - 1] - before if weighted else high - low
        if weighted:
            prefetch_edges(cumulative, low, high, total, count, state)
        for number in range(count):
            target = draw_below(state, number, total)
            if weighted:
                out[at + number] = find_edge(cumulative, low, high, before, total, target)
            else:
                out[at + number] = low + target
    elif not weighted:
        if count == high - low:
            for number in range(count):
                out[at + number] = low + number
        elif table.size == 0:
            pick_few(low, high - low, count, state, out, at)
        else:
            pick_many(low, high - low, count, state, out, at, table)
    elif fanout < 0 or count < fanout:
        take_eligible(cumulative, low, high, before, out, at)
    else:
        pick_weighted(cumulative, low, high, before, count, state, out, at)
