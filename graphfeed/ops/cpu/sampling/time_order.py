"""Kernels that sort the edges of each column by time."""

from typing import Any

import numpy as np

from graphfeed.ops.cpu.jit import EdgeTypes, Ids, Int64s, device_function, kernel
from graphfeed.ops.cpu.search import run_end

FEW = 32
"""Up to this many edges, insertion sort is faster than merge sort."""


@kernel
def is_in_order(indptr: Int64s, times: Int64s, types: EdgeTypes) -> bool:
    for column in range(indptr.size - 1):
        for edge in range(indptr[column] + 1, indptr[column + 1]):
            if times[edge] < times[edge - 1] and (types.size == 0 or types[edge] == types[edge - 1]):
                return False
    return True


@kernel
def sort_by_time(
    indptr: Int64s, times: Int64s, types: EdgeTypes, order: Int64s, rising: Int64s, scratch: Int64s
) -> None:
    """Write the order of each column's edges by time, with ties by position, and the times in that order."""
    for column in range(indptr.size - 1):
        start, end = indptr[column], indptr[column + 1]
        low = start
        while low < end:
            high = run_end(types, low, end)
            places = order[low:high]
            for place in range(places.size):
                places[place] = low + place
            merge_sort(times, places, scratch)
            for place in range(low, high):
                rising[place] = times[order[place]]
                order[place] -= start
            low = high


@device_function
def merge_sort(times, places, scratch):
    """Sort edges stably by time. Pieces of `FEW` edges are sorted by insertion, then merged."""
    for first in range(0, places.size, FEW):
        for number in range(first + 1, min(first + FEW, places.size)):
            edge, at = places[number], number
            while at > first and times[places[at - 1]] > times[edge]:
                places[at] = places[at - 1]
                at -= 1
            places[at] = edge
    width = FEW
    while width < places.size:
        for first in range(0, places.size - width, 2 * width):
            middle, end = first + width, min(first + 2 * width, places.size)
            # The left piece is moved to scratch; the rest of the right one is in its place already.
            for number in range(middle - first):
                scratch[number] = places[first + number]
            left, right = 0, middle
            for at in range(first, end):
                # Equal times: those of the left piece come first.
                if left == middle - first:
                    break
                if right < end and times[places[right]] < times[scratch[left]]:
                    places[at] = places[right]
                    right += 1
                else:
                    places[at] = scratch[left]
                    left += 1
        width *= 2


@kernel
def link_sources(indptr: Int64s, indices: Ids, order: Int64s, links: Int64s) -> None:
    for column in range(indptr.size - 1):
        start = indptr[column]
        for rank in range(start, indptr[column + 1]):
            place = order[rank]
            links[rank] = (place << 32) | np.int64(indices[start + place])


def places_in_order(indptr: Any, order: Any, places: Any) -> None:
    starts = indptr.numpy()
    places.numpy()[:] = order.numpy() + np.repeat(starts[:-1], np.diff(starts))
