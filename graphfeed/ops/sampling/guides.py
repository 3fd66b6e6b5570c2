"""Guides to running sums, by which draws find their edges where few edges have most of the weight."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.csc import cut_columns

NO_GUIDES = torch.empty(0, dtype=torch.int32)
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

    A column with n edges has n shares of equal weight. The guide of a share is the first edge that its draws may
    choose, less the number of the share. So a draw reads one guide, and one or two cache lines of sums, whatever the
    weights are; this is the guide table of Chen and Asau (1974). Without guides it looks where its edge would be if all
    weights were equal, and searches from there. Draws choose the same edges with guides and without.

    This is done once per graph; it takes a pass over the edges, with a progress bar after a second, and 4 bytes per
    edge, on huge pages where the system has them.

    Args:
        indptr: Column starts, shape (nodes + 1,), on the CPU.
        cumulative: Fixed-point weights, as `cumulate_weights` returns them.

    Returns:
        int32, one per edge. Empty if draws find their edges without them, as where weights are nearly equal.

    Raises:
        TypeError: The weights are not int64.
        ValueError: The arrays are not column starts and running sums.
    """
    check_vector("cumulative", cumulative, (torch.int64,))
    ensure_cumulative(indptr, cumulative)
    guides = buffers.empty_long_lived(cumulative.numel(), torch.int32, cumulative.device)
    module = kernels("sampling.guides", cumulative, indptr=indptr)
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
