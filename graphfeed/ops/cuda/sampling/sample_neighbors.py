"""Kernels of one hop: count the picks of each column, fill in their positions; LABOR, too."""

import numpy as np
import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch, upload
from graphfeed.ops.cuda.sampling.cached_edge_values import _cache_offsets, _copies, _typed, _values
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK


def count_neighbors(graph, hop, offsets):
    """Write the running sum of the columns' picks to `offsets` (one longer than the seeds)."""
    indptr, _, cumulative, types, _ = graph
    seeds, counts = hop.seeds, offsets[1:]
    weighted = _values(cumulative).numel() > 0
    launch(
        "count_weighted_neighbors" if weighted else "count_neighbors", seeds.numel() * (WARP_SIZE if weighted else 1),
        indptr, indptr.itemsize, _values(cumulative), _copies(cumulative), *_typed(types),
        _cache_offsets(cumulative, types), seeds, seeds.itemsize,
        *_fanout_arguments(hop.fanouts, seeds.device), hop.drawing.replace, seeds.numel(), counts,
    )  # fmt: skip
    offsets[:1] = 0
    counts.cumsum_(0)


def fill_neighbors(graph, hop, offsets, positions):
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    indptr, _, cumulative, types, _ = graph
    seeds, fanouts, columns = hop.seeds, hop.fanouts, hop.seeds.numel()
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
        *_fanout_arguments(fanouts, seeds.device), hop.drawing.replace, _walks(fanouts, _values(cumulative)),
        np.uint64(hop.keys[0]), columns, offsets, _make_tables(fanouts, positions), positions,
    )  # fmt: skip


def fill_labor_neighbors(graph, hop, offsets, positions):
    """Write as `fill_neighbors` the edges of the smallest variates, which the columns share."""
    indptr, indices, cumulative, types, _ = graph
    seeds = hop.seeds
    launch(
        "fill_labor_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, _values(indices), _values(indices).itemsize, _copies(indices), _values(cumulative),
        _copies(cumulative), *_typed(types), _cache_offsets(indices, cumulative, types), seeds, seeds.itemsize,
        *_fanout_arguments(hop.fanouts, seeds.device), hop.drawing.replace, *_labor_arguments(hop), seeds.numel(),
        offsets, torch.empty_like(positions), torch.empty_like(positions), positions,
    )  # fmt: skip


def _make_tables(fanouts, positions):
    """Return two slots per pick, all -1, as hash tables of the columns' picks; none if fan-outs are small."""
    slots = 2 * positions.numel() if int(fanouts.max()) > MAX_LOOK_BACK else 0
    return torch.full((slots,), -1, dtype=torch.int64, device=positions.device)


def _labor_arguments(hop):
    """Return the two keys, and which part of the nodes draws by the second."""
    return *np.array(hop.keys, dtype=np.uint64), np.uint64(hop.drawing.switch_threshold)


def _walks(fanouts, cumulative):
    """Tell whether some columns may be read whole: to find the edges that have a weight, or to take all of a type."""
    return cumulative.numel() > 0 or int(fanouts.min()) == -1


def _fanout_arguments(fanouts, device):
    """Return the fan-outs of all types and 0, or None and the single number."""
    if fanouts.numel() == 1:
        return None, int(fanouts)
    return upload(fanouts, device), 0
