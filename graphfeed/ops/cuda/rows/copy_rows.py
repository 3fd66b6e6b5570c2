"""Kernel that copies rows from index to index."""

import torch

from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.cuda.rows.gather import _gather


def copy_rows(source, from_rows, row_bytes, out, to_rows, distinct):
    """Copy rows of `row_bytes` bytes between flat byte arrays, in order; a target below 0 leaves a row out."""
    winners = None
    if not distinct:
        winners = torch.full((out.numel() // row_bytes,), -1, dtype=torch.int64, device=out.device)
        launch("find_winners", to_rows.numel(), to_rows, to_rows.numel(), winners)
    _gather(source, from_rows, row_bytes, out, to_rows=to_rows, winners=winners)
