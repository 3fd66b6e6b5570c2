"""Kernel of one hop of LABOR: each column takes the neighbours whose shared variates are smallest."""

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch
from graphfeed.ops.cuda.sampling.cached_edge_values import _cache_offsets, _copies, _typed, _values
from graphfeed.ops.cuda.sampling.sample_neighbors import _fanout_arguments


def fill_labor_neighbors(
    indptr, indices, cumulative, types, seeds, fanouts, replace, keys, switch_threshold, offsets, positions
):  # fmt: skip
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    launch(
        "fill_labor_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, _values(indices), _values(indices).itemsize, _copies(indices), _values(cumulative),
        _copies(cumulative), *_typed(types), _cache_offsets(indices, cumulative, types), seeds, seeds.itemsize,
        *_fanout_arguments(fanouts, seeds.device), replace, *keys, switch_threshold, seeds.numel(), offsets,
        torch.empty_like(positions), torch.empty_like(positions), positions,
    )  # fmt: skip
