"""Find the edges that are among pairs of nodes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from graphfeed.ops.arguments import ID_DTYPES, NOTHING, check_ids, check_tensors, check_vector, note, noted
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import check_starts


class PairedEdges(NamedTuple):
    """The arguments of `match_pairs`."""

    indptr: torch.Tensor
    indices: torch.Tensor
    destinations: torch.Tensor
    pairs: torch.Tensor
    rows: torch.Tensor | None = None


def match_pairs(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    destinations: torch.Tensor,
    pairs: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the positions of the edges that are among `pairs`, int64, ascending. Exact for all 64-bit ids.

    Each column costs a hash lookup, and so does each edge of a column that is the destination of a pair. Each of the
    two hash tables takes 16 to 32 bytes per pair.

    Args:
        indptr, indices: Column starts, and the row of each edge.
        destinations, rows: The id of each column, and of each row; `rows` is None if `indices` are ids.
        pairs: Source and destination ids, shape (N, 2); duplicates are allowed.

    Raises:
        ValueError: The pairs have another shape, the arrays are not consistent, or an edge has no row.

    Example:
        >>> indptr, sources, destinations = torch.tensor([0, 2, 3]), torch.tensor([5, 7, 5]), torch.tensor([1, 2])
        >>> match_pairs(indptr, sources, destinations, torch.tensor([[7, 1], [7, 2]])).tolist()
        [1]
    """
    return match_pairs_of_each([PairedEdges(indptr, indices, destinations, pairs, rows)])[0]


def match_pairs_of_each(parts: Sequence[PairedEdges]) -> list[torch.Tensor]:
    """Call `match_pairs` for several graphs, and synchronize once with a GPU."""
    found = [match_pairs_deferred(*part) for part in parts]
    there = [count for _, count in found if isinstance(count, torch.Tensor)]
    counts = iter(torch.cat(there).tolist() if there else ())
    return [end_match(out, count if isinstance(count, int) else next(counts)) for out, count in found]


def match_pairs_deferred(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    destinations: torch.Tensor,
    pairs: torch.Tensor,
    rows: torch.Tensor | None,
) -> tuple[torch.Tensor, int | torch.Tensor]:
    """Return a tensor that begins with the positions of the edges, and their number (on a GPU, as a tensor)."""
    given = (("indptr", indptr), ("indices", indices), ("destinations", destinations), ("rows", rows))
    for name, vector in given if rows is not None else given[:-1]:
        check_vector(name, vector)
    ids = NOTHING.to(indices) if rows is None else rows
    check_tensors(pairs=pairs)
    check_starts(indptr)
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(f"pairs must have shape (N, 2), sources and destinations, but has {tuple(pairs.shape)}")
    if pairs.dtype not in ID_DTYPES:
        raise TypeError(f"pairs must be torch.int32 or torch.int64, but is {pairs.dtype}; convert it with .to(...)")
    is_known = noted("ends at", indptr) == indices.numel()
    if indptr.numel() != destinations.numel() + 1 or not (is_known or int(indptr[-1]) == indices.numel()):
        raise ValueError(
            f"indptr must have a column for each of {destinations.numel()} destinations and end with the number of "
            f"indices, {indices.numel()}, but has {indptr.numel() - 1} columns and ends with {int(indptr[-1])}"
        )
    if rows is not None:
        check_ids("indices", indices, rows.numel())
    if pairs.shape[0] == 0 or indices.numel() == 0:
        return torch.empty(0, dtype=torch.int64, device=indices.device), 0
    module = kernels("structure.match_pairs", indices, indptr=indptr, destinations=destinations, pairs=pairs, rows=ids)
    if not indices.dtype == ids.dtype == destinations.dtype:
        indices, ids, destinations = (part.to(torch.int64) for part in (indices, ids, destinations))
    tables = torch.full((2, 1 << (2 * pairs.shape[0]).bit_length()), -1, dtype=torch.int64, device=indices.device)
    out = buffers.empty(indices.numel(), torch.int64, indices.device)
    arrays = [part.contiguous() for part in (indices, ids, destinations, pairs.to(torch.int64), *tables)]
    return out, module.match_pairs(as_int64(indptr, indices), *arrays, out)


def end_match(out: torch.Tensor, count: int) -> torch.Tensor:
    # `out` has an element per edge, and begins with the positions.
    if out.is_cpu:
        # Copy them, so that the large buffer returns to the pool.
        return out[:count].clone()
    note("ascend below", places := out[:count], out.numel())  # for `delete_rows`
    return places
