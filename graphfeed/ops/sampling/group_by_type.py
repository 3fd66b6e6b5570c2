"""Split the picks of one hop by edge type."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import ID_DTYPES, check_ids, check_vector
from graphfeed.ops.backend import as_types, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.one_hop import Picks
from graphfeed.ops.structure.csc import TYPE_DTYPES, check_columns


class TypedPicks(NamedTuple):
    """Sampled edges, edge type by edge type."""

    indptr: torch.Tensor
    """The column starts of every edge type, one type after the other, each from 0."""
    bounds: torch.Tensor
    """int64, one longer than there are edge types: where each type's part of `indptr` starts; on the CPU."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays, by type, then by column, then ascending."""
    starts: torch.Tensor
    """int64, one longer than there are edge types: where each type's edges start; on the CPU."""


def group_by_type(
    picks: Picks,
    types: torch.Tensor,
    column_starts: torch.Tensor,
    destinations: torch.Tensor,
    dtype: torch.dtype,
) -> TypedPicks:
    """Split picks by edge type, at one random read per pick.

    Args:
        picks: What was sampled. Its positions are sorted in place within each column.
        types: Edge type of each edge of the graph.
        column_starts: int64: where the seeds of each node type start, one longer than there are node types; on the
            CPU.
        destinations: int64: destination node type of each edge type; on the CPU.
        dtype: int32 or int64, for the result's `indptr`.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: The arrays don't fit together.
    """
    if picks.positions.is_cpu:
        check_groups(picks, types, column_starts, destinations)
    return split_by_type(picks, types, column_starts, destinations, dtype)


def check_groups(picks: Picks, types: torch.Tensor, column_starts: torch.Tensor, destinations: torch.Tensor) -> None:
    """Raise unless picks can be split by edge type."""
    check_vector("types", types, TYPE_DTYPES)
    check_vector("positions", picks.positions, (torch.int64,))
    check_vector("destinations", destinations, (torch.int64,))
    check_vector("offsets", picks.offsets, (torch.int64,))
    check_columns("offsets", picks.offsets, picks.positions.numel())
    check_vector("column_starts", column_starts, (torch.int64,))
    check_columns("column_starts", column_starts, picks.offsets.numel() - 1)
    check_ids("positions", picks.positions, types.numel())
    check_ids("destinations", destinations, column_starts.numel() - 1)
    if not picks.positions.is_contiguous():
        raise ValueError("positions must be contiguous, as they are sorted in place")
    found = types[picks.positions].to(torch.int64)
    check_ids("types", found, destinations.numel())
    kinds = torch.repeat_interleave(torch.arange(column_starts.numel() - 1), column_starts.diff())
    owners = torch.repeat_interleave(kinds, picks.offsets.diff())
    if not torch.equal(destinations[found], owners):
        edge = int((destinations[found] != owners).nonzero()[0])
        raise ValueError(
            f"pick {edge} has edge type {int(found[edge])}, which leads to nodes of type "
            f"{int(destinations[found[edge]])}, but its column is of type {int(owners[edge])}"
        )


def split_by_type(
    picks: Picks,
    types: torch.Tensor,
    column_starts: torch.Tensor,
    destinations: torch.Tensor,
    dtype: torch.dtype,
) -> TypedPicks:
    """Like `group_by_type`, without its checks, for picks that were just made."""
    assert dtype in ID_DTYPES
    if picks.positions.numel() > torch.iinfo(dtype).max:
        raise ValueError(
            f"{picks.positions.numel()} edges are too many for indptr of {dtype}; make the graph with int64"
        )
    lengths = (column_starts[1:] - column_starts[:-1])[destinations] + 1
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    device = picks.positions.device
    indptr = buffers.empty(int(bounds[-1]), dtype, device)
    grouped = buffers.empty(picks.positions.numel(), torch.int64, device)
    module = kernels("sampling.group_by_type", picks.positions, types=types)
    own = as_types(types, picks.positions) if picks.positions.is_cpu else types.contiguous()
    arrays = own, picks.positions, picks.offsets, column_starts.contiguous(), destinations.contiguous(), bounds
    module.group_by_type(*arrays, indptr, grouped)
    counts = indptr[(bounds[1:] - 1).to(device, non_blocking=True)].to("cpu", torch.int64)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return TypedPicks(indptr, bounds, grouped, starts)
