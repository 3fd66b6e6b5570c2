"""Look up edges among pairs of nodes."""

import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels
from graphfeed.ops.checks import ID_DTYPES, check_vector


def match_pairs(
    indptr: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor, pairs: torch.Tensor
) -> torch.Tensor:
    """Tell which edges are among pairs of nodes; exact for all 64-bit ids.

    Costs a hash look-up an edge, and a table of some 16 to 32 bytes a pair.

    Args:
        indptr: Where each column's edges start, shape (columns + 1,).
        sources: Source id of each edge.
        destinations: Id of each column.
        pairs: Source and destination ids, shape (N, 2); doubles are no harm.

    Returns:
        bool, one an edge.

    Raises:
        TypeError: Ids that are neither int32 nor int64.
        ValueError: Pairs of another shape, or arrays whose lengths don't fit.

    Example:
        >>> indptr, sources, destinations = torch.tensor([0, 2, 3]), torch.tensor([5, 7, 5]), torch.tensor([1, 2])
        >>> match_pairs(indptr, sources, destinations, torch.tensor([[7, 1], [7, 2]])).tolist()
        [False, True, False]
    """
    for name, ids in (("indptr", indptr), ("sources", sources), ("destinations", destinations)):
        check_vector(name, ids)
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(f"pairs must have shape (N, 2), sources and destinations, but has {tuple(pairs.shape)}")
    if pairs.dtype not in ID_DTYPES:
        raise TypeError(f"pairs must be torch.int32 or torch.int64, but is {pairs.dtype}; convert it with .to(...)")
    if indptr.numel() != destinations.numel() + 1 or int(indptr[-1]) != sources.numel():
        raise ValueError(
            f"indptr must have a column for each of {destinations.numel()} destinations and end with the number of "
            f"sources, {sources.numel()}, but has {indptr.numel() - 1} columns and ends with {int(indptr[-1])}"
        )
    table = torch.full((1 << (2 * pairs.shape[0]).bit_length(),), -1, dtype=torch.int64)
    out = buffers.empty(sources.numel(), torch.bool)
    kernels("match_pairs", sources).match_pairs(
        indptr.contiguous().numpy(), sources.contiguous().numpy(), destinations.contiguous().numpy(),
        pairs.to(torch.int64).contiguous().numpy(), table.numpy(), out.numpy(),
    )  # fmt: skip
    return out
