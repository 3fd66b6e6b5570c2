"""Gathers ids in as few bits as they need."""

import torch

from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows.gather import take_rows


def take_small(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gather numbers without checking the index: int64 as int32 if all that are gathered are from 0 to 2**31 - 1.

    Args:
        values: 1-D; those of another dtype keep it.
        index: int64, 1-D.

    Example:
        >>> values = torch.tensor([7, 1 << 40])
        >>> take_small(values, torch.tensor([0])), take_small(values, torch.tensor([0, 1]))
        (tensor([7], dtype=torch.int32), tensor([            7, 1099511627776]))
    """
    if values.dtype != torch.int64:
        return take_rows(values, index)
    out = buffers.empty(index.numel(), torch.int32)
    module = kernels("rows.gather_small", index, values=values)
    bits = module.gather_small(values.contiguous(), index.contiguous(), out)
    return out if 0 <= bits < 1 << 31 else take_rows(values, index)
