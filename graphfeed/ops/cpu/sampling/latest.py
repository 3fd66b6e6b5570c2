"""Kernels that write the latest edges of each node before a time as the row of a matrix."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int64s, kernel, prefetch
from graphfeed.ops.cpu.sampling.passes.state import EDITED


class TimedColumns(NamedTuple):
    """A graph whose edges are sorted by time in each column, and the time of each edge."""

    indptr: Int64s
    times: Int64s


class CopiedEdges(NamedTuple):
    """The values of each edge that are copied."""

    sources: Ids
    ids: Int64s
    """Empty: an edge's id is its position."""
    earlier: Int64s
    """The number of edges of the source before the time of the edge."""


class CellBlock(NamedTuple):
    """Matrices, row after row."""

    ids: Ids
    times: Int64s
    edges: Int64s
    earlier: Int64s
    """Empty at the last hop."""


@kernel
def count_earlier(columns: TimedColumns, nodes: Ids, moments: Int64s, counts: Int64s) -> int:
    """Write the number of edges of each node before a time, 0 for a negative node."""
    indptr, times, outside = columns.indptr, columns.times, np.int64(0)
    for row in range(nodes.size):
        prefetch(indptr, max(nodes[np.uintp(min(row + AHEAD, nodes.size - 1))], 0))
        node, low = np.int64(nodes[np.uintp(row)]), np.int64(0)
        if node >= indptr.size - 1:
            return EDITED
        if node >= 0:
            low = indptr[np.uintp(node)]
            start, high = low, indptr[np.uintp(node + 1)]
            outside |= low | (high - low) | (times.size - high)
            if outside < 0:
                return EDITED
            while low < high:
                middle = (low + high) >> 1
                if times[np.uintp(middle)] < moments[np.uintp(row)]:
                    low = middle + 1
                else:
                    high = middle
            low -= start
        counts[np.uintp(row)] = low
    return 0


@kernel
def write_latest(
    width: int,
    right: bool,
    columns: TimedColumns,
    edges: CopiedEdges,
    nodes: Ids,
    ends: Int64s,
    starts: Int64s,
    cells: CellBlock,
) -> int:
    """Write the last `width` edges of each node between two counts, or from its first one; -1 and time 0 elsewhere."""
    indptr, times, cell, outside = columns.indptr, columns.times, np.int64(0), np.int64(0)
    for row in range(nodes.size):
        node, first, count = np.int64(nodes[np.uintp(row)]), np.int64(0), np.int64(0)
        if node >= indptr.size - 1:
            return EDITED
        if node >= 0:
            prefetch(indptr, max(nodes[np.uintp(min(row + AHEAD, nodes.size - 1))], 0))
            end = indptr[np.uintp(node)] + ends[np.uintp(row)]
            count = ends[np.uintp(row)] - (starts[np.uintp(row)] if starts.size > 0 else 0)
            count = min(max(count, np.int64(0)), np.int64(width))
            first = end - count
            outside |= first | (times.size - end)
            if outside < 0:
                return EDITED
        padding = width - count
        for place in range(cell + (0 if right else count), cell + (padding if right else width)):
            cells.ids[np.uintp(place)] = cells.edges[np.uintp(place)] = -1
            cells.times[np.uintp(place)] = 0
            if cells.earlier.size > 0:
                cells.earlier[np.uintp(place)] = 0
        # One loop per array, which the compiler turns into a copy: 1.3 times as fast as a single loop.
        low, high = cell + (padding if right else 0), cell + (width if right else count)
        shift = first - low
        for place in range(low, high):
            cells.ids[np.uintp(place)] = edges.sources[np.uintp(shift + place)]
        for place in range(low, high):
            cells.times[np.uintp(place)] = times[np.uintp(shift + place)]
        for place in range(low, high):
            cells.edges[np.uintp(place)] = edges.ids[np.uintp(shift + place)] if edges.ids.size > 0 else shift + place
        for place in range(low, high if cells.earlier.size > 0 else low):
            cells.earlier[np.uintp(place)] = edges.earlier[np.uintp(shift + place)]
        cell += width
    return 0
