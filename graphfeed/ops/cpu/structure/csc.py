"""Kernels for compressed sparse columns."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, kernel, prefetch
from graphfeed.ops.cpu.structure.counting_sort import count_edges


@kernel
def count_columns(destinations, indptr):
    """Write the column starts of an edge list; `indptr` comes zeroed."""
    count_edges(destinations, indptr[1:])
    for column in range(indptr.size - 1):
        indptr[column + 1] += indptr[column]


@kernel
def fill_columns(destinations, starts, order):
    """Write the edges by column, and within a column in the given order; `starts` is overwritten."""
    last = destinations.size - 1
    for edge in range(destinations.size):
        prefetch(starts, np.intp(destinations[min(edge + AHEAD, last)]))
        column = destinations[edge]
        order[starts[column]] = edge
        starts[column] += 1


@kernel
def find_falling(indptr):
    """Return the first column whose end lies before its start, or -1."""
    for column in range(indptr.size - 1):
        if indptr[column + 1] < indptr[column]:
            return column
    return -1


@kernel
def find_unsorted(indptr, types):
    """Return the first column whose edge types decrease, or -1."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column] + 1, indptr[column + 1]):
            if types[edge] < types[edge - 1]:
                return column
    return -1


@kernel
def find_misjoined(indptr, indices, types, first, after):
    """Return the first edge that joins other node types than its edge type does, or -1."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column], indptr[column + 1]):
            kind = np.int64(types[edge])
            source = np.int64(indices[edge])
            if not (first[kind, 0] <= source < after[kind, 0] and first[kind, 1] <= column < after[kind, 1]):
                return edge
    return -1


@kernel
def expand_indptr(indptr, node_ids, out):
    """Write each column's id once per edge."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column], indptr[column + 1]):
            out[edge] = node_ids[column]


@kernel
def indptr_edge_ids(indptr, offset, out):
    """Write each edge's place in its column, counted from the column's offset."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column], indptr[column + 1]):
            out[edge] = offset[column] + (edge - indptr[column])
