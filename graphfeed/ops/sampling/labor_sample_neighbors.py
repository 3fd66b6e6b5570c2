"""Sample one hop by LABOR: the columns of a hop choose the same neighbours where they can.

This is LABOR-0 of "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023, arXiv 2210.13339),
as the sequential Poisson sampling of its appendix A.3.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels, package_for
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.sampling.cached_edge_values import EdgeValues, values_of
from graphfeed.ops.sampling.hops.hop_recipe import Drawing
from graphfeed.ops.sampling.hops.one_hop import one_hop_graph, pick_one_hop
from graphfeed.ops.sampling.sample_neighbors import (
    NO_TYPES,
    NO_WEIGHTS,
    Picks,
    check_fanouts,
    ensure_graph,
)
from graphfeed.ops.structure.csc import ensure_length


def check_pairs(keys: Sequence[Sequence[int]]) -> None:
    """Raise unless each hop has two keys."""
    for pair in keys:
        if len(pair) != 2:
            raise ValueError(f"each hop needs two keys, its own and the one that follows it, but one has {len(pair)}")


def labor_sample_neighbors(
    indptr: torch.Tensor,
    indices: EdgeValues,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, int],
    *,
    switch_threshold: int = 0,
    replace: bool = False,
    cumulative: EdgeValues | None = None,
    types: EdgeValues | None = None,
    num_types: int = 1,
    checked: bool = False,
) -> Picks:
    """Choose in-edges of each seed by variates that belong to the neighbours: LABOR-0.

    Each neighbour t has one variate r(t), the hash of the key and its id, for all columns. A column takes the `fanout`
    edges with the smallest r(t), or r(t) over weight; ties go to the first edge. So every subset of a column is as
    likely as any other of its size, but columns with common neighbours choose the same ones, and parallel edges are
    chosen one after the other. With replacement each neighbour has a Poisson process, which runs at the edge's weight,
    and a column takes the first `fanout` events. An edge of weight 0 is never chosen; -1 takes each other edge once.
    Each column with more edges than its fan-out is read whole; its picks ascend.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source of each edge, int32 or int64. This, the weights and the types may be `CachedEdgeValues` of the
            seeds' columns.
        seeds: Node ids.
        fanouts: One number, or one per edge type.
        keys: Key of this hop (`Key.at`), and the one that follows it.
        switch_threshold: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` returns them.
        types: Edge types, ascending inside each column; needed where `fanouts` has more than one number.
        num_types: How many edge types there are.
        checked: Whether the seeds are known to be in the graph. A GPU then need not be waited for to check them.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is wrong, or the arrays are not those of a graph.
    """
    ensure_graph(indptr, cumulative, types, num_types)
    ensure_length("indices", values_of(indices), indptr)
    check_vector("seeds", seeds)
    check_fanouts(fanouts, num_types, types, replace)
    check_pairs([keys])
    if not checked or seeds.is_cpu:
        check_ids("seeds", seeds, indptr.numel() - 1)
    weights, kinds = (NO_WEIGHTS if cumulative is None else cumulative), (NO_TYPES if types is None else types)
    arrays = {"indices": values_of(indices), "weights": values_of(weights), "types": values_of(kinds)}
    drawing = Drawing("labor", replace, switch_threshold)
    if package_for("sampling.labor_sample_neighbors", seeds, indptr=indptr, **arrays) != "cpu":
        return pick_on_gpu((indptr, indices, weights, kinds, seeds), fanouts, keys, drawing)
    own_weights, own_types = (None if part is None else values_of(part) for part in (cumulative, types))
    graph = one_hop_graph(indptr, own_weights, own_types, values_of(indices))
    return Picks(*pick_one_hop(graph, seeds, fanouts, keys, drawing))


def pick_on_gpu(columns: tuple[Any, ...], fanouts: torch.Tensor, keys: tuple[int, int], drawing: Drawing) -> Picks:
    """Choose neighbours by LABOR with a GPU's kernels.

    Args:
        columns: The column starts, the sources, the weights, the edge types, and the seeds.
        fanouts: One number, or one per edge type.
        keys: Key of this hop, and the one that follows it.
        drawing: How edges are chosen.
    """
    starts, sources, *edges, seeds = (part.contiguous() for part in columns)
    wanted = seeds, fanouts.to("cpu", torch.int64), drawing.replace
    offsets = buffers.empty(seeds.numel() + 1, torch.int64, seeds.device)
    kernels("sampling.sample_neighbors", seeds).count_neighbors(starts, *edges, *wanted, offsets)
    positions = buffers.empty(int(offsets[-1]), torch.int64, seeds.device)
    draws = np.array(keys, dtype=np.uint64), np.uint64(drawing.switch_threshold)
    module = kernels("sampling.labor_sample_neighbors", seeds)
    module.fill_labor_neighbors(starts, sources, *edges, *wanted, *draws, offsets, positions)
    return Picks(offsets, positions)
