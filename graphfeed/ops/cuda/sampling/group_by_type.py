"""Kernels that group the picks of one hop by edge type."""

import torch

from graphfeed.ops.cuda.launch import launch, upload
from graphfeed.ops.cuda.rows.gather import _read_first


def group_by_type(types, positions, offsets, column_starts, destinations, bounds, indptr, grouped):
    """Sort sampled edges by edge type, inside a type by column and position; write each type's own indptr.

    `column_starts`, `destinations` and `bounds` lie on the CPU.
    """
    del destinations
    columns, device = offsets.numel() - 1, offsets.device
    starts, parts = upload(column_starts, device), upload(bounds, device)
    counts = torch.zeros(indptr.numel(), dtype=torch.int64, device=device)
    launch("sort_columns", columns, positions, offsets, columns)
    types, at = _read_first(types, positions, offsets[-1:])
    given = (types, types.itemsize, at, offsets)
    picks = (*given, columns, starts, starts.numel() - 1, parts, positions.numel())
    launch("count_types", positions.numel(), *picks, counts)
    before = torch.cumsum(counts, 0)
    launch("fill_types", positions.numel(), *picks, before, positions, grouped)
    lengths = parts[1:] - parts[:-1]
    indptr.copy_(before - torch.repeat_interleave(before[parts[:-1]], lengths, output_size=indptr.numel()))
