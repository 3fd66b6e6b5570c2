"""Passes that draw by weight. All draws of a block of runs perform each step together.

Weights are stored as running sums of integers, and draws are integers too, because floating-point sums differ between
machines. Each step prefetches the reads of the next step::

    guess_line          draw a goal; guess its edge as if all weights were equal, and prefetch the sum there
    look_closer         read that sum; correct the guess by the distance to the goal, and prefetch a line of sums there
    find_passing_edge   count the sums of the line up to the goal, which gives the edge; outside the line, gallop

If few edges have most of the weight, a draw uses the guide of its goal's share instead (see `ops.guide_sums`).
"""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Float64s, Int64s, device_function, kernel, prefetch
from graphfeed.ops.cpu.random import draw_below
from graphfeed.ops.cpu.sampling.passes.columns import fanout_of
from graphfeed.ops.cpu.sampling.passes.state import COUNT, NEEDED, SHORT, PickBlock, Runs, Sums
from graphfeed.ops.cpu.search import first_above

BLOCK = 32
"""Number of runs that draw together."""
DRAWS = 256
"""Number of draws with replacement that are searched together."""
LINE = 8
"""Number of sums that are compared with a goal at once: they are in one or two cache lines."""
ROWS_AHEAD = 8
"""Prefetch distance in runs, each of which reads several weights."""
LANES = 8
"""Number of picks of a run that are compared with a target at once."""
NOWHERE = np.int64(np.iinfo(np.int64).max)
"""Mark of a pick that is not drawn yet: after all targets."""


class Queue(NamedTuple):
    """The runs of a block, and the state of their draws between steps."""

    runs: Int64s
    """Runs of the block; then for each run, start and end of its edges, the sum before it, its weight, its number of
    picks, and its edges per weight."""
    lows: Int64s
    highs: Int64s
    befores: Int64s
    totals: Int64s
    counts: Int64s
    densities: Float64s
    goals: Int64s
    """For each draw, the sum that its edge exceeds, its guessed edge, and the index of its run in the block."""
    guesses: Int64s
    owners: Int64s
    places: Int64s
    """With replacement: index at which the pick is written. Without: number of picks before the target."""
    targets: Int64s
    """Without replacement: the draw in the remaining weight of the run, and the weight of the picks before it."""
    skips: Int64s
    marks: Int64s
    """For each pick, the position in the remaining weight where it was cut out, its weight, the number of picks before
    it, and its edge. The capacity of a run is a multiple of `LANES`."""
    weights: Int64s
    ranks: Int64s
    edges: Int64s


@kernel
def count_weighted(sums: Sums, replace: bool, columns: Runs, picks: PickBlock) -> int:
    """Write the offsets of each run's picks, as `count_uniform` does, without edges of weight 0."""
    cumulative = sums.cumulative
    total, last = columns.offsets[0], columns.sizes[COUNT] - 1
    for run in range(last + 1):
        # A run costs one random read and, without replacement, a scan of at least its first `fanout` edges.
        prefetch(cumulative, columns.starts[np.uintp(min(run + ROWS_AHEAD, last))])
        low, degree, fanout = columns.starts[run], columns.degrees[run], fanout_of(columns, run)
        if degree > 0 and fanout != 0:
            before = weight_before(cumulative, columns.bases[run], low)
            repeats = replace and fanout > 0
            eligible = count_eligible(cumulative, low, low + degree, before, 1 if repeats else fanout)
            total += fanout if repeats and eligible > 0 else eligible
        columns.offsets[np.uintp(run + 1)] = total
    columns.sizes[NEEDED] = total
    return 0 if picks.positions.size >= total else SHORT


@kernel
def fill_weighted(sums: Sums, columns: Runs, queue: Queue, picks: PickBlock) -> int:
    """Write the picks of each run, drawn without replacement, one after the other, in ascending order."""
    cumulative, size, last = sums.cumulative, 0, columns.sizes[COUNT] - 1
    # Two cache misses per pick, prefetched, and a loop over the run's picks so far. The last iteration draws the rest.
    for run in range(last + 2):
        if size == BLOCK or run > last:
            draw_without_replacement(sums, columns, queue, size, picks.positions)
            size = 0
        if run > last or columns.offsets[run + 1] == columns.offsets[run]:
            continue
        prefetch_total(cumulative, columns, min(run + ROWS_AHEAD, last))
        count, fanout = columns.offsets[run + 1] - columns.offsets[run], fanout_of(columns, run)
        if fanout < 0 or count < fanout:
            take_eligible(cumulative, columns, run, picks.positions)
        elif BLOCK * count > queue.marks.size:
            columns.sizes[NEEDED] = count
            return SHORT
        else:
            queue_run(cumulative, columns, queue, size, run)
            size += 1
    return 0


@kernel
def fill_weighted_repeated(sums: Sums, columns: Runs, queue: Queue, picks: PickBlock) -> None:
    """Write the picks of each run, drawn with replacement, in the order of draws. Two cache misses per pick."""
    cumulative, size, last = sums.cumulative, 0, columns.sizes[COUNT] - 1
    for run in range(last + 2):
        if size == BLOCK or run > last:
            draw_with_replacement(sums, columns, queue, size, picks.positions)
            size = 0
        if run > last or columns.offsets[run + 1] == columns.offsets[run]:
            continue
        prefetch_total(cumulative, columns, min(run + ROWS_AHEAD, last))
        if fanout_of(columns, run) < 0:
            take_eligible(cumulative, columns, run, picks.positions)
        else:
            queue_run(cumulative, columns, queue, size, run)
            size += 1


@device_function
def queue_run(cumulative, columns, queue, size, run):
    low, high = columns.starts[run], columns.starts[run] + columns.degrees[run]
    before = weight_before(cumulative, columns.bases[run], low)
    total = cumulative[np.uintp(high - 1)] - before
    queue.runs[size], queue.lows[size], queue.highs[size] = run, low, high
    queue.befores[size], queue.totals[size] = before, total
    queue.counts[size] = columns.offsets[run + 1] - columns.offsets[run]
    queue.densities[size] = np.float64(high - low) / np.float64(total)


@device_function
def draw_with_replacement(sums, columns, queue, size, out):
    """Write the edges of all draws of a block, in the order of draws."""
    own, number = np.int64(0), np.int64(0)
    while own < size:
        drawn = np.int64(0)
        while drawn < DRAWS and own < size:
            run = queue.runs[own]
            until = min(queue.counts[own], number + DRAWS - drawn)
            for draw in range(number, until):
                target = draw_below(columns.states[run], draw, queue.totals[own])
                guess_line(sums, queue, drawn, own, target)
                queue.owners[drawn], queue.places[drawn] = own, columns.offsets[run] + draw
                drawn += 1
            number = until
            if number == queue.counts[own]:
                own, number = own + 1, np.int64(0)
        for draw in range(drawn):
            look_closer(sums, queue, draw, queue.owners[draw])
        for draw in range(drawn):
            out[np.uintp(queue.places[draw])] = find_passing_edge(sums.cumulative, queue, draw, queue.owners[draw])


@device_function
def draw_without_replacement(sums, columns, queue, size, out):
    """Write the distinct edges of a block of runs, drawn one after the other, in ascending order."""
    # Targets are drawn in the remaining weight of a run, with its picks cut out. For each pick, `marks` is the position
    # in the current remaining weight where it was cut out, and `ranks` the number of picks before it. Loops over the
    # picks have no branches, because their comparisons can't be predicted.
    most, room = np.int64(0), queue.marks.size // BLOCK
    for own in range(size):
        most = max(most, queue.counts[own])
    for own in range(size):
        queue.marks[own * room : own * room + most + LANES] = NOWHERE
        queue.weights[own * room : own * room + most + LANES] = 0
    # Each step of a draw is done for all runs, so that their cache misses overlap.
    for number in range(most):
        for own in range(size):
            if number < queue.counts[own]:
                target = draw_below(columns.states[queue.runs[own]], number, queue.totals[own])
                skipped, rank = skip_picks(queue.marks[own * room :], queue.weights[own * room :], number, target)
                guess_line(sums, queue, own, own, target + skipped)
                queue.targets[own], queue.skips[own], queue.places[own] = target, skipped, rank
        for own in range(size):
            if number < queue.counts[own]:
                look_closer(sums, queue, own, own)
        for own in range(size):
            if number < queue.counts[own]:
                cut_out(sums.cumulative, queue, own, number)
    for own in range(size):
        at = columns.offsets[queue.runs[own]]
        for number in range(queue.counts[own]):
            pick = np.uintp(own * room + number)
            out[np.uintp(at + queue.ranks[pick])] = queue.edges[pick]


@device_function
def cut_out(cumulative, queue, own, number):
    """Find the edge of a run's draw, and cut out its weight from the remaining weight."""
    edge = find_passing_edge(cumulative, queue, own, own)
    start = queue.befores[own] if edge == queue.lows[own] else cumulative[np.uintp(edge - 1)]
    weight = cumulative[np.uintp(edge)] - start
    queue.totals[own] -= weight
    first, target = own * (queue.marks.size // BLOCK), queue.targets[own]
    marks, ranks = queue.marks[first:], queue.ranks[first:]
    for block in range(0, number, LANES):
        for lane in range(LANES):
            # -1 has all bits set and 0 none, so the weight or 0 is subtracted, without a branch.
            is_behind = np.int64(marks[np.uintp(block + lane)] > target)
            marks[np.uintp(block + lane)] -= weight & -is_behind
            ranks[np.uintp(block + lane)] += is_behind
    marks[number], queue.weights[first + number] = start - queue.befores[own] - queue.skips[own], weight
    ranks[number], queue.edges[first + number] = queue.places[own], edge


@device_function
def skip_picks(marks, weights, count, target):
    """Return the weight and the number of a run's picks so far that are before a target in the remaining weight."""
    skipped, rank = np.int64(0), np.int64(0)
    for block in range(0, count, LANES):
        for lane in range(LANES):
            is_before = np.int64(marks[np.uintp(block + lane)] <= target)
            skipped += weights[np.uintp(block + lane)] & -is_before
            rank += is_before
    return skipped, rank


@device_function
def prefetch_total(cumulative, columns, run):
    prefetch(cumulative, columns.starts[np.uintp(run)] + columns.degrees[np.uintp(run)] - 1)


@device_function
def guess_line(sums, queue, draw, own, target):
    """Guess the edge of a target, and prefetch the guide or the sum there."""
    place = guess_place(queue.lows[own], queue.highs[own], target, queue.densities[own])
    if sums.guides.size > 0:
        prefetch(sums.guides, place)
    else:
        prefetch(sums.cumulative, place)
    queue.goals[draw], queue.guesses[draw] = queue.befores[own] + target, place


@device_function
def guess_place(low, high, target, density):
    # The edge if all weights were equal.
    return min(low + np.int64(np.float64(target) * density), high - 1)


@device_function
def look_closer(sums, queue, draw, own):
    """Replace the guess of a draw by the start of a line of sums, and prefetch that line."""
    place, high = queue.guesses[draw], queue.highs[own]
    if sums.guides.size > 0:
        # The line begins before the guide's edge, so that its first sum does not exceed the goal.
        start = place + np.int64(sums.guides[np.uintp(place)]) - 1
    else:
        missing = np.float64(queue.goals[draw] - sums.cumulative[np.uintp(place)]) * queue.densities[own]
        start = place + np.int64(missing) - (LINE // 2 - 1)
    first = max(min(start, high - LINE), queue.lows[own])
    prefetch(sums.cumulative, first)
    prefetch(sums.cumulative, min(first + LINE - 1, high - 1))
    queue.guesses[draw] = first


@device_function
def find_passing_edge(cumulative, queue, draw, own):
    """Return the first edge of a run whose sum exceeds a draw's goal, probably in its line."""
    low, high, goal, start = queue.lows[own], queue.highs[own], queue.goals[draw], queue.guesses[draw]
    passed, size = np.int64(0), min(high - low, LINE)
    if size == LINE:
        # LLVM vectorizes a loop of constant length, and nearly all lines have full length.
        for number in range(LINE):
            passed += np.int64(cumulative[np.uintp(start + number)] <= goal)
    else:
        for number in range(size):
            passed += np.int64(cumulative[np.uintp(start + number)] <= goal)
    if (passed == 0 and start > low) or (passed == size and start + size < high):
        return gallop(cumulative, low, high, start + min(passed, size - 1), goal)
    return start + passed


@device_function
def gallop(cumulative, low, high, place, goal):
    """Return the first edge of a run whose sum exceeds a goal, by steps that double from a start, then by bisection."""
    # With common weights the edge is near, at the cost of one or two cache misses. A plain bisection has one miss for
    # each of its first halvings.
    step = LINE
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
def weight_before(cumulative, base, low):
    return cumulative[np.uintp(low - 1)] if low > base else np.int64(0)


@device_function
def count_eligible(cumulative, low, high, before, most):
    """Count the edges of a run with nonzero weight, up to `most` unless that is -1."""
    count = 0
    for edge in range(low, high):
        if cumulative[np.uintp(edge)] != before:
            before = cumulative[np.uintp(edge)]
            count += 1
            if count == most:
                break
    return count


@device_function
def take_eligible(cumulative, columns, run, out):
    at, low = columns.offsets[run], columns.starts[run]
    before = weight_before(cumulative, columns.bases[run], low)
    for edge in range(low, low + columns.degrees[run]):
        if cumulative[np.uintp(edge)] != before:
            before = cumulative[np.uintp(edge)]
            out[np.uintp(at)] = edge
            at += 1
