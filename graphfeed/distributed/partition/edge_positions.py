"""The in-edges of some nodes, found piece by piece, so that a graph larger than memory can be gone through."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 20
"""How many edges are looked at together."""


def starts_of(indptr: NDArray[Any], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the column starts that some nodes have where their columns lie one after the other, and the end."""
    starts = np.zeros(nodes.size + 1, dtype=np.int64)
    np.cumsum(indptr[nodes + 1] - indptr[nodes], out=starts[1:])
    return starts


def edge_positions(indptr: NDArray[Any], nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the positions of the in-edges of some nodes, column after column, `PIECE` of them at a time."""
    starts = starts_of(indptr, nodes)
    for low in range(0, int(starts[-1]), PIECE):
        high = min(low + PIECE, int(starts[-1]))
        first = int(np.searchsorted(starts, low, side="right")) - 1
        last = int(np.searchsorted(starts, high, side="left"))
        counts = np.diff(starts[first : last + 1].clip(low, high))
        positions = np.repeat(indptr[nodes[first:last]] - starts[first:last], counts)
        yield positions + np.arange(low, high)
