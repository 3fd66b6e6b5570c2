"""Mini-batches in the order of one of torch's samplers."""

from dataclasses import field
from typing import Any

import torch

from graphfeed.datapipes.item_sampler import ItemSampler
from graphfeed.datapipes.pipeline.seeding import seeded_globals
from graphfeed.ops.random import fold

ORDER = 0x4F52444552
"""Keeps the seed of a sampler's order apart from other draws."""


class OrderedItemSampler(ItemSampler):
    """Groups items in the order that one of torch's samplers gives, anew in each epoch."""

    order: Any = field(default=None, kw_only=True)
    """The sampler: gives positions, or lists of them."""
    size: int | None = field(default=None, kw_only=True)
    """How many positions make a mini-batch; None: the sampler gives lists."""
    places: tuple[torch.Tensor, ...] | None = field(default=None, kw_only=True)
    """The positions of each mini-batch of the epoch, read from the sampler when the epoch begins."""

    def __len__(self) -> int:
        """Return the number of mini-batches in an epoch; a TypeError if the sampler can't tell."""
        if self.places is not None:
            return len(self.places)
        count = len(self.order)
        if self.size is None:
            return count
        return count // self.size if self.drop_last else -(-count // self.size)

    def keyed(self, seed: int, epoch: int, start: int) -> "OrderedItemSampler":
        """Return the same sampler for a seed and an epoch, with the order of that epoch."""
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)
        with seeded_globals(fold(seed, epoch, ORDER)):
            read = list(self.order)
        if self.size is None:
            places = tuple(torch.as_tensor(part, dtype=torch.int64) for part in read)
        else:
            whole = torch.as_tensor(read, dtype=torch.int64)
            kept = len(whole) - len(whole) % self.size if self.drop_last else len(whole)
            places = torch.split(whole[:kept], self.size) if kept else ()
        return self.changed(seed=seed, epoch=epoch, start=start, places=places)

    def minibatch(self, index: int) -> Any:
        """Return the mini-batch with this index."""
        if self.places is None:
            return self.keyed(self.seed or 0, self.epoch, self.start).minibatch(index)
        return self.minibatch_of(self.places[index], index)
