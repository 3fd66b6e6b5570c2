"""Sample all hops of a mini-batch in time by LABOR, on a graph of one type; nodes are not deduplicated."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from graphfeed.ops.backend import on_gpu
from graphfeed.ops.sampling.labor_sample_neighbors import check_pairs
from graphfeed.ops.sampling.sample_hops import SampledHop, check_hops
from graphfeed.ops.sampling.temporal_labor_sample_neighbors import pick_labor
from graphfeed.ops.sampling.temporal_sample_hops import (
    NO_WINDOW,
    check_temporal_hops,
    hop_arrays,
    stack_temporal_hops,
    temporal_outputs,
)
from graphfeed.ops.sampling.temporal_sample_neighbors import EMPTY, HopQuery, TemporalGraph


def temporal_labor_sample_hops(
    graph: TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[tuple[int, int]],
    *,
    switch_threshold: int = 0,
    replace: bool = False,
    window: int | None = None,
) -> list[SampledHop]:
    """Sample hop after hop by `temporal_labor_sample_neighbors`; every edge makes a row.

    Args:
        graph: The graph; this, `seeds`, `times`, `fanouts` and `window` are as in `temporal_sample_hops`.
        seeds: Node ids.
        times: int64, one per seed.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The two keys of each hop.
        switch_threshold: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        window: An edge has to be less than this before its column's time, 0 or more.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1, the number of times or keys is wrong, or
            the window is negative.
    """
    check_temporal_hops(graph, seeds, times, window)
    check_hops(fanouts, keys, "pairs", replace)
    check_pairs(keys)
    if on_gpu(seeds):
        first = HopQuery(seeds.contiguous(), EMPTY, times.contiguous(), EMPTY, replace)
        sample = partial(pick_labor, switch_threshold=switch_threshold)
        return stack_temporal_hops(sample, graph, first, fanouts, keys, window)
    module = graph.kernels("sampling.temporal_labor_sample_hops", seeds)
    hop_fanouts, hop_keys = np.array(fanouts, dtype=np.int64), np.array(keys, dtype=np.uint64)
    wanted = hop_fanouts, replace, NO_WINDOW if window is None else window, hop_keys, np.uint64(switch_threshold)
    run = partial(module.temporal_labor_sample_hops, hop_arrays(graph), *wanted)
    return temporal_outputs(graph, seeds, times, fanouts).fill(run)
