"""Membership: which ids are among others."""

import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels, on_gpu
from graphfeed.ops.checks import check_vector


def isin(elements: torch.Tensor, test_elements: torch.Tensor) -> torch.Tensor:
    """Tell of each element whether it is among the test elements, by a hash look-up each. A GPU sorts instead.

    Args:
        elements: int32 or int64, 1-D.
        test_elements: int32 or int64, 1-D.

    Returns:
        bool, shape (len(elements),).

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A tensor has another number of dimensions.

    Example:
        >>> isin(torch.tensor([5, -1, 7]), torch.tensor([7, 5, 9]))
        tensor([ True, False,  True])
    """
    check_vector("elements", elements)
    check_vector("test_elements", test_elements)
    module = kernels("structure.isin", elements, test_elements=test_elements)
    out = buffers.empty(elements.numel(), torch.bool, elements.device)
    slots = 0 if on_gpu(elements) else 1 << (2 * test_elements.numel() + 1).bit_length()
    table = torch.full((slots,), -1, dtype=torch.int64)
    module.isin(*as_kernel_args(elements, elements.contiguous(), test_elements.contiguous(), table, out))
    return out
