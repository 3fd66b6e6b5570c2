"""Sample in-edges of nodes: one hop, not relabelled.

LABOR-0 is that of "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023, arXiv 2210.13339),
by the sequential Poisson sampling of its appendix A.3.
"""

from graphfeed.ops.arguments import check_ids, check_vector
from graphfeed.ops.sampling.hops.pick_edges import (
    OneHop,
    Picks,
    StaticGraph,
    check_fanouts,
    check_keys,
    check_latest,
    check_moments,
    pick_edges,
)
from graphfeed.ops.sampling.temporal_graph import TemporalGraph, ensure_temporal
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.csc import ensure_columns, ensure_edge_types, ensure_length


def sample_neighbors(graph: StaticGraph | TemporalGraph, hop: OneHop, *, checked: bool = False) -> Picks:
    """Choose in-edges of each seed.

    Without replacement these are `min(fanout, eligible)` distinct edges. Every such set is equally likely; with weights
    the edges are drawn one after the other in proportion to them. With replacement there are `fanout` edges if any is
    eligible. Fan-out -1 takes each eligible edge once. An edge is eligible unless its weight is 0. The draws depend on
    the key, the node's id and its tree alone. A seed costs one random read and, with weights, up to log2(degree) per
    pick.

    In time, an edge is eligible if its time lies in the open interval from `time - window` to `time` of its seed, and
    its second time does too, which alone decides on the window if its time is `ALWAYS`. The draws depend on the node's
    time as well. A column costs a binary search more; with a second time and a window, the edges in between are read as
    well. The method "latest" takes the edges of the highest times; among equal times, those that come last.

    By LABOR, each neighbour t has one variate r(t), the hash of the key and its id, for all columns and times. A column
    takes the `fanout` edges with the smallest r(t), or r(t) over weight; ties go to the first edge. So every subset of
    a column is as likely as any other of its size, but columns with common neighbours choose the same ones, and
    parallel edges are chosen one after the other. With replacement each neighbour has a Poisson process, which runs at
    the edge's weight, and a column takes the first `fanout` events: some 45,000 of one edge, and what is wanted beyond
    goes to the first of its heaviest edges. Each column with more eligible edges is read whole; its picks ascend.

    Args:
        graph: Its arrays; in time, sorted within each edge type if there is a fan-out per type, else in each column.
        hop: The seeds, how many edges of each are chosen, and how; with times if the graph has them.
        checked: Whether the seeds are known to be in the graph. On a GPU, which would have to be waited for, they are
            not checked again.

    Raises:
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, the number of fan-outs or of
            times is wrong, a window is negative, or the arrays are not those of a graph.

    Example:
        >>> import torch
        >>> graph = StaticGraph(torch.tensor([0, 2, 3]))
        >>> sample_neighbors(graph, OneHop(torch.tensor([1, 0]), torch.tensor([-1]), (7,))).positions
        tensor([2, 0, 1])
    """
    seeds, is_labor = hop.seeds, hop.drawing.method == "labor"
    if isinstance(graph, TemporalGraph) != (hop.moments is not None):
        raise ValueError("a graph with times and the times of the seeds, hop.moments, are given together")
    if hop.drawing.method == "latest":
        check_latest(graph, hop.drawing)
    if isinstance(graph, TemporalGraph):
        ensure_temporal(graph)
    else:
        ensure_columns("indptr", graph.indptr)
        if is_labor:
            ensure_length("indices", graph.indices, graph.indptr)
        if graph.cumulative is not None:
            ensure_cumulative(graph.indptr, graph.cumulative)
        if graph.types is not None:
            ensure_edge_types(graph.indptr, graph.types, graph.num_types)
    check_vector("seeds", seeds)
    check_fanouts(hop.fanouts, graph.num_types, graph.types, hop.drawing.replace)
    check_keys(hop)
    if not checked or seeds.is_cpu:
        check_ids("seeds", seeds, graph.indptr.numel() - 1)
    if hop.moments is not None:
        check_moments(seeds.numel(), hop.moments)
    return pick_edges(graph, hop)
