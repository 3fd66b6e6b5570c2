"""Running sums of weights, and guides into them."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_length, check_vector
from graphfeed.ops.arguments.verified import check_once, mark_valid
from graphfeed.ops.backend import as_int64, kernels, on_gpu
from graphfeed.ops.memory import buffers
from graphfeed.ops.memory.pinned import empty_locked, is_page_locked
from graphfeed.ops.structure.csc import check_columns, cut_columns, ensure_columns


def cumulate_weights(indptr: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the running sum of each column's weights in units of 2**-31 of the column's largest, int64, one per edge.

    A weight (bool, float16, bfloat16, float32 or float64) above 0 counts at least one unit, so that its edge stays
    eligible. In a mask all True values weigh the same. This is done once per graph; it takes a pass over the edges,
    with a progress bar after a second, and 8 bytes per edge, on huge pages where the system has them, on the device of
    the weights; in pinned memory if they are.

    Raises:
        ValueError: `indptr` holds no column starts, there are not as many weights, or one is negative or not finite.
    """
    check_columns("indptr", indptr)  # each time: NumPy's edits don't show, and the kernel writes by them
    dtypes = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)
    check_vector("weights", weights, dtypes)
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
    mark_valid("running sums", (indptr, out))
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


NO_GUIDES = torch.empty(0, dtype=torch.int32, device="cpu")
MISSED = 8
"""Guides are kept if more than one draw of so many would first look in the wrong place without them."""


class GuidedSums(NamedTuple):
    """Running sums of edge weights in fixed point, with a guide table that shortens the search in them."""

    cumulative: torch.Tensor
    """As `cumulate_weights` returns them."""
    guides: torch.Tensor = NO_GUIDES
    """As `guide_sums` returns them."""


def guide_sums(indptr: torch.Tensor, cumulative: torch.Tensor) -> torch.Tensor:
    """Return the guide table of running sums: where the search begins for each share of a column's weight.

    A column with n edges has n shares of equal weight. The guide of a share, int32, is the first edge that its draws
    may choose, less the number of the share. So a draw reads one guide, and one or two cache lines of sums, whatever
    the weights are (the guide table of Chen and Asau, 1974). Draws choose the same edges with guides and without; the
    table is empty if they find these without, as where weights are nearly equal.

    This is done once per graph, on the CPU; it takes a pass over the edges, with a progress bar after a second, and 4
    bytes per edge, on huge pages where the system has them.

    Raises:
        ValueError: The arrays are not column starts and running sums, as `cumulate_weights` returns them.
    """
    check_vector("cumulative", cumulative, (torch.int64,))
    ensure_cumulative(indptr, cumulative)
    guides = buffers.empty_long_lived(cumulative.numel(), torch.int32, cumulative.device)
    module = kernels("sampling.weights", cumulative, indptr=indptr)
    missed = 0
    for _, columns in cut_columns("guiding draws by weight", indptr):
        missed += module.guide_sums(as_int64(columns, cumulative), cumulative, guides)
    return guides if missed * MISSED > cumulative.numel() else NO_GUIDES


def split_sums(cumulative: torch.Tensor | GuidedSums | None) -> tuple[torch.Tensor | None, torch.Tensor]:
    if not isinstance(cumulative, GuidedSums):
        return cumulative, NO_GUIDES
    sums, guides = cumulative
    check_vector("cumulative", sums, (torch.int64,))
    check_vector("guides", guides, (torch.int32,))
    # What they say is not checked: draws are right whatever guides say.
    if guides.numel() not in (0, sums.numel()):
        raise ValueError(f"guides must have {sums.numel()} values, one for each running sum, but has {guides.numel()}")
    return sums, guides
