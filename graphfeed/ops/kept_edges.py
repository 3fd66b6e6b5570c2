"""Values of sampled edges, from copies of their columns where there are such."""

from typing import NamedTuple

import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels, views
from graphfeed.ops.checks import check_vector
from graphfeed.ops.sample_neighbors import Picks

NOT_KEPT = -(1 << 62)
"""Stands for the distance of a column that has no copy."""


class KeptEdges(NamedTuple):
    """A value an edge of a graph, and for one hop copies of some of its columns."""

    values: torch.Tensor
    """Of an integer dtype, in the order of the graph's edges."""
    kept: torch.Tensor
    """Copies of the values of some columns, each in one piece."""
    shifts: torch.Tensor
    """int64, one a column of the hop: how far its copy lies from its values, or `NOT_KEPT`."""


def read_edges(edges: KeptEdges, picks: Picks) -> torch.Tensor:
    """Return `edges.values[picks.positions]`, read from the copies of columns where there are such.

    A GPU reads values in pinned memory over the bus, by no more threads than `set_max_uva_threads` allows. Costs one
    read a pick, and a search for its column.

    Args:
        edges: What to read; the copies lie where the picks do.
        picks: What was sampled of this hop.

    Raises:
        TypeError: Copies of another dtype than the values, or shifts that are not int64.
        ValueError: Not as many shifts as columns, or values that lie elsewhere than the picks and are not pinned.

    Example:
        >>> edges = KeptEdges(torch.tensor([5, 6, 7, 8]), torch.tensor([7, 8]), torch.tensor([NOT_KEPT, -2]))
        >>> read_edges(edges, Picks(torch.tensor([0, 1, 2]), torch.tensor([1, 3]))).tolist()
        [6, 8]
    """
    values, kept, shifts = edges
    positions = picks.positions
    check_vector("shifts", shifts, (torch.int64,))
    if kept.dtype != values.dtype:
        raise TypeError(f"kept must be {values.dtype} as values, but is {kept.dtype}")
    if shifts.numel() != picks.offsets.numel() - 1:
        raise ValueError(f"shifts must have {picks.offsets.numel() - 1} values, one a column, but has {shifts.numel()}")
    module = kernels("kept_edges", positions, values=values, kept=kept, shifts=shifts)
    out = buffers.empty(positions.numel(), values.dtype, positions.device)
    module.read_edges(*views(positions, values, kept, picks.offsets, positions, shifts, out))
    return out
