"""Kernels of a counting sort of edges that come in parts."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, kernel, prefetch


@kernel
def count_edges(destinations, counts):
    """Count the edges of each node."""
    last = destinations.size - 1
    for edge in range(destinations.size):
        prefetch(counts, np.intp(destinations[min(edge + AHEAD, last)]))
        counts[destinations[edge]] += 1


@kernel
def assign_slots(destinations, starts, places):
    """Give each edge the next slot of its node."""
    last = destinations.size - 1
    for edge in range(destinations.size):
        prefetch(starts, np.intp(destinations[min(edge + AHEAD, last)]))
        node = destinations[edge]
        places[edge] = starts[node]
        starts[node] += 1
