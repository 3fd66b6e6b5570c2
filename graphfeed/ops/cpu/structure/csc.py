"""Kernels for compressed sparse columns."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, kernel, prefetch


@kernel
def count_columns(destinations, indptr):
    """Write column starts of an edge list; `indptr` comes zeroed."""
    last = destinations.size - 1
    for edge in range(destinations.size):
        prefetch(indptr, np.intp(destinations[min(edge + AHEAD, last)]))
        indptr[destinations[edge] + 1] += 1
    for column in range(indptr.size - 1):
        indptr[column + 1] += indptr[column]


@kernel
def fill_columns(destinations, starts, order):
    """Write the edges by column, in the order given; `starts` is used up."""
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
    """Return the first column whose edge types fall, or -1."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column] + 1, indptr[column + 1]):
            if types[edge] < types[edge - 1]:
                return column
    return -1


@kernel
def find_misjoined(indptr, indices, types, first, after):
    """Return the first edge whose source or destination is not of the node type of its edge type, or -1."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column], indptr[column + 1]):
            kind = np.int64(types[edge])
            source = np.int64(indices[edge])
            if not (first[kind, 0] <= source < after[kind, 0] and first[kind, 1] <= column < after[kind, 1]):
                return edge
    return -1


@kernel
def expand_indptr(indptr, node_ids, out):
    """Write each column's id once an edge."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column], indptr[column + 1]):
            out[edge] = node_ids[column]


@kernel
def indptr_edge_ids(indptr, offset, out):
    """Write each edge's place in its column, from the column's offset on."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column], indptr[column + 1]):
            out[edge] = offset[column] + (edge - indptr[column])
