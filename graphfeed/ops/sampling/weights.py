"""Sampling weights as fixed-point running sums, so that every later decision compares integers."""

import torch

from graphfeed.ops.arguments import check_length, check_vector
from graphfeed.ops.arguments.verified import check_once, trust
from graphfeed.ops.backend import as_int64, kernels, on_gpu
from graphfeed.ops.memory import buffers
from graphfeed.ops.memory.pinned import empty_locked, is_page_locked
from graphfeed.ops.structure.csc import check_columns, cut_columns, ensure_columns

WEIGHT_DTYPES = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def cumulate_weights(indptr: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the running sum of each column's weights in units of 2**-31 of the column's largest.

    A weight above 0 counts at least one unit, so that its edge stays eligible. In a mask all True values weigh the
    same. This is done once per graph; it takes a pass over the edges, with a progress bar after a second,
    and 8 bytes per edge, on huge pages where the system has them.

    Args:
        indptr: Column starts, shape (nodes + 1,).
        weights: One per edge: bool, float16, bfloat16, float32 or float64; finite and not negative.

    Returns:
        int64, one per edge, on the device of the weights; in pinned memory if they are.

    Raises:
        ValueError: `indptr` holds no column starts, the number of weights is wrong, or a weight is negative, infinite
            or not a number.
    """
    check_columns("indptr", indptr)  # each time: NumPy's edits don't show, and the kernel writes by them
    check_vector("weights", weights, WEIGHT_DTYPES)
    check_length("weights", weights, int(indptr[-1]), "edge")
    # CuPy compiles kernels in which float32 below 2**-126 is 0; the weight would be lost.
    floats = torch.float64 if on_gpu(weights) else torch.float32
    exact = weights if weights.dtype == torch.float64 else weights.to(floats)
    if exact.is_floating_point() and exact.numel():
        low, high = (float(value) for value in torch.aminmax(exact))
        if not (low >= 0 and high < float("inf")):
            raise ValueError(f"weights must be finite and not negative, but range from {low} to {high}")
    if is_page_locked(weights):
        out = empty_locked(weights.shape, torch.int64)
    else:
        out = buffers.empty_long_lived(weights.numel(), torch.int64, weights.device)
    module, exact = kernels("sampling.weights", weights, indptr=indptr), exact.contiguous()
    for _, columns in cut_columns("adding up weights", indptr):
        module.cumulate_weights(as_int64(columns, weights), exact, out)
    trust("running sums", (indptr, out))
    return out


def ensure_cumulative(indptr: torch.Tensor, cumulative: torch.Tensor) -> None:
    """What `cumulate_weights` has returned is not checked."""
    check_once("running sums", (indptr, cumulative), lambda: check_cumulative(indptr, cumulative))


def check_cumulative(indptr: torch.Tensor, cumulative: torch.Tensor) -> None:
    """Raise unless there is a running sum per edge, which starts anew in each column and never falls."""
    check_vector("cumulative", cumulative, (torch.int64,))
    ensure_columns("indptr", indptr)
    check_length("cumulative", cumulative, int(indptr[-1]), "edge")
    starts = indptr[:-1][indptr.diff() > 0].to(torch.int64)
    falls = torch.cat([cumulative[:1] < 0, cumulative[1:] < cumulative[:-1]])
    # The first sum of a column is held against 0, not against the column before it.
    falls[starts] = cumulative[starts] < 0
    if bool(falls.any()):
        edge = int(falls.nonzero()[0])
        raise ValueError(
            f"cumulative must never fall inside a column, but is {int(cumulative[edge])} at edge {edge}; "
            "cumulate_weights makes it"
        )
