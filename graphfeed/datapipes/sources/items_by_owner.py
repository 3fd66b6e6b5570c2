"""Group items by the partition that owns their nodes, and assign them to the partitions' mini-batches."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import fold
from graphfeed.ops.arguments import as_ids, brief
from graphfeed.ops.process import current_limits
from graphfeed.ops.sampling import permute
from graphfeed.ops.structure import assign_slots
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.graph import seed_type_str_to_ntypes
from graphfeed.storage.memory import Shareable

NAMES = ("seeds", "seed_nodes", "node_pairs")
"""Possible names of the item set's member that has the seeds."""


@runtime_checkable
class Owners(Protocol):
    """Maps each node to the partition that owns it, like `graphfeed.distributed.PartBook`."""

    num_ids: int
    num_parts: int

    def owners_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the partition of each node."""


NodeOwners: TypeAlias = Owners | Mapping[str, Owners]
"""Owners of nodes, by node type if the items have types."""


@dataclass(frozen=True, eq=False, repr=False)
class ItemsByOwner(Shareable):
    """Positions of items, grouped by the partition that owns them."""

    order: torch.Tensor
    """Positions, partition after partition, ascending within each; int32 if they fit."""
    counts: tuple[int, ...]
    """Number of items that each partition owns."""
    checksum: int
    """Checksum of the items' partitions. The state of a loader has it, because the mini-batches depend on it."""

    def __repr__(self) -> str:
        return f"<{len(self.counts)} parts>"

    def positions(self, number: int, batch_size: int, key: int | None) -> torch.Tensor:
        """Return the positions of a mini-batch's items, in the order of a key, or in that of the set if it is None."""
        # Mini-batches are numbered over all parts: part `p` of `n` has the mini-batches `p`, `n + p`, `2 n + p`, ... A
        # part has as many items as fit into these. If it owns more, the surplus fills those of parts that own fewer. A
        # mini-batch is computed without any other one, so every number costs the same.
        num_parts = len(self.counts)
        counts, sizes = np.array(self.counts), even_sizes(len(self.order), batch_size, num_parts)
        lacking, surplus = (sizes - counts).clip(0), (counts - sizes).clip(0)
        part, low = number % num_parts, number // num_parts * batch_size
        size = int(sizes[part])
        high = min(low + batch_size, size)
        # Surplus items of other parts are spread evenly over the mini-batches, so that all cost about the same.
        first, last = (place * int(lacking[part]) // size for place in (low, high))
        found = [self.items_of_part(part, low - first, high - last, key)]
        # The surplus of all parts forms one list, and each part that lacks items gets a slice of it.
        begin, ends = int(lacking[:part].sum()), surplus.cumsum()
        for giver in np.flatnonzero(surplus).tolist() if first < last else ():
            end = int(ends[giver])
            start = end - int(surplus[giver])
            some = range(max(begin + first, start), min(begin + last, end))
            if some:
                # A part keeps the items before its surplus.
                beyond = int(sizes[giver]) - start
                found.append(self.items_of_part(giver, some.start + beyond, some.stop + beyond, key))
        return torch.cat(found).long()

    def items_of_part(self, part: int, low: int, high: int, key: int | None) -> torch.Tensor:
        """Return a slice of the items that a part owns, in the epoch's order given by `key`."""
        start, count = sum(self.counts[:part]), self.counts[part]
        items = self.order[start : start + count]
        return items[low:high] if key is None else items[permute(low, high, count, fold(key, part))]


def even_sizes(total: int, batch_size: int, num_parts: int) -> NDArray[np.int64]:
    """Return the number of items in each part's mini-batches if the parts take turns."""
    # Each part has the same number of full mini-batches, the first ones have one more, and the next one has the rest.
    full, rest = divmod(total, batch_size)
    each, more = divmod(full, num_parts)
    sizes = np.full(num_parts, each * batch_size)
    sizes[:more] += batch_size
    sizes[more] += rest
    return sizes


def group_items(item_set: ItemSet | HeteroItemSet, owners: NodeOwners) -> ItemsByOwner:
    """Group items by the partition that owns their node. For edges and other tuples, that is the last node."""
    typed = isinstance(item_set, HeteroItemSet)
    if typed != isinstance(owners, Mapping):
        wanted = "a dict of PartBooks by node type for items with" if typed else "a PartBook for items without"
        raise TypeError(f"owners must be {wanted} types, but is {brief(owners)}")
    by_type: dict[Any, Owners] = dict(owners) if isinstance(owners, Mapping) else {None: owners}
    for each in by_type.values():
        if not isinstance(each, Owners):
            raise TypeError(f"owners must have the part of each node, as a PartBook does, but is {brief(each)}")
    numbers = {each.num_parts for each in by_type.values()}
    if len(numbers) != 1:
        raise ValueError(f"owners must have the same number of parts for all node types, but have {sorted(numbers)}")
    (num_parts,) = numbers
    # With `order` below, 5 bytes per item, of which 4 are kept; above 2**31 items, 9 and 8.
    parts = np.empty(len(item_set), dtype=np.min_scalar_type(num_parts - 1))
    filled = 0
    for node_type, nodes in nodes_of_items(item_set):
        if node_type not in by_type:
            raise KeyError(f"owners lacks node type {node_type!r}; it has {sorted(by_type)}")
        book, (low, high) = by_type[node_type], (int(nodes.min()), int(nodes.max()))
        if low < 0 or high >= book.num_ids:
            raise ValueError(
                f"owners must have the part of every node{f' of type {node_type!r}' if node_type else ''}, but has "
                f"{book.num_ids} of them, and an item has node {low if low < 0 else high}"
            )
        parts[filled : filled + nodes.numel()] = book.owners_of(nodes).numpy()
        filled += nodes.numel()
    counts = torch.from_numpy(np.bincount(parts, minlength=num_parts))
    starts = counts.cumsum(0) - counts
    order = torch.empty(parts.size, dtype=torch.int32 if parts.size <= 1 << 31 else torch.int64, device="cpu")
    step = current_limits().part_values
    for low in range(0, parts.size, step):
        some = torch.from_numpy(parts[low : low + step].astype(np.int32))
        # A counting sort by part, which keeps the order of the items.
        order[assign_slots(some, starts)] = torch.arange(low, low + some.numel(), dtype=order.dtype, device="cpu")
    return ItemsByOwner(order, tuple(counts.tolist()), zlib.crc32(parts.data))


def nodes_of_items(item_set: ItemSet | HeteroItemSet) -> Iterator[tuple[str | None, torch.Tensor]]:
    """Yield node types and nodes: the nodes that decide the owners of the items, in their order, in chunks.

    That is the node itself, the destination of an edge, or the last node of another tuple. A member is named seeds.
    """
    for seed_type, items in item_set.by_type.items() if isinstance(item_set, HeteroItemSet) else [(None, item_set)]:
        names = items.names or ()
        member = next((own for name, own in zip(names, items.members, strict=False) if name in NAMES), None)
        if member is None:
            raise ValueError(
                f"owners needs an item set with a member named 'seeds', but the names are {brief(items.names)}"
            )
        seeds = ItemSet(member)
        step = current_limits().part_values
        for low in range(0, len(items), step):
            nodes = as_ids("seeds", seeds[low : low + step])
            if nodes.dtype not in (torch.int32, torch.int64):
                raise TypeError(f"seeds must be int32 or int64 to have owners, but are {nodes.dtype}")
            if nodes.dim() == 1:
                yield seed_type, nodes
                continue
            node_types = [None] if seed_type is None else seed_type_str_to_ntypes(seed_type, nodes.shape[1])
            yield node_types[-1], nodes[:, -1].contiguous()
