"""Mini-batches in the order of a torch sampler."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes import Datapipe, ItemSampler, minibatcher_default
from graphfeed.datapipes.pipeline import BatchSizeEstimate, measure_items, seeded_globals, torch_shard
from graphfeed.ops import fold
from graphfeed.ops.arguments import as_tensor, brief, check_count, check_ids, holds_whole
from graphfeed.storage import HeteroItemSet, ItemSet

ORDER = 0x4F52444552
"""Separates the random seed of a sampler's order from other draws."""


class OrderedItemSampler(Datapipe, seeded=False):
    """Groups items in the order given by a torch sampler, which is read again in each epoch.

    The order is read when the source gets a random seed and an epoch, which a loader does once per epoch, in the main
    process. A sampler with its own generator yields a different order whenever it is read, so workers receive the
    mini-batches of items rather than indexes.
    """

    item_set: ItemSet | HeteroItemSet
    batch_size: int
    minibatcher: Callable[[Any, Any], Any] = minibatcher_default
    """Builds a mini-batch from the rows and the names of the items."""
    drop_last: bool = False
    """Whether to drop an incomplete last mini-batch."""
    order: Any = field(default=None, kw_only=True)
    """The sampler, which yields positions, or lists of them."""
    size: int | None = field(default=None, kw_only=True)
    """Number of positions per mini-batch; None: the sampler yields lists."""
    seed: int | None = field(default=None, kw_only=True)
    epoch: int = field(default=0, kw_only=True)
    start: int = field(default=0, kw_only=True)
    """Index of the first mini-batch to yield."""
    positions: torch.Tensor | None = field(default=None, kw_only=True)
    """All positions of the epoch, read from the sampler when the epoch begins."""
    bounds: torch.Tensor | None = field(default=None, kw_only=True)
    """Offsets of the mini-batches among the positions."""

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size, 1)
        if len(self.item_set) == 0:
            raise ValueError("item_set is empty; give it at least one item")

    def __len__(self) -> int:
        if self.bounds is not None:
            return len(self.bounds) - 1
        # A TypeError if the sampler has no length.
        count = len(self.order)
        if self.size is None:
            return count
        return count // self.size if self.drop_last else -(-count // self.size)

    def __iter__(self) -> Iterator[Any]:
        # Without a loader, the order has not been read yet.
        source = self if self.positions is not None else self.keyed(self.seed or 0, self.epoch, self.start)
        assert source.positions is not None
        assert source.bounds is not None
        worker, num_workers = torch_shard()
        for index in range(source.start, len(source)):
            if index % num_workers == worker:
                low, high = source.bounds[index : index + 2].tolist()
                # A copy, because the items may be a range: the caller's ids should not keep the whole epoch alive.
                yield source.minibatch_of(source.positions[low:high].clone(), index)

    def minibatch_of(self, positions: torch.Tensor, index: int) -> Any:
        """Return the mini-batch of the items at the given positions, with the key of an index."""
        in_order: Any = ItemSampler(self.item_set, self.batch_size, self.minibatcher, seed=self.seed, epoch=self.epoch)
        return in_order.minibatch_of(positions, index)

    def keyed(self, seed: int, epoch: int, start: int) -> "OrderedItemSampler":
        """Read the order of an epoch, and return a copy of this sampler with it."""
        if hasattr(self.order, "set_epoch"):  # such as torch's DistributedSampler
            self.order.set_epoch(epoch)
        with seeded_globals(fold(seed, epoch, ORDER)):
            read = list(self.order)
        if self.size is None:
            parts = [as_positions("batch_sampler", part) for part in read]
            positions = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device="cpu")
            ends = torch.tensor([len(part) for part in parts], dtype=torch.int64, device="cpu").cumsum(0)
        else:
            positions = as_positions("sampler", read)
            kept = len(positions) - len(positions) % self.size if self.drop_last else len(positions)
            # The last mini-batch may be incomplete.
            ends = torch.arange(self.size, kept + self.size, self.size, device="cpu").clamp(max=kept)
        check_ids("sampler" if self.size else "batch_sampler", positions, len(self.item_set), IndexError)
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), ends])
        return self.changed(seed=seed, epoch=epoch, start=start, positions=positions, bounds=bounds)

    def digest_order(self) -> str:
        """Return a digest of the order of the epoch, or "" if it has not been read yet."""
        digest = hashlib.sha1(usedforsecurity=False)
        for part in (self.positions, self.bounds):
            if part is None:
                return ""
            digest.update(part.numpy().data)
        return digest.hexdigest()

    def gives_a_share(self) -> bool:
        """Return whether the sampler may leave out some items, as torch's `DistributedSampler` does."""
        order: Any = self.order if self.size is not None else getattr(self.order, "sampler", None)
        # The positions from a batch sampler or a user's iterable are unknown.
        return not hasattr(order, "__len__") or len(order) < len(self.item_set)

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:  # noqa: ARG002
        """Return the size of a mini-batch of the first items; None if the sampler sets the sizes."""
        if self.size is None:
            return None
        return measure_items(self.minibatch_of(torch.arange(min(self.size, len(self.item_set)), device="cpu"), 0))


ItemSource: TypeAlias = ItemSampler | OrderedItemSampler
"""A source that can build a mini-batch from the items at any positions."""


def as_positions(name: str, given: Any) -> torch.Tensor:
    """Convert the output of a torch sampler to positions, or raise a TypeError if they are not integers."""
    positions = as_tensor(name, given).cpu()
    if positions.dim() != 1 or not holds_whole(positions):
        raise TypeError(f"{name} must give positions of seeds, which are integers, but gives {brief(given)}")
    return positions.to(torch.int64)
