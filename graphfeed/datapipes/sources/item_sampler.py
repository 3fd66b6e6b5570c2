"""Group items into mini-batches of seeds."""

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.iteration import torch_shard
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, measure_items
from graphfeed.datapipes.sources.minibatcher import minibatcher_default
from graphfeed.datapipes.sources.time_spans import find_spans
from graphfeed.ops import Key, fold
from graphfeed.ops.arguments import brief, check_count, check_fields, check_position, kind_of, mark_below
from graphfeed.ops.sampling import permute
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.datasets import is_plain, num_groups_of, rows_of_groups, sets_of

SHUFFLE = 0x5348554646
"""Separates the key of the order from the keys of mini-batches."""
MOST_TOGETHER, BYTES_TOGETHER = 32, 1 << 20
"""Maximum number of mini-batches whose items are taken at once, and of their bytes."""


class ItemSampler(Datapipe, init=False, seeded=False):
    """Groups items into mini-batches, in order or shuffled. Any mini-batch can be produced from its index.

    The shuffled order is a keyed pseudo-random permutation of the whole set. It differs in each epoch, is never stored,
    and costs the same at any position. Inside a torch DataLoader worker, the sampler yields that worker's share.

    Args:
        item_set: The items: an `ItemSet`, or a `HeteroItemSet` with types.
        batch_size: Number of items in a mini-batch, unless `every` is given. Groups of items, such as an edge and the
            negatives that it is ranked among, are never cut: a mini-batch has as many of them as fit, and at least one
            (see `ItemSet`).
        minibatcher: Function from the rows and the names of items to a mini-batch.
        drop_last: Whether to drop the last mini-batch if it is not full.
        shuffle: Whether the order is random, and another one in each epoch.
        seed: Random seed of the order and of all later draws, unless the DataLoader has one. None means 0 without a
            loader.
        epoch: The epoch, which determines the order and the draws. A DataLoader sets it.
        start: Index of the first mini-batch. A DataLoader sets it.
        every: Instead of `batch_size`: the length of the time span of each mini-batch, in the unit of the items'
            `timestamp`, which must not decrease. Spans begin at multiples of it, and those without items are skipped.
            `shuffle` permutes the spans.

    Raises:
        ValueError: The item set is empty, the batch size is below 1, or `every` is given for items whose times
            decrease.

    Example:
        >>> [minibatch.seeds.tolist() for minibatch in ItemSampler(ItemSet(5, names="seeds"), batch_size=2)]
        [[0, 1], [2, 3], [4]]
        >>> events = ItemSet((5, [3, 3, 8, 40, 41]), names=("seeds", "timestamp"))
        >>> [minibatch.seeds.tolist() for minibatch in ItemSampler(events, every=10)]
        [[0, 1, 2], [3, 4]]
    """

    item_set: ItemSet | HeteroItemSet
    batch_size: int | None = None
    minibatcher: Callable[[Any, Any], Any] = minibatcher_default
    drop_last: bool = False
    shuffle: bool = False
    seed: int | None = None
    epoch: int = field(default=0, kw_only=True)
    start: int = field(default=0, kw_only=True)
    every: int | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __new__(  # type: ignore[misc]
            cls,
            item_set: ItemSet | HeteroItemSet,
            batch_size: int | None = ...,
            minibatcher: Callable[[Any, Any], Any] = ...,
            drop_last: bool = ...,
            shuffle: bool = ...,
            seed: int | None = ...,
            *,
            epoch: int = ...,
            start: int = ...,
            every: int | None = ...,
        ) -> Datapipe:
            """Type the sampler as a pipeline, so that `pipe = pipe.sample_neighbor(...)` is valid."""

    def __post_init__(self) -> None:
        if not isinstance(self.item_set, (ItemSet, HeteroItemSet)):
            raise TypeError(
                f"item_set must be an ItemSet or HeteroItemSet, but is {kind_of(self.item_set)}; "
                "wrap it, for example ItemSet(ids, names='seeds')"
            )
        if len(self.item_set) == 0:
            raise ValueError("item_set is empty; give it at least one item")
        seed = check_position(0 if self.seed is None else self.seed, self.epoch, self.start)
        check_fields(self)
        if self.every is None:
            if self.batch_size is None:
                raise TypeError("batch_size is missing; give the number of items of a mini-batch")
            check_count("batch_size", self.batch_size, 1)
        elif self.batch_size is not None or self.drop_last:
            raise ValueError("every makes mini-batches by time; leave out batch_size and drop_last")
        if not callable(self.minibatcher):
            raise TypeError(f"minibatcher must be a function of rows and names, but is {brief(self.minibatcher)}")
        self.__dict__["seed"] = None if self.seed is None else seed
        self.__dict__["spans"] = None if self.every is None else find_spans(self.item_set, self.every)

    @property
    def num_groups(self) -> int:
        """Number of groups of items in a full mini-batch."""
        return max((self.batch_size or 1) // self.item_set.group_size, 1)

    def __len__(self) -> int:
        if (spans := self.__dict__.get("spans")) is not None:
            return len(spans)
        whole, rest = divmod(num_groups_of(self.item_set), self.num_groups)
        return whole if self.drop_last or rest == 0 else whole + 1

    def __iter__(self) -> Iterator[Any]:
        worker, num_workers = torch_shard()
        end = len(self)
        if num_workers == 1 and (step := self.num_together) > 1:
            for first in range(self.start, end, step):
                yield from self.take_together(first, min(first + step, end))
            return
        for index in range(self.start, end):
            if index % num_workers == worker:
                yield self.minibatch(index)

    @property
    def num_together(self) -> int:
        """Number of mini-batches whose items are taken at once; 1 unless these are numbers and tensors of one type."""
        methods = ("minibatch", "minibatch_of", "positions_of")
        plain = all(getattr(type(self), name) is getattr(ItemSampler, name) for name in methods)
        items, *more = sets_of(self.item_set)
        if not plain or self.every is not None or more or not is_plain(self.item_set):
            return 1
        each = [member.nbytes for member in items.members if isinstance(member, torch.Tensor)]
        size = (sum(each) // len(items) + 8) * self.num_groups * items.group_size
        return min(max(BYTES_TOGETHER // size, 1), MOST_TOGETHER)

    def take_together(self, first: int, last: int) -> Iterator[Any]:
        """Yield the mini-batches `first .. last - 1`. Taking their items at once takes half the time."""
        positions = self.positions_between(first, last)
        mark_below(positions, len(self.item_set))
        rows, size = self.item_set[positions], self.num_groups * self.item_set.group_size
        kind, given = next(iter(rows.items())) if isinstance(rows, dict) else (None, rows)
        members = given if isinstance(given, tuple) else (given,)
        for number, index in enumerate(range(first, last)):
            # Copies, so that a mini-batch that is kept or pickled doesn't have the items of all.
            values = tuple(member[number * size : (number + 1) * size].clone() for member in members)
            batch = values if len(values) > 1 else values[0]
            yield self.with_key(batch if kind is None else {kind: batch}, index)

    def minibatch(self, index: int) -> Any:
        """Return the mini-batch with this index, in the same time for every index."""
        positions = self.positions_of(index)
        mark_below(positions, len(self.item_set))
        return self.minibatch_of(positions, index)

    def positions_of(self, index: int) -> torch.Tensor:
        """Return the positions of the items of the mini-batch with this index."""
        if (spans := self.__dict__.get("spans")) is not None:
            if not 0 <= index < len(spans):
                raise IndexError(f"index must be in 0 .. {len(self) - 1}, but is {index}")
            span = int(permute(index, index + 1, len(spans), self.order_key)) if self.shuffle else index
            return torch.from_numpy(np.arange(*spans.starts[span : span + 2].tolist()))
        if not 0 <= index < len(self):
            raise IndexError(f"index must be in 0 .. {len(self) - 1}, but is {index}")
        return self.positions_between(index, index + 1)

    def positions_between(self, first: int, last: int) -> torch.Tensor:
        """Return the positions of the items of the mini-batches `first .. last - 1`, which are not time spans."""
        size, each = num_groups_of(self.item_set), self.num_groups
        low, high = first * each, min(size, last * each)
        # Any range of a keyed permutation can be computed, so the order of an epoch is never stored.
        groups = permute(low, high, size, self.order_key) if self.shuffle else torch.from_numpy(np.arange(low, high))
        return rows_of_groups(self.item_set, groups)

    @property
    def order_key(self) -> int:
        """Key of the epoch's order, if it is shuffled."""
        return fold(self.seed or 0, self.epoch, SHUFFLE)

    def minibatch_of(self, positions: torch.Tensor, index: int) -> Any:
        """Return the mini-batch of the items at some positions, with the key of an index."""
        return self.with_key(self.item_set[positions], index)

    def with_key(self, rows: Any, index: int) -> Any:
        """Return the mini-batch of some rows of items, with the key of an index."""
        minibatch = self.minibatcher(rows, self.item_set.names)
        if isinstance(minibatch, MiniBatch):
            minibatch.key = Key(self.seed or 0, self.epoch, index)
        return minibatch

    def keyed(self, seed: int, epoch: int, start: int) -> "ItemSampler":
        """Return the sampler for another random seed and epoch, starting at mini-batch `start`."""
        return self.changed(seed=seed, epoch=epoch, start=start)

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:  # noqa: ARG002
        """Return the size of the first mini-batch, which is produced for this purpose."""
        return measure_items(self.minibatch(0)) if len(self) else None
