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
    for low in range(0, int(starts[-1]), PIECE):
        high = min(low + PIECE, int(starts[-1]))
        first = int(np.searchsorted(starts, low, side="right")) - 1
        last = int(np.searchsorted(starts, high, side="left"))
        counts = np.diff(starts[first : last + 1].clip(low, high))
        positions = np.repeat(indptr[nodes[first:last]] - starts[first:last], counts)
        yield positions + np.arange(low, high)


def edge_destinations(indptr: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield where all edges are in a graph, at most `PIECE` of them at a time, and the destination of each."""
    for low in range(0, int(indptr[-1]), PIECE):
        high = min(low + PIECE, int(indptr[-1]))
        first = int(np.searchsorted(indptr, low, side="right")) - 1
        last = int(np.searchsorted(indptr, high, side="left"))
        counts = np.diff(indptr[first : last + 1].clip(low, high))
        yield slice(low, high), np.repeat(np.arange(first, last), counts)


def remote_sources(
    graph: GraphArrays, parts: NDArray[Any], part: int, progress: Callable[[int], object]
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the number of in-edges in each piece of a part, and the sources of those that come from other parts."""
    indptr, indices = graph.csc_indptr.numpy(), graph.indices.numpy()
    for positions in edge_positions(indptr, np.flatnonzero(parts == part)):
        sources = indices[positions]
        yield positions.size, sources[parts[sources] != part]
        progress(positions.size)
