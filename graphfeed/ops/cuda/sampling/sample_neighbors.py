"""Kernels of one hop: count the picks of each column, fill in their positions, group them by edge type."""

import numpy as np
import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch, upload
from graphfeed.ops.cuda.sampling.cached_edge_values import _cache_offsets, _copies, _typed, _values
from graphfeed.ops.sampling.sample_neighbors import MAX_LOOK_BACK


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


def fill_neighbors(indptr, cumulative, types, seeds, fanouts, replace, key, offsets, table, positions):
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order.

    `table` is not used: each column has its own.
    """
    del table
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


def group_by_type(types, positions, offsets, column_starts, destinations, bounds, indptr, grouped):
    """Sort sampled edges by edge type, inside a type by column and position; write each type's own indptr.

    Args:
        types: Edge type of each edge of the graph, perhaps with cached columns.
        positions: Sampled edges, column by column.
        offsets: Where each column's edges start in `positions`.
        column_starts: Where the columns of each node type start; on the CPU.
        destinations: Destination node type of each edge type; on the CPU.
        bounds: Where each edge type's indptr starts in `indptr`; on the CPU; written: nothing.
        indptr: Written: for each edge type the running count of its columns' edges.
        grouped: Written: the edges, type by type.
    """
    del destinations
    columns, device = offsets.numel() - 1, offsets.device
    starts, parts = upload(column_starts, device), upload(bounds, device)
    counts = torch.zeros(indptr.numel(), dtype=torch.int64, device=device)
    given = (*_typed(types), _cache_offsets(types), positions, offsets)
    picks = (*given, columns, starts, starts.numel() - 1, parts, positions.numel())
    launch("sort_columns", columns, positions, offsets, columns)
    launch("count_types", positions.numel(), *picks, counts)
    before = torch.cumsum(counts, 0)
    launch("fill_types", positions.numel(), *picks, before, grouped)
    lengths = parts[1:] - parts[:-1]
    indptr.copy_(before - torch.repeat_interleave(before[parts[:-1]], lengths, output_size=indptr.numel()))


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
