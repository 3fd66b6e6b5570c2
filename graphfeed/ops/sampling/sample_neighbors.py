"""Sample in-edges of nodes: one hop, not relabelled."""

from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels, on_gpu
from graphfeed.ops.checks import ID_DTYPES, check_ids, check_vector
from graphfeed.ops.sampling.cached_edge_values import EdgeValues, values_of

LOOK_BACK = 48
NO_WEIGHTS = torch.empty(0, dtype=torch.int64)
NO_TABLE = torch.empty(0, dtype=torch.int64)
NO_TYPES = torch.empty(0, dtype=torch.uint8)


class Picks(NamedTuple):
    """Sampled edges, column by column."""

    offsets: torch.Tensor
    """int64, one longer than the seeds: where each column's edges start."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays."""


def check_fanouts(fanouts: torch.Tensor, num_types: int, types: EdgeValues | None) -> None:
    """Raise unless the fan-outs of one hop are one number, or one a type where there are types, each -1 or more."""
    check_vector("fanouts", fanouts)
    if fanouts.numel() not in (1, max(num_types, 1)):
        raise ValueError(
            f"fanouts of a layer must hold 1 number, or {num_types} (one an edge type), but holds {fanouts.numel()}"
        )
    if fanouts.numel() and int(fanouts.min()) < -1:
        raise ValueError(f"fanouts must be -1 (all neighbours) or more, but holds {int(fanouts.min())}")
    if fanouts.numel() > 1 and types is None:
        raise ValueError(f"fanouts has {fanouts.numel()} numbers, one an edge type, but the graph has no edge types")


def make_table(largest_fanout: int) -> torch.Tensor:
    """Return the scratch in which kernels look up the picks of a column when the fan-out is large."""
    if largest_fanout <= LOOK_BACK:
        return NO_TABLE
    return torch.full((1 << (2 * largest_fanout).bit_length(),), -1, dtype=torch.int64)


def sample_neighbors(
    indptr: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    key: int,
    *,
    replace: bool = False,
    cumulative: EdgeValues | None = None,
    types: EdgeValues | None = None,
    num_types: int = 1,
    checked: bool = False,
) -> Picks:
    """Choose in-edges of each seed.

    Without replacement `min(fanout, eligible)` distinct edges, every such set equally likely or, given weights, drawn
    one after the other in proportion to them; with replacement `fanout` edges if there is an eligible one; with
    fan-out -1 each eligible edge once. An edge is eligible unless its weight is 0. The draws depend on the key and
    the node's id alone. Costs one random read a seed and, weighted, log2(degree) a pick.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        seeds: Node ids, int32 or int64.
        fanouts: One number, or one an edge type.
        key: Key of this hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` gives them; these and the types may be `KeptEdges` of
            the seeds' columns.
        types: Edge types, ascending inside each column; needed where `fanouts` has more than one number.
        num_types: How many edge types there are.
        checked: Whether the seeds are known to be in the graph; else they are looked through, and a GPU waited for.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, a fan-out below -1, or a wrong number of them.
    """
    check_vector("indptr", indptr)
    check_vector("seeds", seeds)
    check_fanouts(fanouts, num_types, types)
    if not checked:
        check_ids("seeds", seeds, indptr.numel() - 1)
    weights = NO_WEIGHTS if cumulative is None else cumulative
    kinds = NO_TYPES if types is None else types
    module = kernels(
        "sampling.sample_neighbors", seeds, indptr=indptr, weights=values_of(weights), types=values_of(kinds)
    )
    offsets = buffers.empty(seeds.numel() + 1, torch.int64, seeds.device)
    given = (indptr, weights, kinds, seeds.contiguous(), fanouts.to("cpu", torch.int64), offsets)
    *graph, nodes, fanout, counted = as_kernel_args(seeds, *given)
    wanted = (nodes, fanout, replace)
    module.count_neighbors(*graph, *wanted, counted)
    positions = buffers.empty(int(offsets[-1]), torch.int64, seeds.device)
    table = NO_TABLE
    if not on_gpu(seeds):
        most = int(offsets.diff().max()) if seeds.numel() else 0
        table = make_table(min(int(fanout.max(initial=0)), most))
    module.fill_neighbors(*graph, *wanted, np.uint64(key), counted, *as_kernel_args(seeds, table, positions))
    return Picks(offsets, positions)


class TypedPicks(NamedTuple):
    """Sampled edges, edge type by edge type."""

    indptr: torch.Tensor
    """The column starts of every edge type, one after the other, each from 0."""
    bounds: torch.Tensor
    """int64, one longer than there are edge types: where each type's part of `indptr` starts; on the CPU."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays, by type, inside it by column, inside that ascending."""
    starts: torch.Tensor
    """int64, one longer than there are edge types: where each type's edges start; on the CPU."""


def group_by_type(
    picks: Picks,
    types: EdgeValues,
    column_starts: torch.Tensor,
    destinations: torch.Tensor,
    dtype: torch.dtype,
) -> TypedPicks:
    """Split picks by edge type; costs one random read a pick.

    Args:
        picks: What was sampled; its positions are sorted in place inside each column.
        types: Edge type of each edge of the graph, perhaps with copies of the columns.
        column_starts: int64: where the seeds of each node type start, one longer than there are node types; on the
            CPU.
        destinations: int64: destination node type of each edge type; on the CPU.
        dtype: int32 or int64, for the result's `indptr`.
    """
    assert dtype in ID_DTYPES
    lengths = (column_starts[1:] - column_starts[:-1])[destinations] + 1
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    device = picks.positions.device
    indptr = buffers.empty(int(bounds[-1]), dtype, device)
    grouped = buffers.empty(picks.positions.numel(), torch.int64, device)
    module = kernels("sampling.sample_neighbors", picks.positions, types=values_of(types))
    arrays = (types, picks.positions, picks.offsets, column_starts, destinations, bounds, indptr, grouped)
    module.group_by_type(*as_kernel_args(picks.positions, *arrays))
    counts = indptr[(bounds[1:] - 1).to(device, non_blocking=True)].to("cpu", torch.int64)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return TypedPicks(indptr, bounds, grouped, starts)
