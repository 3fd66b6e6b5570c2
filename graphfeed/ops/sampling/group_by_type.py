"""Split the picks of one hop by edge type."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import ID_DTYPES
from graphfeed.ops.backend import as_types, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.pick_edges import Picks


class TypedPicks(NamedTuple):
    """Sampled edges, grouped by edge type."""

    indptr: torch.Tensor
    """Column starts of all edge types, concatenated; those of each type begin at 0."""
    bounds: torch.Tensor
    """int64, shape (num_types + 1,), on the CPU: where the column starts of each edge type begin in `indptr`."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays, sorted by type, column and position."""
    starts: torch.Tensor
    """int64, shape (num_types + 1,), on the CPU: where the edges of each edge type begin in `positions`."""


def group_by_type(
    picks: Picks,
    types: torch.Tensor,
    column_starts: torch.Tensor,
    destinations: torch.Tensor,
    dtype: torch.dtype,
) -> TypedPicks:
    """Split the picks of a hop by edge type, with one random read per pick. Picks are not validated.

    Args:
        picks: Sampled edges. The positions of each column are sorted in place; unused ones may follow the last column.
        types: Edge type of each edge of the graph.
        column_starts: int64, shape (node types + 1,), on the CPU: where the seeds of each node type begin.
        destinations: int64, on the CPU: destination node type of each edge type.
        dtype: dtype of the result's `indptr`, int32 or int64. A ValueError if it can't count the edges.
    """
    assert dtype in ID_DTYPES
    if picks.positions.numel() > torch.iinfo(dtype).max:
        raise ValueError(
            f"{picks.positions.numel()} edges are too many for indptr of {dtype}; build the graph with int64"
        )
    lengths = (column_starts[1:] - column_starts[:-1])[destinations] + 1
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), lengths.cumsum(0)])
    device = picks.positions.device
    indptr = buffers.empty(int(bounds[-1]), dtype, device)
    grouped = buffers.empty(picks.positions.numel(), torch.int64, device)
    module = kernels("sampling.group_by_type", picks.positions, types=types)
    own = as_types(types, picks.positions) if picks.positions.is_cpu else types.contiguous()
    arrays = own, picks.positions, picks.offsets, column_starts.contiguous(), destinations.contiguous(), bounds
    module.group_by_type(*arrays, indptr, grouped)
    # The last column start of a type counts its edges. This synchronizes with a GPU.
    counts = indptr[(bounds[1:] - 1).to(device, non_blocking=True)].to("cpu", torch.int64)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), counts.cumsum(0)])
    return TypedPicks(indptr, bounds, grouped[: int(starts[-1])], starts)
