"""Kernel of one temporal hop of LABOR: the eligible edges whose neighbours' shared variates are smallest."""

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch
from graphfeed.ops.cuda.sampling.sample_neighbors import _fanout_arguments
from graphfeed.ops.cuda.sampling.temporal_sample_neighbors import _gather_late


def fill_temporal_labor_neighbors(
    indptr, times, earliest, cumulative, types, indices, order, seeds, firsts, limits, fanouts, replace, keys,
    switch_threshold, offsets, positions,
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    graph = (indptr, times, earliest, cumulative, types)
    indptr, times, cumulative, types, found = _gather_late(graph, order, (seeds, firsts, limits), fanouts)
    launch(
        "fill_temporal_labor_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, times, cumulative, types, types.itemsize, indices, indices.itemsize, order,
        order.itemsize, found, seeds, seeds.itemsize, firsts, limits, *_fanout_arguments(fanouts, seeds.device),
        replace, *keys, switch_threshold, seeds.numel(), offsets, torch.empty_like(positions),
        torch.empty_like(positions), positions,
    )  # fmt: skip
