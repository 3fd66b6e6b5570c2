"""Add a number to all values of a column."""

import torch

from graphfeed.ops.arguments import check_length, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import check_columns


def shift_columns(
    offsets: torch.Tensor, values: torch.Tensor, shifts: torch.Tensor, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """Return values, which lie column by column, each plus the shift of its column. It reads and writes each once.

    Args:
        offsets: int64: where each column starts, one longer than there are columns.
        values: int64.
        shifts: int64, one per column.
        dtype: int64, or int32 if the caller knows that the sums fit.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: The tensors don't fit together.

    Example:
        >>> shift_columns(torch.tensor([0, 2, 3]), torch.tensor([4, 5, 6]), torch.tensor([10, 20]))
        tensor([14, 15, 26])
    """
    for name, tensor in (("offsets", offsets), ("values", values), ("shifts", shifts)):
        check_vector(name, tensor, (torch.int64,))
    if dtype not in (torch.int32, torch.int64):
        raise TypeError(f"dtype must be int32 or int64, but is {dtype}")
    check_columns("offsets", offsets)
    check_length("shifts", shifts, offsets.numel() - 1, "column")
    check_length("values", values, int(offsets[-1]), "place up to the last offset")
    out = buffers.empty(values.numel(), dtype)
    module = kernels("structure.shift_columns", values, offsets=offsets, shifts=shifts)
    module.shift_columns(offsets.contiguous(), shifts.contiguous(), values.contiguous(), out)
    return out
