"""Kernel that copies rows from index to index."""

import torch

from graphfeed.ops.cuda.rows.gather import _gather


def copy_rows(source, from_rows, row_bytes, out, to_rows, distinct):
    """Copy rows of `row_bytes` bytes between flat byte arrays, in order; a target below 0 leaves a row out."""
    if not distinct:
        places = torch.arange(to_rows.numel(), device=to_rows.device)
        last = torch.full((out.numel() // row_bytes + 1,), -1, dtype=torch.int64, device=out.device)
        last.scatter_reduce_(0, to_rows + 1, places, "amax")
        to_rows = torch.where(last[to_rows + 1] == places, to_rows, -1)
    _gather(source, from_rows, row_bytes, out, to_rows=to_rows)
