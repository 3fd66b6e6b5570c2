"""Kernels that sort the edges of each column by time."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.sampling.pick import run_end

MAX_INSERTION_SORT = 32
"""Up to this many edges, sorting by insertion is faster than a sort that allocates."""


@device_function
def count_falls(times, low, high):
    """Count the times that are below the one before them."""
    falls = 0
    for edge in range(low + 1, high):
        falls += times[edge] < times[edge - 1]
    return falls


@kernel
def is_in_order(indptr, times, types):
    """Tell whether the times of each column, or of each edge type in it, never fall."""
    for column in range(indptr.size - 1):
        low, end = np.int64(indptr[column]), np.int64(indptr[column + 1])
        while low < end:
            high = run_end(types, low, end)
            if count_falls(times, low, high) > 0:
                return False
            low = high
    return True


@kernel
def sort_by_time(indptr, times, types, order, rising):
    """Write the order of each column's edges by time, with ties by place; and the times in that order."""
    for column in range(indptr.size - 1):
        start, end = np.int64(indptr[column]), np.int64(indptr[column + 1])
        low = start
        while low < end:
            high = run_end(types, low, end)
            if high - low > MAX_INSERTION_SORT:
                # Merge sort is stable: edges of equal times keep the order of their places.
                ranks = np.argsort(times[low:high], kind="mergesort")
                for place in range(low, high):
                    order[place] = ranks[place - low] + low - start
                    rising[place] = times[start + order[place]]
            else:
                for edge in range(low, high):
                    time, place = times[edge], edge
                    while place > low and rising[place - 1] > time:
                        rising[place] = rising[place - 1]
                        order[place] = order[place - 1]
                        place -= 1
                    rising[place], order[place] = time, edge - start
            low = high


@kernel
def link_sources(indptr, indices, order, links):
    """Write each edge's place in its column times 2**32, plus its source."""
    for column in range(indptr.size - 1):
        start = np.int64(indptr[column])
        for rank in range(start, np.int64(indptr[column + 1])):
            place = np.int64(order[rank])
            links[rank] = (place << 32) | np.int64(indices[start + place])


@kernel
def places_in_order(indptr, order, places):
    """Write the position in the graph of each edge of the order."""
    for column in range(indptr.size - 1):
        start = np.int64(indptr[column])
        for place in range(start, np.int64(indptr[column + 1])):
            places[place] = start + order[place]
