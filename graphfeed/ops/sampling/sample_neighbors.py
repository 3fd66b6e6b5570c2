"""Sample in-edges of nodes: one hop, not relabelled; independently, or by LABOR.

LABOR-0 is that of "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023, arXiv 2210.13339),
as the sequential Poisson sampling of its appendix A.3: the columns of a hop choose the same neighbours where they can.
"""

import torch

from graphfeed.ops.sampling.hops.hop_recipe import Drawing
from graphfeed.ops.sampling.hops.one_hop import OneHop, Picks, StaticGraph, check_hop, pick_edges
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.csc import ensure_columns, ensure_edge_types, ensure_length


def sample_neighbors(
    indptr: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    key: int,
    *,
    replace: bool = False,
    cumulative: torch.Tensor | None = None,
    types: torch.Tensor | None = None,
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
        cumulative: Fixed-point weights, as `cumulate_weights` returns them.
        types: Edge types, ascending inside each column; needed where `fanouts` has more than one number.
        num_types: How many edge types there are.
        checked: Whether the seeds are known to be in the graph. On a GPU, which would have to be waited for, they are
            not checked again.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, the number of fan-outs is
            wrong, or the arrays are not those of a graph.
    """
    graph = StaticGraph(indptr, cumulative=cumulative, types=types, num_types=num_types)
    return check_and_pick(graph, OneHop(seeds, fanouts, (key,), Drawing("uniform", replace)), checked)


def labor_sample_neighbors(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, int],
    *,
    switch_threshold: int = 0,
    replace: bool = False,
    cumulative: torch.Tensor | None = None,
    types: torch.Tensor | None = None,
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
        indptr: Column starts; this and the other arguments that have no more to say are those of `sample_neighbors`.
        indices: Source of each edge, int32 or int64.
        seeds: Node ids.
        fanouts: One number, or one per edge type.
        keys: Key of this hop (`Key.at`), and the one that follows it.
        switch_threshold: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights.
        types: Edge types.
        num_types: How many edge types there are.
        checked: Whether the seeds are known to be in the graph.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is wrong, or the arrays are not those of a graph.
    """
    graph = StaticGraph(indptr, indices, cumulative, types, num_types)
    ensure_columns("indptr", indptr)
    ensure_length("indices", indices, indptr)
    return check_and_pick(graph, OneHop(seeds, fanouts, keys, Drawing("labor", replace, switch_threshold)), checked)


def check_and_pick(graph: StaticGraph, hop: OneHop, checked: bool) -> Picks:
    """Choose in-edges of each seed, or raise unless all arguments fit together."""
    ensure_columns("indptr", graph.indptr)
    if graph.cumulative is not None:
        ensure_cumulative(graph.indptr, graph.cumulative)
    if graph.types is not None:
        ensure_edge_types(graph.indptr, graph.types, graph.num_types)
    check_hop(graph, hop, checked=checked)
    return pick_edges(graph, hop)
