"""Kernels that group the picks of one hop by edge type."""

import torch

from graphfeed.ops.cuda.launch import launch, upload
from graphfeed.ops.cuda.rows.gather import _read_first
from graphfeed.ops.cuda.structure.running_sum import add_up, filled


def group_by_type(types, positions, offsets, column_starts, destinations, bounds, indptr, grouped):
    """CUDA version of the CPU function; `column_starts`, `destinations` and `bounds` are on the CPU."""
    del destinations
    starts, parts = upload(column_starts, offsets.device), upload(bounds, offsets.device)
    _group(types, positions, offsets, starts, parts, None, indptr, grouped)


def _group(types, positions, offsets, starts, parts, ranks, indptr, grouped):
    """Group by the rank of the edge type; return the number of edges before each value of `indptr`."""
    columns, room = offsets.numel() - 1, indptr.numel()
    # `positions` and `indptr` may have unused values at the end.
    counts = filled(room, 0, torch.int64, offsets.device)
    launch("sort_columns", columns, positions, offsets, columns)
    types, at = _read_first(types, positions, offsets[-1:])
    edges = positions.numel()
    given = types, at, offsets, columns, starts, starts.numel() - 1, parts, ranks, edges
    launch("count_types", edges, *given, counts)
    before = add_up(counts)
    launch("fill_types", max(edges, room), *given, before, positions, grouped, parts.numel() - 1, indptr)
    return before
