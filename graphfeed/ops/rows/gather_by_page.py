"""Gather numbers of a memory-mapped file whose pages may not be in memory."""

import mmap

import numpy as np
import torch

from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.pages import CHUNK, DIGIT_BITS, Order
from graphfeed.ops.memory import buffers

PAGE_BITS = mmap.PAGESIZE.bit_length() - 1


def gather_by_page(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return `values[positions]` of a memory-mapped array, reading its pages in order.

    If all pages are in memory, `gather_unchecked` is faster, since it doesn't sort.

    Example:
        >>> gather_by_page(torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
        tensor([7, 5])
    """
    out = buffers.empty(positions.numel(), values.dtype)
    module = kernels("rows.gather_by_page", values, positions=positions)
    module.gather_by_page(values, positions.contiguous(), PAGE_BITS, new_order(positions.numel()), out)
    return out


def new_order(most: int = CHUNK) -> Order:
    # No larger than the number of values.
    keys, spare = (np.empty(min(most, CHUNK), np.uint64) for _ in range(2))
    return Order(keys, spare, np.empty(1 << DIGIT_BITS, np.int64))
