"""Kernels of one temporal hop: count the picks of each column, fill in their positions."""

import numpy as np
import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch
from graphfeed.ops.cuda.sampling.sample_neighbors import _fanout_arguments, _make_tables, _walks


def count_temporal_neighbors(
    indptr, times, earliest, cumulative, types, seeds, firsts, limits, fanouts, replace, offsets
):  # fmt: skip
    """Write the running sum of the columns' picks to `offsets` (one longer than `seeds`)."""
    graph = (indptr, times, earliest, cumulative, types)
    counts = offsets[1:]
    if earliest.numel() > 0 and firsts.numel() > 0:
        _count_late(graph, (seeds, firsts, limits), fanouts, replace, counts)
    else:
        launch(
            "count_temporal_neighbors", seeds.numel(),
            indptr, indptr.itemsize, times, cumulative, types, types.itemsize, seeds, seeds.itemsize, firsts, limits,
            *_fanout_arguments(fanouts, seeds.device), replace, seeds.numel(), counts,
        )  # fmt: skip
    offsets[:1] = 0
    counts.cumsum_(0)


def fill_temporal_neighbors(
    indptr, times, earliest, cumulative, types, order, seeds, firsts, limits, fanouts, replace, latest, key, offsets,
    positions,
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    graph = (indptr, times, earliest, cumulative, types)
    indptr, times, cumulative, types, found = _gather_late(graph, order, (seeds, firsts, limits), fanouts)
    if cumulative.numel() == 0 and int(fanouts.max()) == -1:
        launch(
            "fill_eligible_columns", WARP_SIZE * seeds.numel(),
            indptr, indptr.itemsize, times, types, types.itemsize, order, order.itemsize, found, seeds, seeds.itemsize,
            firsts, limits, *_fanout_arguments(fanouts, seeds.device), seeds.numel(), offsets, positions,
        )  # fmt: skip
        return
    launch(
        "fill_temporal_neighbors", seeds.numel(),
        indptr, indptr.itemsize, times, cumulative, types, types.itemsize, order, order.itemsize, found,
        seeds, seeds.itemsize, firsts, limits, *_fanout_arguments(fanouts, seeds.device), replace, latest,
        _walks(fanouts, cumulative), np.uint64(key), seeds.numel(), offsets, _make_tables(fanouts, positions),
        positions,
    )  # fmt: skip


def _count_late(graph, asked, fanouts, replace, counts):
    """Write how many edges are picked of each column where edges have a second time; return how many may be."""
    indptr, times, earliest, cumulative, types = graph
    seeds, firsts, limits = asked
    eligible_counts = torch.empty_like(counts)
    launch(
        "count_late_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, times, earliest, cumulative, types, types.itemsize, seeds, seeds.itemsize, firsts,
        limits, *_fanout_arguments(fanouts, seeds.device), replace, seeds.numel(), counts, eligible_counts,
    )  # fmt: skip
    return eligible_counts


def _gather_late(graph, order, asked, fanouts):
    """Return what to sample from: the graph, or a copy of the edges whose second time is not too early.

    Waits once for the device where it makes a copy, to learn how many edges there are.

    Returns:
        Column starts, times, weights and types; and the position in the graph of each edge of a copy, whose columns
        are the seeds.
    """
    indptr, times, earliest, cumulative, types = graph
    seeds, firsts, limits = asked
    if earliest.numel() == 0 or firsts.numel() == 0:
        return indptr, times, cumulative, types, None
    device = seeds.device
    offsets = torch.zeros(seeds.numel() + 1, dtype=torch.int64, device=device)
    torch.cumsum(_count_late(graph, asked, fanouts, False, torch.empty_like(limits)), 0, out=offsets[1:])
    size = int(offsets[-1])
    found = torch.empty(size, dtype=torch.int64, device=device)
    sums = torch.empty(size if cumulative.numel() else 0, dtype=torch.int64, device=device)
    kinds = torch.empty(size if fanouts.numel() > 1 else 0, dtype=types.dtype, device=device)
    launch(
        "gather_late_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, times, earliest, cumulative, types, types.itemsize, order, order.itemsize,
        seeds, seeds.itemsize, firsts, limits, _fanout_arguments(fanouts, device)[0], seeds.numel(), offsets,
        found, sums, kinds,
    )  # fmt: skip
    return offsets, None, sums, kinds, found
