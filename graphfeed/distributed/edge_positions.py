"""The in-edges of some nodes, piece by piece, so that a graph larger than memory can be read."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.storage.graph import GraphArrays

PIECE = 1 << 20
"""The number of edges in a piece."""


def edge_positions(indptr: NDArray[Any], nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the positions of the in-edges of some nodes, column after column, `PIECE` of them at a time."""
    starts = np.zeros(nodes.size + 1, dtype=np.int64)
    np.cumsum(indptr[nodes + 1] - indptr[nodes], out=starts[1:])
    for edges, columns, counts in pieces_of(starts):
        positions = np.repeat(indptr[nodes[columns]] - starts[columns], counts)
        yield positions + np.arange(edges.start, edges.stop)


def pieces_of(starts: NDArray[Any]) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
    """Yield the edges of each piece, the columns that they are of, and how many each of these has there."""
    for low in range(0, int(starts[-1]), PIECE):
        high = min(low + PIECE, int(starts[-1]))
        first = int(np.searchsorted(starts, low, side="right")) - 1
        last = int(np.searchsorted(starts, high, side="left"))
        # The first and the last column may have more edges, in the pieces before and behind this one.
        yield slice(low, high), slice(first, last), np.diff(starts[first : last + 1].clip(low, high))


def remote_sources(
    graph: GraphArrays, parts: NDArray[Any], part: int, progress: Callable[[int], object]
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the number of in-edges in each piece of a part, and the sources of those that come from other parts."""
    indptr, indices = graph.csc_indptr.numpy(), graph.indices.numpy()
    for positions in edge_positions(indptr, np.flatnonzero(parts == part)):
        sources = indices[positions]
        yield positions.size, sources[parts[sources] != part]
        progress(positions.size)
