"""Sample one hop in time: in-edges of nodes among those that are before the time of the query; not relabelled."""

import torch

from graphfeed.ops.sampling.hops.hop_recipe import Drawing, SeedTimes
from graphfeed.ops.sampling.hops.one_hop import OneHop, Picks, check_hop, check_method, pick_edges
from graphfeed.ops.sampling.temporal_graph import TemporalGraph, ensure_temporal


def temporal_sample_neighbors(
    graph: TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: torch.Tensor,
    key: int,
    *,
    replace: bool = False,
    latest: bool = False,
    windows: torch.Tensor | None = None,
) -> Picks:
    """Choose in-edges of each seed as `sample_neighbors` does, but only among those before the seed's time.

    An edge is eligible if its time lies in the open interval from `time - window` to `time`, its second time does too,
    and its weight is not 0. The draws depend on the key, the node's id and its time alone. A column costs a binary
    search more than in `sample_neighbors`. With a second time and a window, the edges in between are read as well.

    Args:
        graph: Sorted by time within each edge type if `fanouts` has a number per type, else within each column.
        seeds: Node ids, int32 or int64.
        times: int64, one per seed.
        fanouts: One number, or one per edge type; -1 takes each eligible edge once.
        key: Key of this hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        latest: Whether to take the edges of the highest times instead of random ones; among equal times, those that
            come last in the graph.
        windows: int64, one per seed, 0 or more; None takes all edges before the time.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is wrong, the number of times is not that of the seeds,
            or a window is negative.
    """
    check_method(graph, replace, latest)
    drawing = Drawing("latest" if latest else "uniform", replace)
    return check_and_pick(graph, OneHop(seeds, fanouts, (key,), drawing, SeedTimes(times, windows)))


def temporal_labor_sample_neighbors(
    graph: TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, int],
    *,
    switch_threshold: int = 0,
    replace: bool = False,
    windows: torch.Tensor | None = None,
) -> Picks:
    """Choose in-edges of each seed as `labor_sample_neighbors` does, but only among those before the seed's time.

    `temporal_sample_neighbors` says which edges are eligible. A neighbour has one variate, whatever the times of its
    columns. All eligible edges of each column that has more than its fan-out are read, anew for each time of a node:
    with high-degree columns that costs many times as much as random choices.

    Args:
        graph: The graph; this, `seeds`, `times`, `fanouts` and `windows` are as there.
        seeds: Node ids.
        times: int64, one per seed.
        fanouts: One number, or one per edge type.
        keys: Key of this hop (`Key.at`), and the one that follows it.
        switch_threshold: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        windows: int64, one per seed; None takes all edges before the time.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is wrong, the number of times is not that of the seeds,
            or a window is negative.
    """
    drawing = Drawing("labor", replace, switch_threshold)
    return check_and_pick(graph, OneHop(seeds, fanouts, keys, drawing, SeedTimes(times, windows)))


def check_and_pick(graph: TemporalGraph, hop: OneHop) -> Picks:
    """Choose in-edges of each seed, or raise unless all arguments fit together."""
    ensure_temporal(graph)
    check_hop(graph, hop)
    return pick_edges(graph, hop)
