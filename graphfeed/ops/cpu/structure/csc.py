"""Kernels for compressed sparse columns, and NumPy functions where these are as fast."""

from typing import Any

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, EdgeTypes, Ids, Int64Matrix, Int64s, kernel, prefetch
from graphfeed.ops.cpu.structure.counting_sort import count_edges


def count_columns(destinations: Any, indptr: Any) -> None:
    # `indptr` is all 0 at first.
    count_edges(destinations, indptr[1:])
    np.cumsum(indptr.numpy(), out=indptr.numpy())


@kernel
def fill_columns(destinations: Ids, starts: Int64s, order: Int64s) -> None:
    """Write the positions of edges, sorted by column with ties in the given order. `starts` is overwritten."""
    last = destinations.size - 1
    for edge in range(destinations.size):
        prefetch(starts, destinations[min(edge + AHEAD, last)])
        column = destinations[edge]
        order[starts[column]] = edge
        starts[column] += 1


def find_falling(indptr: Any) -> int:
    """Return the first column whose end is before its start, or -1."""
    starts = indptr.numpy()
    falls = np.flatnonzero(starts[1:] < starts[:-1])
    return int(falls[0]) if falls.size else -1


@kernel
def find_unsorted(indptr: Int64s, types: EdgeTypes) -> int:
    """Return the first column whose edge types decrease, or -1."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column] + 1, indptr[column + 1]):
            if types[edge] < types[edge - 1]:
                return column
    return -1


@kernel
def find_misjoined(indptr: Int64s, indices: Ids, types: EdgeTypes, first: Int64Matrix, after: Int64Matrix) -> int:
    """Return the first edge whose endpoints don't have the node types of its edge type, or -1."""
    for column in range(indptr.size - 1):
        for edge in range(indptr[column], indptr[column + 1]):
            kind = np.int64(types[edge])
            source = np.int64(indices[edge])
            if not (first[kind, 0] <= source < after[kind, 0] and first[kind, 1] <= column < after[kind, 1]):
                return edge
    return -1


def expand_indptr(indptr: Any, node_ids: Any, out: Any) -> None:
    out.numpy()[:] = np.repeat(node_ids.numpy(), np.diff(indptr.numpy()))


def indptr_edge_ids(indptr: Any, offset: Any, out: Any) -> None:
    starts = indptr.numpy()
    out.numpy()[:] = np.arange(out.numel()) + np.repeat(offset.numpy() - starts[:-1], np.diff(starts))
