"""Sample one hop in time by LABOR: by variates of the neighbours, among the edges before the time of the query."""

import numpy as np
import torch

from graphfeed.ops.backend import kernels, on_gpu
from graphfeed.ops.sampling.hops.hop_recipe import Drawing
from graphfeed.ops.sampling.labor_sample_neighbors import check_pairs
from graphfeed.ops.sampling.sample_neighbors import Picks
from graphfeed.ops.sampling.temporal_graph import TemporalGraph
from graphfeed.ops.sampling.temporal_sample_neighbors import (
    HopQuery,
    check_hop,
    count_on_gpu,
    fields_on_gpu,
    pick_on_cpu,
)


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
    check_pairs([keys])
    return pick_labor(graph, check_hop(graph, seeds, times, fanouts, windows, replace), keys, switch_threshold)


def pick_labor(graph: TemporalGraph, query: HopQuery, keys: tuple[int, int], switch_threshold: int) -> Picks:
    """Do as `temporal_labor_sample_neighbors`, with parameters that are checked already."""
    if not on_gpu(query.seeds):
        return pick_on_cpu(graph, query, keys, Drawing("labor", query.replace, switch_threshold))
    picks = count_on_gpu(graph, query)
    arrays = fields_on_gpu(graph, "indptr", "times", "earliest", "cumulative", "types", "indices", "order")
    draws = np.array(keys, dtype=np.uint64), np.uint64(switch_threshold)
    module = kernels("sampling.temporal_labor_sample_neighbors", query.seeds)
    module.fill_temporal_labor_neighbors(*arrays, *query.on_gpu(), *draws, *picks)
    return picks
