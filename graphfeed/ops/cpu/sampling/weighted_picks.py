"""Which edges of many columns are sampled by weight: the draws of `pick`, for a block of segments at a time.

A draw looks for an edge among running sums that lie anywhere in memory, and without replacement it waits for the draw
before it. So the draws of a block take each step together, and each prefetches what its next step reads::

    aim        draw a goal; guess its edge as if all weights were equal, and prefetch the sum there
    approach   read that sum; from how far it is off, guess again, and prefetch a window of sums there
    settle     count the sums of the window that the goal has passed, which gives the edge; outside of it, gallop

Where few edges have most of the weight, such guesses are far off. Then there are guides (see `ops.guide_sums`), and
what a draw aims at and reads is the guide of its goal's share, which says where the window begins.

With `pick` for each segment, and sums on small pages, mini-batches take 2.7 times as long without replacement and 3
times with it (ogbn-products shaped graph, fan-outs 15, 10 and 5, weights uniform in 0 to 1).
"""

import numpy as np

from graphfeed.ops.cpu.jit import always_inline, device_function, prefetch, without_refcount
from graphfeed.ops.cpu.random import draw_below, node_state, timed_state, typed_state
from graphfeed.ops.cpu.sampling.pick import count_picks, gallop, pick, read_segment, take_eligible

BLOCK = 32
"""How many segments draw together without replacement."""
DRAWS = 256
"""How many draws are looked for together with replacement."""
WINDOW = 8
"""How many sums are compared with a goal at once: they lie in one or two cache lines."""
ROWS_AHEAD = 8
"""How many rows ahead the weights of a column are prefetched: each row reads several of them."""
LANES = 8
"""The picks of a segment are compared with a target by so many at once."""
NOWHERE = np.int64(np.iinfo(np.int64).max)
"""Where a pick lies that is not made yet: behind all targets."""
MAX_PICKS = 56
"""Up to this many picks of a segment are kept in a block's scratch."""


@always_inline
def guess_place(low, high, target, density):
    """Guess the edge of a target: where it would be if all weights were equal."""
    return min(low + np.int64(np.float64(target) * density), high - 1)


@always_inline
def open_window(cumulative, low, high, start):
    """Return where a window of a segment begins, at a place or as near as it fits, and prefetch it."""
    first = max(min(start, high - WINDOW), low)
    prefetch(cumulative, np.intp(first))
    prefetch(cumulative, np.intp(min(first + WINDOW - 1, high - 1)))
    return first


@always_inline
def approach(cumulative, low, high, goal, place, density):
    """Return where the window of a goal begins, by the sum at a guessed place, and prefetch it."""
    missing = np.int64(np.float64(goal - cumulative[np.uintp(place)]) * density)
    return open_window(cumulative, low, high, place + missing - (WINDOW // 2 - 1))


@always_inline
def follow(cumulative, guides, low, high, place):
    """Return where the window of a goal begins, by the guide of the share that it lies in, and prefetch it.

    It begins in front of the guide's edge, so that its first sum is one that the goal has passed.
    """
    return open_window(cumulative, low, high, place + np.int64(guides[np.uintp(place)]) - 1)


@always_inline
def settle(cumulative, low, high, goal, start):
    """Return the first edge of a segment whose sum exceeds a goal, which is likely in the window from `start` on."""
    passed, size = np.int64(0), min(high - low, WINDOW)
    if size == WINDOW:
        for number in range(WINDOW):
            passed += np.int64(cumulative[np.uintp(start + number)] <= goal)
    else:
        for number in range(size):
            passed += np.int64(cumulative[np.uintp(start + number)] <= goal)
    if (passed == 0 and start > low) or (passed == size and start + size < high):
        return gallop(cumulative, low, high, start + min(passed, size - 1), goal)
    return start + passed


@device_function
def new_queue():
    """Return room for the segments of a block, and for what their draws keep between steps.

    Of each segment: where it starts and ends, the sum in front of it, its state, where its picks go, and how many.
    """
    segments = (
        np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint64),
        np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64),
    )  # fmt: skip
    draws = (
        np.empty(DRAWS, np.int64), np.empty(DRAWS, np.int64), np.empty(DRAWS, np.int64), np.empty(DRAWS, np.int64),
        np.empty(BLOCK, np.int64),
    )  # fmt: skip
    lefts = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.float64)
    picks = (
        np.empty((BLOCK, MAX_PICKS), np.int64), np.empty((BLOCK, MAX_PICKS), np.int64),
        np.empty((BLOCK, MAX_PICKS), np.int64), np.empty((BLOCK, MAX_PICKS), np.int64),
    )  # fmt: skip
    return segments, draws, lefts, picks


@device_function
def uncounted_queue(queue):
    """Return the arrays of a queue without their reference counts, for a loop whose caller keeps them."""
    (
        (lows, highs, befores, states, places, counts),
        (goals, guesses, owners, ats, own_ranks),
        (totals, densities),
        own,
    ) = queue
    marks, weights, ranks, edges = own
    segments = (
        without_refcount(lows), without_refcount(highs), without_refcount(befores), without_refcount(states),
        without_refcount(places), without_refcount(counts),
    )  # fmt: skip
    draws = (
        without_refcount(goals),
        without_refcount(guesses),
        without_refcount(owners),
        without_refcount(ats),
        without_refcount(own_ranks),
    )
    lefts = without_refcount(totals), without_refcount(densities)
    picks = without_refcount(marks), without_refcount(weights), without_refcount(ranks), without_refcount(edges)
    return segments, draws, lefts, picks


@always_inline
def measure(cumulative, segments, lefts, size):
    """Write the weight of each segment of a block, and its edges per weight."""
    lows, highs, befores, _, _, _ = segments
    totals, densities = lefts
    for own in range(size):
        totals[own] = cumulative[np.uintp(highs[own] - 1)] - befores[own]
        densities[own] = np.float64(highs[own] - lows[own]) / np.float64(totals[own])


@device_function
def draw_with_replacement(cumulative, guides, queue, size, out):
    """Write the edges of all draws of a block, in the order of the draws."""
    segments, (goals, guesses, owners, ats, _), lefts, _ = queue
    lows, highs, befores, states, places, counts = segments
    totals, densities = lefts
    measure(cumulative, segments, lefts, size)
    guided = guides.size > 0
    own, number = np.int64(0), np.int64(0)
    while own < size:
        drawn = np.int64(0)
        while drawn < DRAWS and own < size:
            low, high, before, state, total = lows[own], highs[own], befores[own], states[own], totals[own]
            until, at, density = min(counts[own], number + DRAWS - drawn), places[own], densities[own]
            for draw in range(number, until):
                target = draw_below(state, draw, total)
                place = guess_place(low, high, target, density)
                if guided:
                    prefetch(guides, np.intp(place))
                else:
                    prefetch(cumulative, np.intp(place))
                to = np.uintp(drawn + draw - number)
                goals[to], guesses[to], owners[to], ats[to] = before + target, place, own, at + draw
            drawn, number = drawn + until - number, until
            if number == counts[own]:
                own, number = own + 1, np.int64(0)
        for draw in range(drawn):
            row, of = np.uintp(draw), np.uintp(owners[draw])
            if guided:
                guesses[row] = follow(cumulative, guides, lows[of], highs[of], guesses[row])
            else:
                guesses[row] = approach(cumulative, lows[of], highs[of], goals[row], guesses[row], densities[of])
        for draw in range(drawn):
            row, of = np.uintp(draw), np.uintp(owners[draw])
            out[np.uintp(ats[row])] = settle(cumulative, lows[of], highs[of], goals[row], guesses[row])


@always_inline
def skip_picks(marks, weights, row, count, target):
    """Return how much weight, and how many, of a segment's picks so far lie before a target in what is left."""
    skipped, rank = np.int64(0), np.int64(0)
    for block in range(0, count, LANES):
        for lane in range(LANES):
            is_before = np.int64(marks[row, np.uintp(block + lane)] <= target)
            skipped += weights[row, np.uintp(block + lane)] & -is_before
            rank += is_before
    return skipped, rank


@always_inline
def move_picks(marks, ranks, row, count, target, weight):
    """Move a segment's picks so far that lie behind a target, whose edge of a weight is picked."""
    for block in range(0, count, LANES):
        for lane in range(LANES):
            is_behind = np.int64(marks[row, np.uintp(block + lane)] > target)
            marks[row, np.uintp(block + lane)] -= weight & -is_behind
            ranks[row, np.uintp(block + lane)] += is_behind


@device_function
def draw_without_replacement(cumulative, guides, queue, size, out):
    """Write the distinct edges of a block of segments, drawn one after the other, in ascending order.

    Targets are drawn in what is left of a segment once its picks are cut out. Of each pick, `marks` holds where it was
    cut out of what is left now, and `ranks` how many picks lie before it. Loops over the picks have no branches: none
    of what they compare can be predicted.

    Both ways to draw choose what they prefetch by themselves. With one inlined function for that, mini-batches without
    replacement take 1.1 times as long (600,000 nodes, 12 million edges, fan-outs 15, 10 and 5).
    """
    segments, (goals, guesses, targets, skips, own_ranks), lefts, (marks, weights, ranks, edges) = queue
    lows, highs, befores, states, places, counts = segments
    totals, densities = lefts
    measure(cumulative, segments, lefts, size)
    guided = guides.size > 0
    most = np.int64(0)
    for own in range(size):
        most = max(most, counts[own])
        for number in range(-(-counts[own] // LANES) * LANES):
            marks[np.uintp(own), np.uintp(number)] = NOWHERE
            weights[np.uintp(own), np.uintp(number)] = 0
    for number in range(most):
        for own in range(size):
            row = np.uintp(own)
            if number < counts[row]:
                target = draw_below(states[row], number, totals[row])
                skipped, rank = skip_picks(marks, weights, row, number, target)
                place = guess_place(lows[row], highs[row], target + skipped, densities[row])
                if guided:
                    prefetch(guides, np.intp(place))
                else:
                    prefetch(cumulative, np.intp(place))
                goals[row], guesses[row] = befores[row] + target + skipped, place
                targets[row], skips[row], own_ranks[row] = target, skipped, rank
        for own in range(size):
            row = np.uintp(own)
            if number < counts[row]:
                if guided:
                    guesses[row] = follow(cumulative, guides, lows[row], highs[row], guesses[row])
                else:
                    guesses[row] = approach(cumulative, lows[row], highs[row], goals[row], guesses[row], densities[row])
        for own in range(size):
            row = np.uintp(own)
            if number < counts[row]:
                edge = settle(cumulative, lows[row], highs[row], goals[row], guesses[row])
                start = befores[row] if edge == lows[row] else cumulative[np.uintp(edge - 1)]
                weight = cumulative[np.uintp(edge)] - start
                totals[row] -= weight
                move_picks(marks, ranks, row, number, targets[row], weight)
                at = np.uintp(number)
                marks[row, at], weights[row, at] = start - befores[row] - skips[row], weight
                ranks[row, at], edges[row, at] = own_ranks[row], edge
    for own in range(size):
        row = np.uintp(own)
        for number in range(counts[row]):
            out[np.uintp(places[row] + ranks[row, np.uintp(number)])] = edges[row, np.uintp(number)]


@device_function
def draw_queue(cumulative, guides, queue, size, replace, out):
    """Write the edges of the segments that wait."""
    if replace:
        draw_with_replacement(cumulative, guides, queue, size, out)
    else:
        draw_without_replacement(cumulative, guides, queue, size, out)


@always_inline
def enqueue(cumulative, guides, queue, size, low, high, before, count, replace, fanout, state, out, at, table):
    """Do as `pick` for a segment with weights and picks, but let its draws wait; return how many segments wait then."""
    if not (replace and fanout > 0) and (fanout < 0 or count < fanout):
        take_eligible(cumulative, low, high, before, out, at)
        return size
    if count > MAX_PICKS and not replace:
        pick(cumulative, low, high, before, count, replace, fanout, state, out, at, table)
        return size
    lows, highs, befores, states, places, counts = queue[0]
    prefetch(cumulative, np.intp(high - 1))
    row = np.uintp(size)
    lows[row], highs[row], befores[row], states[row], places[row], counts[row] = low, high, before, state, at, count
    if size + 1 < BLOCK:
        return size + 1
    draw_queue(cumulative, guides, queue, BLOCK, replace, out)
    return 0


@device_function
def fill_weighted(cumulative, types, row_times, fanouts, replace, key, table, columns, rows, out):
    """Write the sampled edges of each node with weights; two rows of one node at different times draw differently.

    Args:
        cumulative: Fixed-point weights.
        types: Edge types; of use if there is a fan-out for each.
        row_times: The time of each node, or empty.
        fanouts: One number, or one per edge type.
        replace: Whether an edge may be chosen more than once.
        key: Of the hop.
        table: Scratch for large fan-outs (see `pick_many`).
        columns: Of each node the id, where its column starts in the graph, where its eligible edges start, how many.
        rows: Where each node's picks start in `out`.
        out: Written.
    """
    guides, queue = np.empty(0, np.int32), new_queue()
    draw_rows(cumulative, guides, types, row_times, fanouts, replace, key, table, columns, rows, queue, out)


@device_function
def fill_guided(cumulative, guides, row_times, fanout, replace, key, table, columns, rows, out):
    """Do so for one fan-out, by guides to whole columns unless they are empty."""
    types, fanouts, queue = np.empty(0, np.uint8), np.full(1, fanout, np.int64), new_queue()
    draw_rows(cumulative, guides, types, row_times, fanouts, replace, key, table, columns, rows, queue, out)


@device_function
def draw_rows(cumulative, guides, types, row_times, fanouts, replace, key, table, columns, rows, queue, out):
    """Do so; the caller keeps the arrays, so that none is counted in the loop."""
    nodes, bases, starts, degrees = columns
    cumulative, types, fanouts = without_refcount(cumulative), without_refcount(types), without_refcount(fanouts)
    guides = without_refcount(guides)
    table, out, queue = without_refcount(table), without_refcount(out), uncounted_queue(queue)
    size, last, by_type = 0, rows.size - 2, fanouts.size > 1
    for row in range(last + 1):
        coming = min(row + ROWS_AHEAD, last)
        prefetch(cumulative, np.intp(starts[coming] + degrees[coming] - 1))
        at, until, low = np.int64(rows[row]), np.int64(rows[row + 1]), starts[row]
        end, node = low + degrees[row], nodes[row]
        state = node_state(key, node) if row_times.size == 0 else timed_state(key, node, row_times[row])
        while at < until:
            high, before, fanout = read_segment(types, cumulative, fanouts, bases[row], low, end)
            count = count_picks(cumulative, low, high, before, fanout, replace) if by_type else until - at
            if count > 0:
                own = typed_state(state, types[low]) if by_type else state
                size = enqueue(
                    cumulative, guides, queue, size, low, high, before, count, replace, fanout, own, out, at, table
                )
            at, low = at + count, high
    draw_queue(cumulative, guides, queue, size, replace, out)
