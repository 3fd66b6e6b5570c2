"""Kernels of one hop in time: count the picks of each column, fill in their positions; LABOR, too.

Windows are given as the first time inside of each.
"""

import numpy as np
import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch
from graphfeed.ops.cuda.sampling.sample_neighbors import _fanout_arguments, _labor_arguments, _make_tables, _walks


def count_neighbors(graph, hop, offsets):
    """Write the running sum of the columns' picks to `offsets` (one longer than the seeds)."""
    counts, seeds, indptr, types = offsets[1:], hop.seeds, graph.indptr, graph.types
    if graph.earliest.numel() > 0 and hop.moments.windows.numel() > 0:
        _count_late(graph, hop, hop.drawing.replace, counts)
    else:
        launch(
            "count_temporal_neighbors", seeds.numel(),
            indptr, indptr.itemsize, graph.times, graph.cumulative, types, types.itemsize, *_asked(hop),
            *_fanout_arguments(hop.fanouts, seeds.device), hop.drawing.replace, seeds.numel(), counts,
        )  # fmt: skip
    offsets[:1] = 0
    counts.cumsum_(0)


def fill_neighbors(graph, hop, offsets, positions):
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    indptr, times, cumulative, types, found = _gather_late(graph, hop)
    seeds, fanouts, order = hop.seeds, hop.fanouts, graph.order
    if cumulative.numel() == 0 and int(fanouts.max()) == -1:
        launch(
            "fill_eligible_columns", WARP_SIZE * seeds.numel(),
            indptr, indptr.itemsize, times, types, types.itemsize, order, order.itemsize, found, *_asked(hop),
            *_fanout_arguments(fanouts, seeds.device), seeds.numel(), offsets, positions,
        )  # fmt: skip
        return
    launch(
        "fill_temporal_neighbors", seeds.numel(),
        indptr, indptr.itemsize, times, cumulative, types, types.itemsize, order, order.itemsize, found, *_asked(hop),
        *_fanout_arguments(fanouts, seeds.device), hop.drawing.replace, hop.drawing.method == "latest",
        _walks(fanouts, cumulative), np.uint64(hop.keys[0]), seeds.numel(), offsets, _make_tables(fanouts, positions),
        positions,
    )  # fmt: skip


def fill_labor_neighbors(graph, hop, offsets, positions):
    """Write as `fill_neighbors` the edges of the smallest variates, which the columns share."""
    indptr, times, cumulative, types, found = _gather_late(graph, hop)
    seeds, indices, order = hop.seeds, graph.indices, graph.order
    launch(
        "fill_temporal_labor_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, times, cumulative, types, types.itemsize, indices, indices.itemsize, order,
        order.itemsize, found, *_asked(hop), *_fanout_arguments(hop.fanouts, seeds.device), hop.drawing.replace,
        *_labor_arguments(hop), seeds.numel(), offsets, torch.empty_like(positions), torch.empty_like(positions),
        positions,
    )  # fmt: skip


def _asked(hop):
    """Return the seeds, the bytes of one, the first time in the window of each, and their times."""
    return hop.seeds, hop.seeds.itemsize, hop.moments.windows, hop.moments.times


def _count_late(graph, hop, replace, counts):
    """Write how many edges are picked of each column where edges have a second time; return how many may be."""
    indptr, types, seeds, eligible_counts = graph.indptr, graph.types, hop.seeds, torch.empty_like(counts)
    launch(
        "count_late_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, graph.times, graph.earliest, graph.cumulative, types, types.itemsize, *_asked(hop),
        *_fanout_arguments(hop.fanouts, seeds.device), replace, seeds.numel(), counts, eligible_counts,
    )  # fmt: skip
    return eligible_counts


def _gather_late(graph, hop):
    """Return what to sample from: the graph, or a copy of the edges whose second time is not too early.

    Waits once for the device where it makes a copy, to learn how many edges there are.

    Returns:
        Column starts, times, weights and types; and the position in the graph of each edge of a copy, whose columns
        are the seeds.
    """
    indptr, times, earliest, cumulative, types = (
        getattr(graph, name) for name in ("indptr", "times", "earliest", "cumulative", "types")
    )
    seeds, order, device = hop.seeds, graph.order, hop.seeds.device
    if earliest.numel() == 0 or hop.moments.windows.numel() == 0:
        return indptr, times, cumulative, types, None
    offsets = torch.zeros(seeds.numel() + 1, dtype=torch.int64, device=device)
    torch.cumsum(_count_late(graph, hop, False, torch.empty_like(offsets[1:])), 0, out=offsets[1:])
    size = int(offsets[-1])
    found = torch.empty(size, dtype=torch.int64, device=device)
    sums = torch.empty(size if cumulative.numel() else 0, dtype=torch.int64, device=device)
    kinds = torch.empty(size if hop.fanouts.numel() > 1 else 0, dtype=types.dtype, device=device)
    launch(
        "gather_late_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, times, earliest, cumulative, types, types.itemsize, order, order.itemsize,
        *_asked(hop), _fanout_arguments(hop.fanouts, device)[0], seeds.numel(), offsets, found, sums, kinds,
    )  # fmt: skip
    return offsets, None, sums, kinds, found
