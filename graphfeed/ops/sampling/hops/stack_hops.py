"""All hops of a mini-batch on a GPU, which has kernels for one hop."""

from collections.abc import Sequence
from typing import Any

import torch

from graphfeed.ops.arguments import check_ids, is_trusted
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.guides import split_sums
from graphfeed.ops.sampling.hops.hop_graph import HopGraph
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, SeedTimes
from graphfeed.ops.sampling.hops.one_hop import OneHop, StaticGraph, pick_edges
from graphfeed.ops.sampling.temporal_graph import TemporalGraph

Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""The fields of a `SampledHop`."""


def stack_hops(
    graph: HopGraph,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    drawing: Drawing,
    moments: SeedTimes | None,
) -> list[Parts]:
    """Sample all hops as `sample_hops` says, with kernels for one hop."""
    draws = [key if drawing.method == "labor" else (key,) for key in keys]
    columns: StaticGraph | TemporalGraph = StaticGraph(graph.indptr, graph.indices, split_sums(graph.cumulative)[0])
    edge_times, indices = None, graph.indices.contiguous()
    if graph.timed is not None and moments is not None:
        columns = graph.timed[0]._replace(indptr=graph.indptr, indices=graph.indices)
        edge_times = None if columns.edge_times is None else columns.edge_times.contiguous()
        times, windows = moments
        moments = SeedTimes(times.contiguous(), None if windows is None else windows.contiguous())
    num_nodes, most_rows = graph.indptr.numel() - 1, seeds.numel()
    module = kernels("sampling.stack_hops", seeds, indices=graph.indices)
    # Whether a seed is no node, and then the edges and the rows of each hop.
    sizes = torch.zeros(1 + 2 * len(fanouts), dtype=torch.int64, device=seeds.device)
    rows, num_rows = seeds.contiguous(), None
    if not is_trusted(seeds, num_nodes):
        rows = torch.empty_like(rows)
        module.clean_seeds(seeds.contiguous(), num_nodes, rows, sizes)
    hops = []
    for number, (fanout, draw) in enumerate(zip(fanouts, draws, strict=True)):
        hop = OneHop(rows, torch.tensor([fanout]), draw, drawing, moments, num_seeds=num_rows, bounded=True)
        offsets, positions = pick_edges(columns, hop)
        most_rows += positions.numel()
        if moments is None:
            most_rows = min(most_rows, seeds.numel() + num_nodes)
        local = buffers.empty(positions.numel(), seeds.dtype, seeds.device)
        after = buffers.empty(most_rows, seeds.dtype, seeds.device)
        own_sizes = sizes[1 + 2 * number : 3 + 2 * number]
        if moments is None:
            module.compact_hop(hop, indices, offsets, positions, after, local, own_sizes)
        else:
            times, windows = moments
            moments = SeedTimes(times.new_empty(most_rows), None if windows is None else windows.new_empty(most_rows))
            module.append_rows(hop, indices, edge_times, offsets, positions, after, local, moments, own_sizes)
        hops.append((rows, after, offsets.to(graph.indptr_dtype or graph.indptr.dtype), local, positions))
        rows, num_rows = after, own_sizes[1:]
    is_wrong, *found = sizes.tolist()
    if is_wrong:
        check_ids("seeds", seeds, num_nodes)
    return cut(seeds, hops, [(seeds.numel(), 0), *zip(found[1::2], found[::2], strict=True)])


def cut(seeds: torch.Tensor, hops: Sequence[Parts], sizes: Sequence[tuple[int, int]]) -> list[Parts]:
    """Cut the arrays of hops to what is used, given the number of seeds, and then of each hop's rows and edges."""
    parts, columns = [], seeds
    for (_, rows, offsets, local, positions), (count, _), (known, edges) in zip(hops, sizes, sizes[1:], strict=False):
        parts.append((columns, rows[:known], offsets[: count + 1], local[:edges], positions[:edges]))
        columns = parts[-1][1]
    return parts
