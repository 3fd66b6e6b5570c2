"""Kernels of one hop: count the picks of each column, fill in their positions."""

import numpy as np
import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch, upload
from graphfeed.ops.cuda.sampling.cached_edge_values import _cache_offsets, _copies, _typed, _values
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK


def count_neighbors(indptr, cumulative, types, seeds, fanouts, replace, offsets):
    """Write the running sum of the columns' picks to `offsets` (one longer than `seeds`)."""
    counts = offsets[1:]
    weighted = _values(cumulative).numel() > 0
    launch(
        "count_weighted_neighbors" if weighted else "count_neighbors", seeds.numel() * (WARP_SIZE if weighted else 1),
        indptr, indptr.itemsize, _values(cumulative), _copies(cumulative), *_typed(types),
        _cache_offsets(cumulative, types), seeds, seeds.itemsize,
        *_fanout_arguments(fanouts, seeds.device), replace, seeds.numel(), counts,
    )  # fmt: skip
    offsets[:1] = 0
    counts.cumsum_(0)


def fill_neighbors(indptr, cumulative, types, seeds, fanouts, replace, key, offsets, positions):
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    columns = seeds.numel()
    if int(fanouts.max()) == -1 and _values(cumulative).numel() > 0:
        launch(
            "fill_eligible_neighbors", WARP_SIZE * columns,
            indptr, indptr.itemsize, _values(cumulative), _copies(cumulative), _cache_offsets(cumulative), seeds,
            seeds.itemsize, columns, offsets, positions,
        )  # fmt: skip
        return
    if int(fanouts.max()) == -1:
        launch(
            "fill_whole_columns", positions.numel(),
            indptr, indptr.itemsize, seeds, seeds.itemsize, columns, offsets, positions.numel(), positions,
        )  # fmt: skip
        return
    launch(
        "fill_neighbors", columns,
        indptr, indptr.itemsize, _values(cumulative), _copies(cumulative), *_typed(types),
        _cache_offsets(cumulative, types), seeds, seeds.itemsize,
        *_fanout_arguments(fanouts, seeds.device), replace, _walks(fanouts, _values(cumulative)), np.uint64(key),
        columns, offsets,
        _make_tables(fanouts, positions), positions,
    )  # fmt: skip


def _make_tables(fanouts, positions):
    """Return two slots per pick, all -1, as hash tables of the columns' picks; none if fan-outs are small."""
    slots = 2 * positions.numel() if int(fanouts.max()) > MAX_LOOK_BACK else 0
    return torch.full((slots,), -1, dtype=torch.int64, device=positions.device)


def _walks(fanouts, cumulative):
    """Tell whether some columns may be read whole: to find the edges that have a weight, or to take all of a type."""
    return cumulative.numel() > 0 or int(fanouts.min()) == -1


def _fanout_arguments(fanouts, device):
    """Return the fan-outs of all types and 0, or None and the single number."""
    if fanouts.numel() == 1:
        return None, int(fanouts)
    return upload(fanouts, device), 0
