"""Sample in-edges of nodes: one hop, not relabelled."""

from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels, on_gpu
from graphfeed.ops.checks import ID_DTYPES, check_ids, check_vector
from graphfeed.ops.sampling.cached_edge_values import EdgeValues, values_of
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.csc import TYPE_DTYPES, check_columns, ensure_columns, ensure_edge_types

MAX_LOOK_BACK = 48
"""Kernels compare up to this many picks of a column with each other; more are looked up in a hash table."""
MOST_REPEATED = (1 << 31) - 1
"""The largest fan-out with replacement: no number of edges that is computed from it overflows."""
NO_WEIGHTS = torch.empty(0, dtype=torch.int64)
NO_TABLE = torch.empty(0, dtype=torch.int64)
NO_TYPES = torch.empty(0, dtype=torch.uint8)


class Picks(NamedTuple):
    """Sampled edges, column by column."""

    offsets: torch.Tensor
    """int64, one longer than the seeds: where each column's edges start."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays."""


def check_repeats(largest: int, replace: bool) -> None:
    """Raise if more edges are to be drawn with replacement than can be counted."""
    if replace and largest > MOST_REPEATED:
        raise ValueError(f"fanouts must be at most {MOST_REPEATED} with replacement, but hold {largest}")


def check_fanouts(fanouts: torch.Tensor, num_types: int, types: EdgeValues | None, replace: bool) -> None:
    """Raise unless the fan-outs of one hop are one number, or one per edge type, each -1 or more."""
    check_vector("fanouts", fanouts)
    if fanouts.numel() not in (1, max(num_types, 1)):
        raise ValueError(
            f"fanouts of a hop must hold 1 number, or {num_types} (one per edge type), but holds {fanouts.numel()}"
        )
    counts = fanouts.tolist()
    if min(counts) < -1:
        raise ValueError(f"fanouts must be -1 (all neighbours) or more, but holds {min(counts)}")
    check_repeats(max(counts), replace)
    if len(counts) > 1 and types is None:
        raise ValueError(f"fanouts has {fanouts.numel()} numbers, one per edge type, but the graph has no edge types")


def ensure_graph(indptr: torch.Tensor, cumulative: EdgeValues | None, types: EdgeValues | None, num_types: int) -> None:
    """Raise unless the arrays that the kernels of one hop follow fit together; see `graphfeed.ops.verified`."""
    ensure_columns("indptr", indptr)
    if cumulative is not None:
        ensure_cumulative(indptr, values_of(cumulative))
    if types is not None:
        ensure_edge_types(indptr, values_of(types), num_types)


def make_table(largest_fanout: int) -> torch.Tensor:
    """Return the hash table in which kernels look up the picks of a column; empty if fan-outs are small."""
    if largest_fanout <= MAX_LOOK_BACK:
        return NO_TABLE
    return torch.full((1 << (2 * largest_fanout).bit_length(),), -1, dtype=torch.int64)


def make_table_for(offsets: torch.Tensor, fanouts: torch.Tensor) -> torch.Tensor:
    """Return the hash table for the picks of one hop, which start at `offsets`; on a GPU each column has its own."""
    largest = max(fanouts.tolist(), default=0)
    if on_gpu(offsets) or offsets.numel() == 1 or largest <= MAX_LOOK_BACK:
        return NO_TABLE
    return make_table(min(largest, int(offsets.diff().max())))


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

    Without replacement these are `min(fanout, eligible)` distinct edges. Every such set is equally likely; with weights
    the edges are drawn one after the other in proportion to them. With replacement there are `fanout` edges if any is
    eligible. Fan-out -1 takes each eligible edge once. An edge is eligible unless its weight is 0. The draws depend on
    the key and the node's id alone. A seed costs one random read and, with weights, up to log2(degree) per pick.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        seeds: Node ids, int32 or int64.
        fanouts: One number, or one per edge type.
        key: Key of this hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` returns them. These and the types may be
            `CachedEdgeValues` of the seeds' columns.
        types: Edge types, ascending inside each column; needed where `fanouts` has more than one number.
        num_types: How many edge types there are.
        checked: Whether the seeds are known to be in the graph. On a GPU, which would have to be waited for, they are
            not checked again.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, the number of fan-outs is
            wrong, or the arrays are not those of a graph.
    """
    ensure_graph(indptr, cumulative, types, num_types)
    check_vector("seeds", seeds)
    check_fanouts(fanouts, num_types, types, replace)
    if not checked or seeds.is_cpu:
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
    positions = buffers.empty(int(counted[-1]), torch.int64, seeds.device)
    table = make_table_for(offsets, fanouts)
    module.fill_neighbors(*graph, *wanted, np.uint64(key), counted, *as_kernel_args(seeds, table, positions))
    return Picks(offsets, positions)


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
    types: EdgeValues,
    column_starts: torch.Tensor,
    destinations: torch.Tensor,
    dtype: torch.dtype,
) -> TypedPicks:
    """Split picks by edge type, at one random read per pick.

    Args:
        picks: What was sampled. Its positions are sorted in place within each column.
        types: Edge type of each edge of the graph, perhaps with copies of some columns.
        column_starts: int64: where the seeds of each node type start, one longer than there are node types; on the
            CPU.
        destinations: int64: destination node type of each edge type; on the CPU.
        dtype: int32 or int64, for the result's `indptr`.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: The arrays don't fit together.
    """
    if picks.positions.is_cpu:
        check_groups(picks, values_of(types), column_starts, destinations)
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
    types: EdgeValues,
    column_starts: torch.Tensor,
    destinations: torch.Tensor,
    dtype: torch.dtype,
) -> TypedPicks:
    """Do as `group_by_type` without its checks, for picks that were just made."""
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
    module = kernels("sampling.sample_neighbors", picks.positions, types=values_of(types))
    arrays = (types, picks.positions, picks.offsets, column_starts, destinations, bounds, indptr, grouped)
    module.group_by_type(*as_kernel_args(picks.positions, *arrays))
    counts = indptr[(bounds[1:] - 1).to(device, non_blocking=True)].to("cpu", torch.int64)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return TypedPicks(indptr, bounds, grouped, starts)
