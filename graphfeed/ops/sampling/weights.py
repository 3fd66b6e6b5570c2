"""Sampling weights as fixed-point running sums, so that every later decision compares integers."""

import torch

from graphfeed.ops.backend import as_kernel_args, kernels
from graphfeed.ops.checks import check_vector

WEIGHT_DTYPES = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def cumulate_weights(indptr: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the running sum of each column's weights in units of 2**-31 of the column's largest.

    A weight above 0 counts at least one unit, so that its edge stays eligible. In a mask all True values weigh the
    same. This is done once per graph; it takes a pass over the edges and 8 bytes per edge.

    Args:
        indptr: Column starts, shape (nodes + 1,).
        weights: One per edge: bool, float16, bfloat16, float32 or float64; finite and not negative.

    Returns:
        int64, one per edge, on the device of the weights; in pinned memory if they are.

    Raises:
        ValueError: The number of weights is wrong, or a weight is negative, infinite or not a number.
    """
    check_vector("indptr", indptr)
    check_vector("weights", weights, WEIGHT_DTYPES)
    if weights.numel() != int(indptr[-1]):
        raise ValueError(f"weights must have {int(indptr[-1])} values, one per edge, but has {weights.numel()}")
    exact = weights if weights.dtype in (torch.bool, torch.float64) else weights.to(torch.float32)
    if exact.is_floating_point() and exact.numel():
        low, high = (float(value) for value in torch.aminmax(exact))
        if not (low >= 0 and high < float("inf")):
            raise ValueError(f"weights must be finite and not negative, but range from {low} to {high}")
    out = torch.empty(weights.numel(), dtype=torch.int64, device=weights.device, pin_memory=weights.is_pinned())
    module = kernels("sampling.weights", weights, indptr=indptr)
    module.cumulate_weights(*as_kernel_args(weights, indptr, exact.contiguous(), out))
    return out
