"""Running sums of weights, and guide tables for searching them."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_length, check_vector
from graphfeed.ops.backend import as_int64, kernels, on_gpu
from graphfeed.ops.memory import buffers
from graphfeed.ops.memory.pinned import empty_locked, is_page_locked
from graphfeed.ops.structure.csc import check_columns, cut_columns


def cumulate_weights(indptr: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return running sums of each column's weights, in units of 2**-31 of the column's maximum, int64, one per edge.

    Weights are bool, float16, bfloat16, float32 or float64. A positive weight counts at least one unit, so that its
    edge stays eligible. This is done once per graph; it takes a pass over the edges, with a progress bar after a
    second, and 8 bytes per edge. The result is on the device of the weights, in pinned memory if they are, and on huge
    pages if the system supports them.

    Raises:
        ValueError: `indptr` is not valid, the number of weights is wrong, or a weight is negative or not finite.
    """
    check_columns("indptr", indptr)  # each time: undetected edits by NumPy would misdirect writes
    dtypes = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)
    check_vector("weights", weights, dtypes)
    check_length("weights", weights, int(indptr[-1]), "edge")
    # Kernels compiled by CuPy flush float32 below 2**-126 to 0, which would lose the weight.
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
    for _, columns in cut_columns("accumulating weights", indptr):
        module.cumulate_weights(as_int64(columns, weights), exact, out)
    return out


def check_cumulative(indptr: torch.Tensor, cumulative: torch.Tensor) -> None:
    """Raise unless there is a running sum per edge that restarts in each column and never decreases."""
    check_vector("cumulative", cumulative, (torch.int64,))
    check_columns("indptr", indptr)
    check_length("cumulative", cumulative, int(indptr[-1]), "edge")
    starts = indptr[:-1][indptr.diff() > 0].to(torch.int64)
    falls = torch.cat([cumulative[:1] < 0, cumulative[1:] < cumulative[:-1]])
    # The first sum of a column is compared with 0, not with the previous column.
    falls[starts] = cumulative[starts] < 0
    if bool(falls.any()):
        edge = int(falls.nonzero()[0])
        raise ValueError(
            f"cumulative must never decrease inside a column, but is {int(cumulative[edge])} at edge {edge}; "
            "compute it with cumulate_weights"
        )


NO_GUIDES = torch.empty(0, dtype=torch.int32, device="cpu")
MISSED = 8
"""Guides are kept if more than one in `MISSED` draws would begin its search in the wrong place without them."""


class GuidedSums(NamedTuple):
    """Fixed-point running sums of edge weights, with a guide table that shortens the search."""

    cumulative: torch.Tensor
    """int64: the running sums, as `cumulate_weights` returns them."""
    guides: torch.Tensor = NO_GUIDES
    """int32: the guide table, as `guide_sums` returns it, or empty."""


def guide_sums(indptr: torch.Tensor, cumulative: torch.Tensor) -> torch.Tensor:
    """Return a guide table of running sums, int32: where the search begins for each share of a column's weight.

    The weight of a column with n edges is divided into n equal shares. The guide of a share is the first edge that a
    draw in it can select, minus the index of the share. So a draw reads one guide and one or two cache lines of sums,
    whatever the weights are (the guide table of Chen and Asau, 1974). Draws select the same edges with and without
    guides. The table is empty if it wouldn't help, as with nearly equal weights.

    This is done once per graph, on the CPU; it takes a pass over the edges, with a progress bar after a second, and 4
    bytes per edge, on huge pages if the system supports them.

    Raises:
        ValueError: The arrays are not valid column starts and running sums.
    """
    check_vector("cumulative", cumulative, (torch.int64,))
    check_columns("indptr", indptr)
    check_length("cumulative", cumulative, int(indptr[-1]), "edge")
    guides = buffers.empty_long_lived(cumulative.numel(), torch.int32, cumulative.device)
    module = kernels("sampling.weights", cumulative, indptr=indptr)
    missed = 0
    for _, columns in cut_columns("building guide tables", indptr):
        missed += module.guide_sums(as_int64(columns, cumulative), cumulative, guides)
    return guides if missed * MISSED > cumulative.numel() else NO_GUIDES


def as_guided(cumulative: torch.Tensor | GuidedSums) -> GuidedSums:
    """Return contiguous running sums with guides, which may be empty."""
    sums, guides = cumulative if isinstance(cumulative, GuidedSums) else (cumulative, NO_GUIDES)
    check_vector("cumulative", sums, (torch.int64,))
    check_vector("guides", guides, (torch.int32,))
    # The values of guides are not checked: any guides yield correct draws.
    if guides.numel() not in (0, sums.numel()):
        raise ValueError(f"guides must have {sums.numel()} values, one for each running sum, but has {guides.numel()}")
    return GuidedSums(sums.contiguous(), guides.contiguous())
