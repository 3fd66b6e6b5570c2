"""Find the first occurrences of edges in several CSC graphs."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.structure.csc import check_starts


def mark_first(indptrs: Sequence[torch.Tensor], ids: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return which edges of several CSC graphs, such as the hops of a mini-batch, are not in any previous graph.

    The columns of a graph begin with those of the previous graph, so only edges of these can occur again. Edges of a
    column are equal if their ids are. Duplicates within a graph are kept. The result has, for each graph, one bool for
    each edge of these columns: whether it occurs for the first time. All later edges do.

    Raises:
        ValueError: Column starts decrease (if they are read) or do not end at the number of ids; or lengths differ.

    Example:
        >>> inner, outer = torch.tensor([0, 2]), torch.tensor([0, 2, 3])
        >>> mark_first([inner, outer], [torch.tensor([7, 8]), torch.tensor([8, 9, 7])])
        [tensor([], dtype=torch.bool), tensor([False,  True])]
    """
    if len(indptrs) != len(ids):
        raise ValueError(f"indptrs and ids must have the same length, but have {len(indptrs)} and {len(ids)}")
    for starts, part in zip(indptrs, ids, strict=True):
        check_vector("indptrs", starts)
        check_vector("ids", part)
        if starts.is_cpu and (not len(starts) or int(starts[-1]) != len(part)):
            check_starts(starts)
            raise ValueError(f"indptrs must end at {len(part)}, the number of its ids, but ends at {int(starts[-1])}")
    counts = [0, *(int(starts[: len(before)][-1]) for before, starts in pairwise(indptrs))][: len(ids)]
    for starts, part, count in zip(indptrs, ids, counts, strict=True):
        if not 0 <= count <= len(part):
            check_starts(starts)
    if any(counts) and not ids[0].is_cpu:
        return mark_by_sorting(indptrs, ids, counts)
    marks = [part.new_ones(count, dtype=torch.bool) for part, count in zip(ids, counts, strict=True)]
    lists = [(as_int64(starts, part), as_int64(part, part)) for starts, part in zip(indptrs, ids, strict=True)]
    for place, (own, kept) in enumerate(zip(lists, marks, strict=True)):
        for starts, part in lists[:place] if len(kept) else ():
            starts = starts[: len(own[0])]
            longest = min(int(np.diff(starts.numpy()).max(initial=0)), len(part))
            table = torch.full((4 << longest.bit_length(),), -1, device="cpu")
            module = kernels("structure.mark_first", starts, ids=part)
            if not module.clear_marks(starts, part, *own, table, kept.view(torch.uint8)):
                check_starts(starts)
                check_starts(own[0])
    return marks


def mark_by_sorting(
    indptrs: Sequence[torch.Tensor], ids: Sequence[torch.Tensor], counts: Sequence[int]
) -> list[torch.Tensor]:
    """Like `mark_first`, on any device; `counts` has the number of edges of each graph to mark."""
    sizes = list(map(len, ids))
    columns = [
        torch.arange(len(own) - 1, device=own.device).repeat_interleave(own.diff(), output_size=size)
        for own, size in zip(indptrs, sizes, strict=True)
    ]
    # An edge is identified by its column and its id; it is new in the first graph that has this pair.
    names = torch.stack([torch.cat(columns), torch.cat([part.to(torch.int64) for part in ids])])
    _, edges = torch.unique(names, dim=1, return_inverse=True)
    lists = torch.cat([torch.full_like(part, place, dtype=torch.int64) for place, part in enumerate(ids)])
    first = torch.full_like(edges, len(ids)).scatter_reduce(0, edges, lists, "amin")
    is_first = torch.split(lists == first[edges], sizes)
    return [marks[:count] for marks, count in zip(is_first, counts, strict=True)]
