"""Assigns some nodes to the parts where most of their neighbours are."""

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import kernels

FULL = torch.iinfo(torch.int64).max


def place_nodes(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    parts: torch.Tensor,
    loads: torch.Tensor,
    first: int,
    step: int,
    limit: int,
) -> int:
    """Give each node of a range the part where most of its neighbours are, weighted by the room that is left there.

    The nodes of a block are taken out of their parts together, and see where all others are, and where they themselves
    were. Where more of them want to a part than it has room for, those that want it most are first, then those with
    lower ids; the others go to the next part that they want to. Nodes without neighbours in a part with room fill the
    emptiest parts to one level. It takes time by edges and by the logarithm of the number of parts.

    Args:
        indptr: The column starts of the nodes of the range, shape (nodes + 1,), as indexes of `indices`.
        indices: The source of each edge of the whole graph, int32 or int64.
        parts: int32: the part of each node of the graph, or -1. Those of the range are written.
        loads: int64: how many nodes each part has, of those for which the limit holds. Written.
        first: The first node of the range.
        step: How many nodes a block has.
        limit: How many nodes a part may have.

    Returns:
        How many nodes of the range have another part than before.

    Raises:
        IndexError: A source is no node.
        TypeError: A tensor has another dtype.
        ValueError: Columns that fall, or end behind the edges; a range behind the nodes.
    """
    check_vector("indptr", indptr)
    check_vector("indices", indices)
    check_vector("parts", parts, (torch.int32,))
    check_vector("loads", loads, (torch.int64,))
    starts = indptr.numpy().astype(np.int64, copy=False)
    size = starts.size - 1
    degrees = np.diff(starts)
    if size < 0 or starts[0] < 0 or starts[-1] > indices.numel() or (size and degrees.min() < 0):
        raise ValueError(f"indptr must ascend from 0 or more to {indices.numel()} at most")
    if first < 0 or first + size > parts.numel():
        raise ValueError(f"the range must lie in 0 .. {parts.numel()}, but is {first} .. {first + size}")
    tree = tree_of(loads.numpy())
    step = min(step, max(size, 1))
    # A node has no more parts with neighbours than parts, and no more than edges.
    most = np.add.reduceat(np.minimum(degrees, loads.numel()), np.arange(0, size, step)).max() if size else 0
    module = kernels("structure.place_nodes", parts, indptr=indptr, indices=indices, loads=loads)
    scratch = module.Scratch(
        np.zeros(loads.numel(), np.int64), np.empty(most, np.int32), np.empty(most, np.int64),
        *np.zeros((5, step + 1), np.int64),
    )  # fmt: skip
    moved: int = module.place_nodes(starts, indices.contiguous(), first, step, limit, parts, tree, scratch)
    if moved < 0:
        raise IndexError(f"indices must lie in 0 .. {parts.numel() - 1}, but hold {int(indices[-1 - moved])}")
    loads.copy_(torch.from_numpy(tree[tree.size // 2 :][: loads.numel()]))
    return moved


def tree_of(loads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the loads of parts as the leaves of a tree whose nodes hold the least load below them."""
    width = 1 << max(loads.size - 1, 0).bit_length()
    tree = np.full(2 * width, FULL, dtype=np.int64)
    tree[width : width + loads.size] = loads
    for start in (1 << level for level in reversed(range(width.bit_length() - 1))):
        tree[start : 2 * start] = tree[2 * start : 4 * start].reshape(-1, 2).min(axis=1)
    return tree
