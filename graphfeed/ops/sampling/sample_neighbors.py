"""Sample in-edges of nodes: one hop, not relabelled.

LABOR-0 is from "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023, arXiv 2210.13339),
with the sequential Poisson sampling of its appendix A.3.
"""

from graphfeed.ops.arguments import brief, check_ids, check_vector
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.hops.pick_edges import (
    OneHop,
    Picks,
    check_fanouts,
    check_keys,
    check_latest,
    check_moments,
    pick_edges,
)


def sample_neighbors(graph: Graph, hop: OneHop, *, checked: bool = False) -> Picks:
    """Sample in-edges of each seed.

    Without replacement, `min(fanout, eligible)` distinct edges are sampled. All such sets are equally likely; with
    weights, edges are drawn one by one in proportion to their weights. With replacement, `fanout` edges are drawn if
    any is eligible. Fan-out -1 selects each eligible edge exactly once. An edge is eligible unless its weight is 0. The
    draws depend only on the key, the node's id and its tree. A seed costs one random read and, with weights, up to
    log2(degree) per pick.

    In temporal sampling, an edge is eligible if its time and its second time are in the open interval from
    `time - window` to `time` of its seed. If its time is `ALWAYS`, only the second time is compared with the window.
    The draws also depend on the time. Each column costs an additional binary search; with second times and windows,
    the edges in between are read as well. The method "latest" selects the latest edges; among equal times, the last.

    In LABOR, each neighbour t has one variate r(t), a hash of the key and its id, for all columns and times. A column
    selects the `fanout` edges with the smallest r(t), or r(t) / weight; ties go to the first edge. So all subsets of
    the same size are equally likely, but columns with common neighbours select the same ones, and parallel edges are
    selected in sequence. With replacement, each neighbour has a Poisson process whose rate is the edge's weight, and a
    column selects the first `fanout` events: up to about 45,000 of one edge; any excess goes to the first of its
    heaviest edges. Columns with more than `fanout` eligible edges are read completely, and their picks are sorted.

    Args:
        graph: A graph, whose arrays are not checked here.
        hop: The seeds, the fan-outs and the method; with times if the graph has an order of time.
        checked: Whether the seeds are known to be in the graph. If so, seeds on a GPU are not checked again, which
            would need a synchronization.

    Raises:
        ValueError: A seed is not in the graph, a fan-out is below -1 or too large, the number of fan-outs or of times
            is wrong, or a window is negative.

    Example:
        >>> import torch
        >>> graph = Graph.checked(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]))
        >>> sample_neighbors(graph, OneHop(torch.tensor([1, 0]), torch.tensor([-1]), (7,))).positions
        tensor([2, 0, 1])
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be an ops.Graph, but is {brief(graph)}; create it with Graph.checked")
    if (graph.by_column is None) != (hop.moments is None):
        raise ValueError("hop.moments must be given if the graph has times, and only then")
    if hop.drawing.method == "latest":
        check_latest(graph, hop.drawing)
    seeds = hop.seeds
    check_vector("seeds", seeds)
    check_fanouts(hop.fanouts, graph, hop.drawing.replace)
    check_keys(hop)
    if not checked or seeds.is_cpu:
        check_ids("seeds", seeds, graph.num_nodes)
    if hop.moments is not None:
        check_moments(seeds.numel(), hop.moments)
    return pick_edges(graph, hop)
