"""Sample in-edges of nodes at times together: by variates of the neighbours, among edges that are before."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from graphfeed.ops.backend import as_kernel_args, on_gpu
from graphfeed.ops.sampling.sample_hops import Layer
from graphfeed.ops.sampling.sample_neighbors import Picks
from graphfeed.ops.sampling.temporal_sample_hops import NO_WINDOW, TimedOutputs, check_timed_hops, stack_timed_hops
from graphfeed.ops.sampling.temporal_sample_neighbors import EMPTY, TimedColumns, TimedHop, check_hop, count_picks


def temporal_labor_sample_neighbors(
    columns: TimedColumns,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, int],
    *,
    share: int = 0,
    replace: bool = False,
    windows: torch.Tensor | None = None,
) -> Picks:
    """Choose in-edges of each seed as `labor_sample_neighbors` does, but only among those before its time.

    Which edges are eligible, `temporal_sample_neighbors` says. A neighbour has one variate, whatever the times of the
    columns that ask. Reads all eligible edges of each column that has more than its fan-out, for each time of a node
    anew: with hubs that is many times what random choices cost.

    Args:
        columns: The graph; this, `seeds`, `times`, `fanouts` and `windows` are as there.
        seeds: Node ids.
        times: int64, one a seed.
        fanouts: One number, or one an edge type.
        keys: Key of this hop (`Key.at`), and the one that follows it.
        share: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        windows: int64, one a seed; None takes all edges before the time.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, a wrong fan-out, another number of times, or a negative window.
    """
    return pick_labor(columns, check_hop(columns, seeds, times, fanouts, windows, replace), keys, share)


def pick_labor(columns: TimedColumns, hop: TimedHop, keys: tuple[int, int], share: int) -> Picks:
    """Do as `temporal_labor_sample_neighbors` what is known to make sense."""
    module = columns.kernels("sampling.temporal_labor_sample_neighbors", hop.seeds)
    picks = count_picks(columns, hop)
    graph = columns.as_kernel_args(hop.seeds, "indptr", "times", "earliest", "cumulative", "types", "indices", "order")
    module.fill_timed_layer_neighbors(
        *graph,
        *hop.as_kernel_args,
        np.array(keys, dtype=np.uint64),
        np.uint64(share),
        *as_kernel_args(hop.seeds, *picks),
    )
    return picks


def temporal_labor_sample_hops(
    columns: TimedColumns,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[tuple[int, int]],
    *,
    share: int = 0,
    replace: bool = False,
    window: int | None = None,
) -> list[Layer]:
    """Sample hop after hop by `temporal_labor_sample_neighbors`; every edge makes a row.

    Args:
        columns: The graph; this, `seeds`, `times`, `fanouts` and `window` are as in `temporal_sample_hops`.
        seeds: Node ids.
        times: int64, one a seed.
        fanouts: One number a hop, the seeds' own hop first.
        keys: The two keys of each hop.
        share: Which part of the nodes draws by the second key, in units of 2**-64.
        replace: Whether an edge may be chosen more than once.
        window: An edge has to be less than so much before its column's time, 0 or more.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, a fan-out below -1, another number of times or keys, or a window below
            0.
    """
    check_timed_hops(columns, seeds, times, fanouts, len(keys), window)
    if on_gpu(seeds):
        first = TimedHop(seeds.contiguous(), EMPTY, times.contiguous(), EMPTY, replace)
        return stack_timed_hops(partial(pick_labor, share=share), columns, first, fanouts, keys, window)
    module = columns.kernels("sampling.temporal_labor_sample_neighbors", seeds)
    columns = columns if columns.links is None else columns._replace(order=None)
    out = TimedOutputs(seeds.numpy(), times.numpy(), columns.indptr.numpy().dtype, fanouts)
    graph = columns.as_kernel_args(seeds, "indptr", "indices", "times", "order", "links", "edge_times", "cumulative")
    hop_fanouts, hop_keys = np.array(fanouts, dtype=np.int64), np.array(keys, dtype=np.uint64)
    wanted = (hop_fanouts, replace, NO_WINDOW if window is None else window, hop_keys, np.uint64(share))

    def run(hop: int) -> int:
        reached: int = module.temporal_labor_sample_hops(*graph, *wanted, hop, *out.arrays)
        return reached

    return out.run(run, len(fanouts))
