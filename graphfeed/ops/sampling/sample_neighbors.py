"""Sample in-edges of nodes: one hop, not relabelled."""

from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels, package_for
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.sampling.cached_edge_values import EdgeValues, values_of
from graphfeed.ops.sampling.hops.hop_recipe import Drawing
from graphfeed.ops.sampling.hops.one_hop import one_hop_graph, pick_one_hop
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.csc import ensure_columns, ensure_edge_types

MOST_REPEATED = (1 << 31) - 1
"""The largest fan-out with replacement: no number of edges that is computed from it overflows."""
NO_WEIGHTS = torch.empty(0, dtype=torch.int64)
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
    arrays = {"weights": cumulative, "types": types}
    given = {name: values_of(part) for name, part in arrays.items() if part is not None}
    if package_for("sampling.sample_neighbors", seeds, indptr=indptr, **given) == "cpu":
        graph = one_hop_graph(indptr, given.get("weights"), given.get("types"))
        return Picks(*pick_one_hop(graph, seeds, fanouts, (key,), Drawing("uniform", replace)))
    module = kernels("sampling.sample_neighbors", seeds)
    weights, kinds = (NO_WEIGHTS if cumulative is None else cumulative), (NO_TYPES if types is None else types)
    columns = indptr.contiguous(), weights.contiguous(), kinds.contiguous()
    wanted = seeds.contiguous(), fanouts.to("cpu", torch.int64), replace
    offsets = buffers.empty(seeds.numel() + 1, torch.int64, seeds.device)
    module.count_neighbors(*columns, *wanted, offsets)
    positions = buffers.empty(int(offsets[-1]), torch.int64, seeds.device)
    module.fill_neighbors(*columns, *wanted, np.uint64(key), offsets, positions)
    return Picks(offsets, positions)
