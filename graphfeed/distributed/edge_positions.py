"""Positions of the in-edges of selected nodes, in chunks, so that graphs larger than memory can be read."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ops.process import current_limits
from graphfeed.storage.graph import GraphArrays


def edge_positions(indptr: NDArray[Any], nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the positions of the in-edges of the given nodes, column by column, chunk by chunk."""
    starts = np.zeros(nodes.size + 1, dtype=np.int64)
    np.cumsum(indptr[nodes + 1] - indptr[nodes], out=starts[1:])
    for edges, columns, counts in pieces_of(starts):
        positions = np.repeat(indptr[nodes[columns]] - starts[columns], counts)
        yield positions + np.arange(edges.start, edges.stop)


def pieces_of(starts: NDArray[Any]) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
    """Yield for each chunk the range of its edges, the range of their columns, and the number of edges per column."""
    step = current_limits().part_values
    for low in range(0, int(starts[-1]), step):
        high = min(low + step, int(starts[-1]))
        first = int(np.searchsorted(starts, low, side="right")) - 1
        last = int(np.searchsorted(starts, high, side="left"))
        # The first and the last column may have more edges, in the previous and the next chunk.
        yield slice(low, high), slice(first, last), np.diff(starts[first : last + 1].clip(low, high))


def remote_sources(
    graph: GraphArrays, parts: NDArray[Any], part: int, progress: Callable[[int], object]
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield for each chunk of a part's in-edges their number and the sources that belong to other parts."""
    indptr, indices = graph.csc_indptr.numpy(), graph.indices.numpy()
    for positions in edge_positions(indptr, np.flatnonzero(parts == part)):
        sources = indices[positions]
        yield positions.size, sources[parts[sources] != part]
        progress(positions.size)
