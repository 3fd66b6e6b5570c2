"""Sample all hops of a mini-batch in time, on a graph of one type; nodes are not deduplicated."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from graphfeed.ops.backend import on_gpu
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.sampling.sample_hops import FIRST_EDGES, Outputs, SampledHop, check_hops
from graphfeed.ops.sampling.sample_neighbors import Picks, make_table
from graphfeed.ops.sampling.temporal_sample_neighbors import (
    EMPTY,
    HopQuery,
    TemporalGraph,
    check_method,
    ensure_temporal,
    pick_in_time,
)
from graphfeed.ops.sampling.time_order import earliest_times, ensure_links
from graphfeed.ops.structure.csc import ensure_csc

NO_WINDOW = -1


def unmerged_sizes(num_seeds: int, fanouts: Sequence[int]) -> tuple[int, int]:
    """Return room for the edges that the fan-outs allow, each with a row of its own, and for the last hop's columns."""
    edges, columns, nodes = 0, num_seeds, num_seeds
    for fanout in fanouts:
        columns = nodes
        edges += nodes * max(fanout, 1)
        nodes += nodes * max(fanout, 1)
    return min(edges, FIRST_EDGES) + 1, min(columns, FIRST_EDGES) + 1


def temporal_outputs(graph: TemporalGraph, seeds: torch.Tensor, times: torch.Tensor, fanouts: Sequence[int]) -> Outputs:
    """Return the arrays that the kernels write."""
    room, columns = unmerged_sizes(seeds.numel(), fanouts)
    return Outputs(seeds.numpy(), graph.indptr.numpy().dtype, len(fanouts), room, columns, times.numpy())


def hop_arrays(graph: TemporalGraph) -> tuple[Any, ...]:
    """Return the graph as the kernels of all hops take it; with links they need no order."""
    graph = graph if graph.links is None else graph._replace(order=None)
    names = "indptr", "indices", "times", "order", "links", "edge_times", "cumulative"
    return graph.as_kernel_args(graph.indptr, *names)


def stack_temporal_hops(
    sample: Callable[[TemporalGraph, HopQuery, Any], Picks],
    graph: TemporalGraph,
    first: HopQuery,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    window: int | None,
) -> list[SampledHop]:
    """Make all hops with kernels for one hop, as there are on a GPU.

    Args:
        sample: Takes the graph, the query of one hop, and its key.
        graph: The graph.
        first: The seeds, their times, and whether edges are replaced.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The key of each hop.
        window: Of all columns.
    """
    graph = graph._replace(earliest=None)
    hops: list[SampledHop] = []
    seeds, times = first.seeds, first.limits
    for fanout, key in zip(fanouts, keys, strict=True):
        firsts = EMPTY if window is None else earliest_times(times, torch.full_like(times, window))
        query = first._replace(seeds=seeds, firsts=firsts, limits=times, fanouts=torch.tensor([fanout]))
        offsets, positions = sample(graph, query, key)
        rows = torch.cat([seeds, take_rows(graph.indices, positions)])
        local = torch.arange(seeds.numel(), rows.numel(), dtype=seeds.dtype, device=seeds.device)
        hops.append(SampledHop(seeds, rows, offsets.to(graph.indptr.dtype), local, positions))
        if len(hops) < len(fanouts):
            found = (
                torch.repeat_interleave(times, offsets.diff(), output_size=positions.numel())
                if graph.edge_times is None
                else take_rows(graph.edge_times, positions)
            )
            seeds, times = rows, torch.cat([times, found])
    return hops


def temporal_sample_hops(
    graph: TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[int],
    *,
    replace: bool = False,
    latest: bool = False,
    window: int | None = None,
) -> list[SampledHop]:
    """Sample hop after hop by `temporal_sample_neighbors`, each from all rows so far; every edge makes a row.

    The rows of a hop are its columns and then the source of each edge, duplicates included. A row that an edge made
    has the time of that edge's column, or of the edge itself if there are `graph.edge_times`. Beside the reads of
    `sample_hops` a column costs a binary search, of which many run at once. If the graph is not sorted by time, an
    edge costs one more random read. There is no map from node to position (see `python -m benchmarks sampling`). On a
    GPU the result is made hop by hop.

    Args:
        graph: The graph; types, and a window together with `earliest`, are for single hops.
        seeds: Node ids, of the dtype of `graph.indices`.
        times: int64, one per seed.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The key of each hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        latest: Whether to take the latest edges instead of random ones.
        window: An edge has to be less than this before its column's time, 0 or more; None takes all before it.

    Returns:
        A `SampledHop` per hop, the seeds' own first.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1, the number of times or keys is wrong, or
            the window is negative.
    """
    check_method(graph, replace, latest)
    check_temporal_hops(graph, seeds, times, window)
    check_hops(fanouts, keys, "numbers", replace)
    if on_gpu(seeds):
        first = HopQuery(seeds.contiguous(), EMPTY, times.contiguous(), EMPTY, replace)
        return stack_temporal_hops(partial(pick_in_time, latest=latest), graph, first, fanouts, keys, window)
    module = graph.kernels("sampling.temporal_sample_hops", seeds)
    table = make_table(min(max(fanouts), graph.indices.numel())).numpy()
    hop_fanouts, hop_keys = np.array(fanouts, dtype=np.int64), np.array(keys, dtype=np.uint64)
    wanted = hop_fanouts, replace, latest, NO_WINDOW if window is None else window, hop_keys, table
    run = partial(module.temporal_sample_hops, hop_arrays(graph), *wanted)
    return temporal_outputs(graph, seeds, times, fanouts).fill(run)


def check_temporal_hops(
    graph: TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    window: int | None,
) -> None:
    """Raise unless the parameters of all hops fit the graph and each other."""
    if window is not None and not 0 <= window < 1 << 63:
        raise ValueError(f"window must lie in 0 .. 2**63 - 1, but is {window}; None takes all that is before a time")
    ensure_csc(graph.indptr, graph.indices)
    if graph.links is not None:
        ensure_links(graph.indptr, graph.links)
    ensure_temporal(graph)
    check_vector("seeds", seeds, (graph.indices.dtype,))
    check_vector("times", times, (torch.int64,))
    if times.numel() != seeds.numel():
        raise ValueError(f"times must have {seeds.numel()} values, one per seed, but has {times.numel()}")
    check_ids("seeds", seeds, graph.indptr.numel() - 1)
