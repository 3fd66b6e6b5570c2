"""Look up edges among pairs of nodes."""

import torch

from graphfeed.ops.arguments import ID_DTYPES, NOTHING, check_ids, check_vector
from graphfeed.ops.arguments.verified import has_passed, trust
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import check_starts


def match_pairs(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    destinations: torch.Tensor,
    pairs: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the positions of the edges that are among pairs of nodes; exact for all 64-bit ids.

    A column costs a hash look-up, and so does each edge of a column that is the destination of a pair. The two tables
    take 16 to 32 bytes per pair each.

    Args:
        indptr: Where each column's edges start, shape (columns + 1,).
        indices: Row of each edge.
        destinations: Id of each column.
        pairs: Source and destination ids, shape (N, 2); duplicates are allowed.
        rows: Id of each row; None if `indices` are ids.

    Returns:
        int64, ascending.

    Raises:
        TypeError: Ids are neither int32 nor int64.
        ValueError: The pairs have another shape, `indptr` is none, the lengths of arrays don't match, or an edge has no
            row.

    Example:
        >>> indptr, sources, destinations = torch.tensor([0, 2, 3]), torch.tensor([5, 7, 5]), torch.tensor([1, 2])
        >>> match_pairs(indptr, sources, destinations, torch.tensor([[7, 1], [7, 2]])).tolist()
        [1]
    """
    ids = NOTHING.to(indices) if rows is None else rows
    for name, vector in (("indptr", indptr), ("indices", indices), ("destinations", destinations), ("rows", ids)):
        check_vector(name, vector)
    check_starts(indptr)
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(f"pairs must have shape (N, 2), sources and destinations, but has {tuple(pairs.shape)}")
    if pairs.dtype not in ID_DTYPES:
        raise TypeError(f"pairs must be torch.int32 or torch.int64, but is {pairs.dtype}; convert it with .to(...)")
    is_known = not indptr.is_cpu and has_passed(("starts", indices.numel()), (indptr,))  # to end with the edges
    if indptr.numel() != destinations.numel() + 1 or not (is_known or int(indptr[-1]) == indices.numel()):
        raise ValueError(
            f"indptr must have a column for each of {destinations.numel()} destinations and end with the number of "
            f"indices, {indices.numel()}, but has {indptr.numel() - 1} columns and ends with {int(indptr[-1])}"
        )
    if rows is not None:
        check_ids("indices", indices, rows.numel())
    if pairs.shape[0] == 0:
        return torch.empty(0, dtype=torch.int64, device=indices.device)
    module = kernels("structure.match_pairs", indices, indptr=indptr, destinations=destinations, pairs=pairs, rows=ids)
    if not indices.dtype == ids.dtype == destinations.dtype:
        indices, ids, destinations = (part.to(torch.int64) for part in (indices, ids, destinations))
    tables = torch.full((2, 1 << (2 * pairs.shape[0]).bit_length()), -1, dtype=torch.int64, device=indices.device)
    out = buffers.empty(indices.numel(), torch.int64, indices.device)
    arrays = (part.contiguous() for part in (indices, ids, destinations, pairs.to(torch.int64), *tables, out))
    places = out[: int(module.match_pairs(as_int64(indptr, indices), *arrays))].clone()
    if not places.is_cpu:
        trust(("places", indices.numel()), (places,))  # then `delete_rows` does not wait for the GPU to check them
    return places
