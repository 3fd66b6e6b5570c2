"""Mini-batches in the order of one of torch's samplers."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Protocol, runtime_checkable

import torch

from graphfeed.datapipes import Datapipe, ItemSampler, minibatcher_default
from graphfeed.datapipes.pipeline import BatchSizeEstimate, measure, seeded_globals, torch_shard
from graphfeed.ops import fold
from graphfeed.ops.arguments import as_tensor, brief, check_count, check_ids, holds_whole
from graphfeed.storage import HeteroItemSet, ItemSet

ORDER = 0x4F52444552
"""Keeps the seed of a sampler's order apart from other draws."""


@runtime_checkable
class TakesItems(Protocol):
    """A source that can make a mini-batch of the items at any positions."""

    item_set: ItemSet | HeteroItemSet
    minibatcher: Callable[[Any, Any], Any]

    def minibatch_of(self, positions: torch.Tensor, index: int) -> Any:
        """Return the mini-batch of the items at some positions, with the key that belongs to an index."""


class OrderedItemSampler(Datapipe):
    """Groups items in the order that one of torch's samplers gives, anew in each epoch.

    The order is read when the source is given a seed and an epoch: a loader does that once per epoch, in the main
    process. A sampler with a generator of its own gives another order whenever it is read, so workers can't share the
    indexes: they are sent the mini-batches of items.
    """

    item_set: ItemSet | HeteroItemSet
    batch_size: int
    minibatcher: Callable[[Any, Any], Any] = minibatcher_default
    """Makes a mini-batch from rows and names."""
    drop_last: bool = False
    """Whether to drop the last mini-batch if it is not full."""
    order: Any = field(default=None, kw_only=True)
    """The sampler: gives positions, or lists of them."""
    size: int | None = field(default=None, kw_only=True)
    """How many positions make a mini-batch; None: the sampler gives lists."""
    seed: int | None = field(default=None, kw_only=True)
    epoch: int = field(default=0, kw_only=True)
    start: int = field(default=0, kw_only=True)
    """The first mini-batch."""
    positions: torch.Tensor | None = field(default=None, kw_only=True)
    """All positions of the epoch, read from the sampler when the epoch begins."""
    bounds: torch.Tensor | None = field(default=None, kw_only=True)
    """Where each mini-batch begins among them, and then where the last one ends."""

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size, 1)
        if len(self.item_set) == 0:
            raise ValueError("item_set is empty; give it at least one item")

    def __len__(self) -> int:
        if self.bounds is not None:
            return len(self.bounds) - 1
        # A TypeError if the sampler can't tell.
        count = len(self.order)
        if self.size is None:
            return count
        return count // self.size if self.drop_last else -(-count // self.size)

    def __iter__(self) -> Iterator[Any]:
        # Without a loader, nobody has read the order yet.
        source = self if self.positions is not None else self.keyed(self.seed or 0, self.epoch, self.start)
        assert source.positions is not None
        assert source.bounds is not None
        worker, num_workers = torch_shard()
        for index in range(source.start, len(source)):
            if index % num_workers == worker:
                low, high = source.bounds[index : index + 2].tolist()
                # A copy, because the items may be a range: the caller's ids should not hold on to the whole epoch.
                yield source.minibatch_of(source.positions[low:high].clone(), index)

    def minibatch_of(self, positions: torch.Tensor, index: int) -> Any:
        """Return the mini-batch of the items at some positions, with the key that belongs to an index."""
        in_order: Any = ItemSampler(self.item_set, self.batch_size, self.minibatcher, seed=self.seed, epoch=self.epoch)
        return in_order.minibatch_of(positions, index)

    def keyed(self, seed: int, epoch: int, start: int) -> "OrderedItemSampler":
        """Return the same sampler for a seed and an epoch, with the order of that epoch, which is read here."""
        if hasattr(self.order, "set_epoch"):  # as torch's DistributedSampler has it
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
            # The last mini-batch may have fewer.
            ends = torch.arange(self.size, kept + self.size, self.size, device="cpu").clamp(max=kept)
        check_ids("sampler" if self.size else "batch_sampler", positions, len(self.item_set), IndexError)
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), ends])
        return self.changed(seed=seed, epoch=epoch, start=start, positions=positions, bounds=bounds)

    def digest_order(self) -> str:
        """Return a digest of the order of the epoch; "" if it was not read yet."""
        digest = hashlib.sha1(usedforsecurity=False)
        for part in (self.positions, self.bounds):
            if part is None:
                return ""
            digest.update(part.numpy().data)
        return digest.hexdigest()

    def gives_a_share(self) -> bool:
        """Tell whether the sampler may leave out some items, as torch's `DistributedSampler` does."""
        order: Any = self.order if self.size is not None else getattr(self.order, "sampler", None)
        # Nobody knows what a batch sampler or an iterable of the user's own gives.
        return not hasattr(order, "__len__") or len(order) < len(self.item_set)

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:  # noqa: ARG002
        """Return the size of a mini-batch of the first items; None if the sampler says how many come together."""
        if self.size is None:
            return None
        return measure(self.minibatch_of(torch.arange(min(self.size, len(self.item_set)), device="cpu"), 0))


def as_positions(name: str, given: Any) -> torch.Tensor:
    """Return what one of torch's samplers gives as positions, or raise if these are no whole numbers."""
    positions = as_tensor(name, given).cpu()
    if positions.dim() != 1 or not holds_whole(positions):
        raise TypeError(f"{name} must give positions of seeds, which are whole numbers, but gives {brief(given)}")
    return positions.to(torch.int64)
