"""Kernel that copies rows from index to index."""

import torch

from graphfeed.ops.cuda.rows.gather import _gather


def copy_rows(source, from_rows, row_bytes, out, to_rows, distinct):
    if not distinct:
        places = torch.arange(to_rows.numel(), device=to_rows.device)
        last = torch.full((out.numel() // row_bytes + 1,), -1, dtype=torch.int64, device=out.device)
        # Of rows with the same target the last one is copied, as by the CPU.
        last.scatter_reduce_(0, to_rows + 1, places, "amax")
        to_rows = torch.where(last[to_rows + 1] == places, to_rows, -1)
    _gather(source, from_rows, row_bytes, out, to_rows=to_rows)
