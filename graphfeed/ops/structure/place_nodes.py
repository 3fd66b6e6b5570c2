"""Assign nodes to the partitions of most of their neighbours."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import kernels

FULL = torch.iinfo(torch.int64).max
"""Pads the loads to a power of two; no partition reaches this load."""


class Items(NamedTuple):
    """The items of nodes, such as training nodes and edges, to balance among partitions."""

    counts: torch.Tensor
    """int64: number of items of each node of a range."""
    loads: torch.Tensor
    """int64: number of items of each partition, of those that the limit applies to. Updated."""
    limit: int
    """Maximum number of items per partition."""


def place_nodes(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    parts: torch.Tensor,
    loads: torch.Tensor,
    first: int,
    limit: int,
    items: Items | None = None,
) -> int:
    """Assign each node of a range to the partition with most of its neighbours, weighted by remaining capacity.

    Nodes are removed from their partition and reassigned one by one. Ties go to the first partition; a node without
    neighbours in a partition with capacity goes to the emptiest one. For a node with items, the capacity for items is
    used; if no partition has enough, the one with the fewest items is chosen. The time is proportional to the number of
    edges, and to log(partitions) per node. Returns the number of nodes whose partition changed.

    Args:
        indptr: Column starts of the nodes of the range, as positions in the whole graph's `indices`.
        parts: int32: the partition of each node of the graph, or -1. Updated for the range, which begins at `first`.
        loads: int64: the number of nodes of each partition, of those that `limit` applies to. Updated.
        items: The items of the nodes, if they are balanced too.

    Raises:
        IndexError: A source is not a node.
        ValueError: Column starts decrease or exceed the number of edges, or the range exceeds the nodes.
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
        raise ValueError(f"the range must be in 0 .. {parts.numel()}, but is {first} .. {first + size}")
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
        raise IndexError(f"indices must be in 0 .. {parts.numel() - 1}, but hold {int(indices[-1 - moved])}")
    for values, leaves in ((loads, tree), (item_loads, item_tree)):
        # The kernel has updated the leaves.
        values.copy_(torch.from_numpy(leaves[leaves.size // 2 :][: values.numel()]))
    return moved


def load_tree(loads: torch.Tensor) -> NDArray[Any]:
    # The leaves are loads, and each inner node is the minimum below it, to find the emptiest partition quickly.
    width = 1 << max(loads.numel() - 1, 0).bit_length()
    tree = np.full(2 * width, FULL, dtype=np.int64)
    tree[width : width + loads.numel()] = loads.numpy()
    for start in (1 << level for level in reversed(range(width.bit_length() - 1))):
        tree[start : 2 * start] = tree[2 * start : 4 * start].reshape(-1, 2).min(axis=1)
    return tree
