"""Passes of temporal sampling: they find the eligible edges of columns, and the positions of the sampled ones.

An edge's rank is its position after sorting each column, or each type in it, by time. Ranks before a time form a run.
"""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Int64s, device_function, kernel, prefetch
from graphfeed.ops.cpu.sampling.passes.columns import fanout_of
from graphfeed.ops.cpu.sampling.passes.state import (
    AGAIN,
    ALWAYS,
    COUNT,
    FIRST_NEW,
    NEEDED,
    SHORT,
    Moments,
    NodeIds,
    PickBlock,
    RowBlock,
    Runs,
    Sources,
    Sums,
    TimeBlock,
)

BLOCK = 128
"""Number of columns that are bisected in lockstep."""
FEW_TIMES = 16
"""Up to this many times, in two or three cache lines, are compared one after the other."""


@kernel
def open_moments(rows: RowBlock, columns: Runs, moments: Moments) -> None:
    """Write the time of each column and, if there are windows, the first time in its window."""
    for kind in range(rows.firsts.size - 1):
        first, low = rows.firsts[kind], columns.bounds[kind]
        for column in range(columns.bounds[kind + 1] - low):
            time = moments.times[np.uintp(first + column)]
            moments.limits[np.uintp(low + column)] = time
            if moments.windows.size > 0:
                # The window excludes its start, so its first time is one later. The bound at ALWAYS prevents overflow.
                steps = max(moments.windows[np.uintp(first + column)] - 1, 0)
                moments.first_times[np.uintp(low + column)] = ALWAYS if time < ALWAYS + steps else time - steps


@kernel
def narrow_to_times(ranked: TimeBlock, moments: Moments, by_run: bool, columns: Runs) -> None:
    """Reduce runs of ranks to their eligible edges, by one bisection per run, or two if there are windows."""
    # Runs before the first new one were narrowed in the previous hop.
    times, first, below = ranked.times, columns.sizes[FIRST_NEW], columns.scratch[BLOCK:]
    count_below(times, moments.limits, by_run, columns)
    for run in range(first, columns.sizes[COUNT]):
        columns.degrees[np.uintp(run)] = below[np.uintp(run)]
    if moments.first_times.size > 0:
        count_below(times, moments.first_times, by_run, columns)
        for run in range(first, columns.sizes[COUNT]):
            # Edges that always exist come first. They stay for now: their second time decides later.
            has_edges = ranked.earliest.size > 0 and columns.degrees[np.uintp(run)] > 0
            if has_edges and times[np.uintp(columns.starts[np.uintp(run)])] == ALWAYS:
                continue
            columns.starts[np.uintp(run)] += below[np.uintp(run)]
            columns.degrees[np.uintp(run)] -= below[np.uintp(run)]


@device_function
def count_below(times, bounds, by_run, columns):
    """Write the number of times of each run that are below its bound."""
    # A bisection has a cache miss at each halving. Here all runs of a block are halved in turn, and each prefetches its
    # next time, so that their misses overlap. Bisecting one run after the other makes mini-batches of an ogbn-products
    # shaped graph take 1.6 to 1.9 times as long.
    left, below, count = columns.scratch[:BLOCK], columns.scratch[BLOCK:], columns.sizes[COUNT]
    for first in range(columns.sizes[FIRST_NEW], count, BLOCK):
        size, longest = min(BLOCK, count - first), np.int64(0)
        for number in range(size):
            run = np.uintp(first + number)
            below[run], left[np.uintp(number)] = columns.starts[run], columns.degrees[run]
            longest = max(longest, columns.degrees[run])
            prefetch_step(times, columns.starts[run], columns.degrees[run])
        while longest > FEW_TIMES:
            longest -= longest >> 1
            for number in range(size):
                edges = left[np.uintp(number)]
                if edges > FEW_TIMES:
                    run, half = np.uintp(first + number), edges >> 1
                    low = below[run]
                    # A select instead of a branch, since the comparison can't be predicted.
                    low = low + half if times[np.uintp(low + half)] < bound_of(bounds, by_run, columns, run) else low
                    below[run], left[np.uintp(number)] = low, edges - half
                    prefetch_step(times, low, edges - half)
        for number in range(size):
            run = np.uintp(first + number)
            low, passed, bound = below[run], np.int64(0), bound_of(bounds, by_run, columns, run)
            for rank in range(low, low + left[np.uintp(number)]):
                passed += np.int64(times[np.uintp(rank)] < bound)
            below[run] = low - columns.starts[run] + passed


@device_function
def bound_of(bounds, by_run, columns, run):
    # The run of an edge type has the bound of its column.
    return bounds[np.uintp(columns.ids[run])] if by_run else bounds[run]


@device_function
def prefetch_step(times, low, size):
    prefetch(times, low + (size >> 1))
    if size <= FEW_TIMES:
        prefetch(times, low)
        prefetch(times, low + size - 1)


class Gathered(NamedTuple):
    """Contiguous copies of the edges of a block of runs, for eligible edges that are not contiguous ranks."""

    ranks: Int64s
    """Rank of each edge."""
    cursor: Int64s
    """First run of the block, and first run after it."""


@kernel
def gather_block(
    ranked: TimeBlock, weights: Sums, moments: Moments, by_run: bool, columns: Runs, block: Runs,
    gathered: Gathered, sums: Sums,
) -> int:  # fmt: skip
    """Copy the edges of as many runs as fit into a block. The runs of the block refer to the copies."""
    run, count, total, size = gathered.cursor[1], columns.sizes[COUNT], np.int64(0), np.int64(0)
    earliest = ranked.earliest[: ranked.earliest.size if moments.first_times.size > 0 else 0]
    gathered.cursor[0], weighted = run, weights.cumulative.size > 0
    block.offsets[0] = columns.offsets[run]
    while run < count and size < block.starts.size:
        low, degree = columns.starts[run], columns.degrees[run]
        if total + degree > gathered.ranks.size:
            # The block is full: this run begins the next one, or needs a larger block.
            if size > 0:
                break
            columns.sizes[NEEDED] = degree
            return SHORT
        block.ids[size], block.states[size] = run, columns.states[run]
        block.starts[size] = block.bases[size] = total
        block.fanouts[size] = fanout_of(columns, run)
        first = bound_of(moments.first_times, by_run, columns, np.uintp(run)) if earliest.size > 0 else ALWAYS
        before, sum_so_far = np.int64(0), np.int64(0)
        if weighted and low > columns.bases[run]:
            before = weights.cumulative[low - 1]
        for rank in range(low, low + degree):
            # The sums of a block start from 0, without the weights of edges that are left out.
            weight = np.int64(0)
            if weighted:
                weight, before = weights.cumulative[np.uintp(rank)] - before, weights.cumulative[np.uintp(rank)]
            # With windows, the second time of an edge must not be before its column's window.
            if earliest.size == 0 or earliest[np.uintp(rank)] >= first:
                sum_so_far += weight
                gathered.ranks[np.uintp(total)] = rank
                if weighted:
                    sums.cumulative[np.uintp(total)] = sum_so_far
                total += 1
        block.degrees[size] = total - block.starts[size]
        run, size = run + 1, size + 1
    gathered.cursor[1] = run
    block.sizes[COUNT], block.sizes[FIRST_NEW] = size, 0
    return 0


@kernel
def gather_sources(
    graph: Sources, ranked: TimeBlock, columns: Runs, block: Runs, gathered: Gathered, sources: Sources
) -> None:
    """Write the source of each edge of a block: one random read per edge, or two without links."""
    order, links = ranked.order, ranked.links
    for run in range(block.sizes[COUNT]):
        base = columns.bases[block.ids[run]]
        for place in range(block.starts[run], block.starts[run] + block.degrees[run]):
            rank = np.uintp(gathered.ranks[np.uintp(place)])
            if links.size > 0:
                sources.indices[np.uintp(place)] = np.uint32(links[rank])
            elif order.size > 0:
                sources.indices[np.uintp(place)] = graph.indices[np.uintp(base + order[rank])]
            else:
                sources.indices[np.uintp(place)] = graph.indices[rank]


@kernel
def return_block(columns: Runs, block: Runs, gathered: Gathered, picks: PickBlock) -> int:
    """Replace the picks of a block, which are indices of copies, by ranks. Returns AGAIN if another block follows."""
    size, first = block.sizes[COUNT], gathered.cursor[0]
    for edge in range(block.offsets[0], block.offsets[size]):
        picks.positions[np.uintp(edge)] = gathered.ranks[np.uintp(picks.positions[np.uintp(edge)])]
    for run in range(size):
        columns.offsets[np.uintp(first + run + 1)] = block.offsets[np.uintp(run + 1)]
    if gathered.cursor[1] < columns.sizes[COUNT]:
        return AGAIN
    gathered.cursor[1] = 0
    return 0


@kernel
def follow_ranks(ranked: TimeBlock, columns: Runs, picks: PickBlock, nodes: NodeIds) -> None:
    """Replace the ranks of all picks by positions in the graph: one random read per pick, prefetched."""
    links, order, positions, neighbors = ranked.links, ranked.order, picks.positions, nodes.neighbors
    count = columns.sizes[COUNT]
    last = columns.offsets[count] - 1
    for column in range(count):
        base = columns.bases[np.uintp(column)]
        for edge in range(columns.offsets[np.uintp(column)], columns.offsets[np.uintp(column + 1)]):
            rank, coming = np.uintp(positions[np.uintp(edge)]), positions[np.uintp(min(edge + AHEAD, last))]
            if links.size > 0:
                prefetch(links, coming)
                positions[np.uintp(edge)] = base + (links[rank] >> 32)
                # The source is in the lower half, so it need not be read from the graph.
                if neighbors.size > 0:
                    neighbors[np.uintp(edge)] = np.uint32(links[rank])
            else:
                prefetch(order, coming)
                positions[np.uintp(edge)] = base + order[rank]
