"""Kernel that copies rows from index to index."""

import torch

from graphfeed.ops.cuda.launch import launch
from graphfeed.ops.cuda.rows.gather import _row_shape


def copy_rows(source, from_rows, row_bytes, out, to_rows, distinct):
    """Copy rows of `row_bytes` bytes between flat byte arrays, in order; a target below 0 leaves a row out."""
    count, winners = to_rows.numel(), None
    if not distinct:
        winners = torch.full((out.numel() // row_bytes,), -1, dtype=torch.int64, device=out.device)
        launch("find_winners", count, to_rows, count, winners)
    shape = _row_shape(row_bytes, source.data_ptr(), out.data_ptr())
    launch(
        "copy_rows", count << shape[-1],
        source, from_rows, from_rows.itemsize, count, *shape, out, to_rows, winners,
    )  # fmt: skip
