"""Values of edges of which a GPU holds copies, column by column."""

from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels
from graphfeed.ops.checks import check_vector

NOT_KEPT = -(1 << 62)
"""Stands for the distance of a column that has no copy."""


class KeptEdges(NamedTuple):
    """A value an edge of a graph, and for one hop copies of some of its columns.

    Ops of one hop take it in place of the values. On a GPU they read the copies where there are such; on the CPU there
    is no use for them.
    """

    values: torch.Tensor
    """Of an integer dtype, in the order of the graph's edges."""
    kept: torch.Tensor
    """Copies of the values of some columns, each in one piece."""
    shifts: torch.Tensor
    """int64, one a column of the hop: how far its copy lies from its values, or `NOT_KEPT`."""

    def contiguous(self) -> Self:
        """Return the same in one piece each."""
        return type(self)(*(part.contiguous() for part in self))

    def numpy(self) -> NDArray[np.generic]:
        """Return the values."""
        array: NDArray[np.generic] = self.values.numpy()
        return array


EdgeValues = torch.Tensor | KeptEdges


def values_of(edges: EdgeValues) -> torch.Tensor:
    """Return the values of all edges of the graph."""
    return edges.values if isinstance(edges, KeptEdges) else edges


def read_edges(edges: KeptEdges, offsets: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return `edges.values[positions]`, read from the copies of columns where there are such.

    A GPU reads values in pinned memory over the bus, by no more threads than `set_max_uva_threads` allows. Costs one
    read a position, and a search for its column.

    Args:
        edges: What to read; the copies lie where the positions do.
        offsets: int64: where each column's positions begin, one longer than there are columns.
        positions: int64.

    Raises:
        TypeError: Copies of another dtype than the values, or shifts that are not int64.
        ValueError: Not as many shifts as columns, or values that lie elsewhere than the positions and are not pinned.

    Example:
        >>> edges = KeptEdges(torch.tensor([5, 6, 7, 8]), torch.tensor([7, 8]), torch.tensor([NOT_KEPT, -2]))
        >>> read_edges(edges, torch.tensor([0, 1, 2]), torch.tensor([1, 3])).tolist()
        [6, 8]
    """
    values, kept, shifts = edges
    check_vector("shifts", shifts, (torch.int64,))
    if kept.dtype != values.dtype:
        raise TypeError(f"kept must be {values.dtype} as values, but is {kept.dtype}")
    if shifts.numel() != offsets.numel() - 1:
        raise ValueError(f"shifts must have {offsets.numel() - 1} values, one a column, but has {shifts.numel()}")
    module = kernels("sampling.cached_edge_values", positions, values=values, kept=kept, shifts=shifts)
    out = buffers.empty(positions.numel(), values.dtype, positions.device)
    module.read_edges(*as_kernel_args(positions, values, kept, offsets, positions, shifts, out))
    return out
