"""Kernels of a counting sort of edges, one chunk of edges per call."""

from graphfeed.ops.cpu.jit import AHEAD, Ids, Int64s, kernel, prefetch


@kernel
def count_edges(destinations: Ids, counts: Int64s) -> None:
    last = destinations.size - 1
    for edge in range(destinations.size):
        prefetch(counts, destinations[min(edge + AHEAD, last)])
        counts[destinations[edge]] += 1


@kernel
def assign_slots(destinations: Ids, starts: Int64s, places: Int64s) -> None:
    last = destinations.size - 1
    for edge in range(destinations.size):
        prefetch(starts, destinations[min(edge + AHEAD, last)])
        node = destinations[edge]
        places[edge] = starts[node]
        starts[node] += 1
