"""Assigns some nodes to the parts where most of their neighbours are."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import kernels

FULL = torch.iinfo(torch.int64).max
"""Pads the loads of the parts to a power of two; no part is as full."""


class Items(NamedTuple):
    """The items of nodes, such as the nodes and edges to train on, of which parts get as many each."""

    counts: torch.Tensor
    """int64: how many items each node of a range has."""
    loads: torch.Tensor
    """int64: how many each part has, of those for which the limit holds. Written."""
    limit: int
    """How many a part may have."""


def place_nodes(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    parts: torch.Tensor,
    loads: torch.Tensor,
    first: int,
    limit: int,
    items: Items | None = None,
) -> int:
    """Assign each node of a range to the part with most of its neighbours, weighted by the capacity left there.

    One node after the other is taken out of its part, and sees where all others are. Of equally good parts it gets the
    first; without neighbours in a part with room, the emptiest. A node with items needs room for these, too, by which
    it is weighted then; without such a part, it gets that with the fewest. It takes time by edges and by log(parts).
    Return how many nodes of the range have another part than before.

    Args:
        indptr: The column starts of the nodes of the range, as indexes of the whole graph's `indices`.
        parts: int32: the part of each node of the graph, or -1. Those of the range, from `first` on, are written.
        loads: int64: how many nodes each part has, of those for which the `limit` holds. Written.
        items: The items of the nodes, if these are balanced too.

    Raises:
        IndexError: A source is no node.
        ValueError: Columns that fall, or end behind the edges; a range behind the nodes.
    """
    check_vector("indptr", indptr)
    check_vector("indices", indices)
    check_vector("parts", parts, (torch.int32,))
    check_vector("loads", loads, (torch.int64,))
    starts = indptr.numpy().astype(np.int64, copy=False)
    size = starts.size - 1
    if size < 0 or starts[0] < 0 or starts[-1] > indices.numel() or bool((starts[1:] < starts[:-1]).any()):
        raise ValueError(f"indptr must ascend from 0 or more to {indices.numel()} at most")
    if first < 0 or first + size > parts.numel():
        raise ValueError(f"the range must lie in 0 .. {parts.numel()}, but is {first} .. {first + size}")
    nothing = torch.empty(0, dtype=torch.int64, device="cpu")
    counts, item_loads, item_limit = Items(nothing, nothing, 0) if items is None else items
    check_vector("items.counts", counts, (torch.int64,))
    check_vector("items.loads", item_loads, (torch.int64,))
    if items is not None and (counts.numel(), item_loads.shape) != (size, loads.shape):
        raise ValueError(f"items must have {size} counts and {loads.numel()} loads")
    tree, item_tree = load_tree(loads), load_tree(item_loads)
    module = kernels("structure.place_nodes", parts, indptr=indptr, indices=indices, loads=loads)
    scratch = np.zeros(loads.numel() + 1, np.int64), np.empty(loads.numel() + 2, np.int32)
    moved: int = module.place_nodes(
        starts, indices.contiguous(), first, limit, parts, tree, counts, item_limit, item_tree, *scratch
    )
    if moved < 0:
        raise IndexError(f"indices must lie in 0 .. {parts.numel() - 1}, but hold {int(indices[-1 - moved])}")
    for values, leaves in ((loads, tree), (item_loads, item_tree)):
        # The kernel has kept count in the leaves.
        values.copy_(torch.from_numpy(leaves[leaves.size // 2 :][: values.numel()]))
    return moved


def load_tree(loads: torch.Tensor) -> NDArray[Any]:
    # The leaves are loads, and each node holds the least load below it, to find the emptiest part fast.
    width = 1 << max(loads.numel() - 1, 0).bit_length()
    tree = np.full(2 * width, FULL, dtype=np.int64)
    tree[width : width + loads.numel()] = loads.numpy()
    for start in (1 << level for level in reversed(range(width.bit_length() - 1))):
        tree[start : 2 * start] = tree[2 * start : 4 * start].reshape(-1, 2).min(axis=1)
    return tree
