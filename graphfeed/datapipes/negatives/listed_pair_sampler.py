"""Pair each source with one of the destinations in its own list, and with random ones."""

import copy
from typing import Any

import numpy as np
import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.negatives.negative_sampler import with_negatives
from graphfeed.datapipes.negatives.temporal_negative_sampler import NO_PLACE, Int64s, pick
from graphfeed.datapipes.sources.seeds import PER_ITEM, given_seeds
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import draw_key, drawing, fold
from graphfeed.ops.arguments import ID_DTYPES, as_ids, brief, check_count, check_ids
from graphfeed.storage.graph import ends_of

LISTS = "destinations"
"""The member of the items with the lists: `graphfeed.storage.ItemLists`, or a matrix padded with -1."""


class ListedPairSampler(Transform, name="sample_listed_pair", draws=True, seeded=False):
    """Turns sources with lists of `destinations` into pairs: a positive per source, and random negatives.

    The positive is drawn from the list of its row, and `ratio` negatives from all destinations, so that each epoch sees
    others. The draws depend on the mini-batch's key and on the row's position in it. The seeds, labels and indexes are
    those of `UniformNegativeSampler`, for one edge type, which the graph need not have. The lists are left out of the
    result.

    Args:
        datapipe: Source of the mini-batches.
        edge_type: The type of the pairs, "source:relation:destination". None: there are no types.
        num_destinations: Number of nodes of the destinations' type.
        ratio: Number of negatives per source.
        strict: Whether no negative is in the list of its source.

    Raises:
        ValueError: When it runs: seeds that are not nodes of the source type, an item without destinations, an id that
            is not below `num_destinations`, or lists of all destinations with `strict`.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> lists = torch.tensor([[7, -1], [8, 9]])
        >>> pipe = ItemSampler(ItemSet((torch.tensor([0, 1]), lists), names=("seeds", "destinations")), batch_size=2)
        >>> next(iter(pipe.sample_listed_pair(None, 10, strict=True))).seeds.tolist()
        [[0, 7], [1, 9], [0, 2], [1, 0]]
    """

    edge_type: str | None
    num_destinations: int
    ratio: int = 1
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("num_destinations", self.num_destinations, 1, 1 << 31)
        check_count("ratio", self.ratio, 1, 1 << 20)
        if self.edge_type is not None and self.edge_type.count(":") != 2:
            raise ValueError(f"edge_type must be 'source:relation:destination', but is {brief(self.edge_type)}")

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        if minibatch.sampled_subgraphs is not None:
            raise ValueError("the mini-batch is already sampled; put sample_listed_pair before the sampler")
        source = None if self.edge_type is None else ends_of(self.edge_type)[0]

        def own(values: Any) -> Any:
            return values.get(source) if isinstance(values, dict) else values

        given = given_seeds(minibatch)
        if (
            not isinstance(seeds := own(given), torch.Tensor)
            or seeds.dim() != 1
            or isinstance(given, dict) != (source is not None)
        ):
            raise ValueError(f"seeds must be nodes of {source!r}, as in edge_type, but are {brief(minibatch.seeds)}")
        lists = own(getattr(minibatch, LISTS, None))
        if not isinstance(lists, torch.Tensor) or lists.dim() != 2 or len(lists) != len(seeds):
            raise ValueError(f"each seed needs a list of destinations; name a member of the item set {LISTS!r}")
        if (found := as_ids(LISTS, lists)).dtype not in ID_DTYPES:
            raise TypeError(f"{LISTS} must be lists of integers, but are {lists.dtype}")
        with drawing(minibatch.key, self.number):
            ends = torch.from_numpy(self._draw(found.to(torch.int64).numpy(), draw_key(0))).to(seeds.dtype)
        sources = torch.cat([seeds, seeds.repeat_interleave(self.ratio)])
        made = with_negatives(torch.stack([sources, ends], 1), len(seeds))
        result = copy.copy(minibatch)
        values = dict(zip(("seeds", "labels", "indexes"), made, strict=True))
        values |= {name: own(getattr(minibatch, name, None)) for name in (*PER_ITEM, "input_id")}
        for name, value in values.items():
            if value is not None:
                setattr(result, name, value if self.edge_type is None else {self.edge_type: value})
        setattr(result, LISTS, None)
        return result

    def _draw(self, lists: Int64s, key: int) -> Int64s:
        """Return the destination of each positive, then those of the negatives of each source in turn."""
        sizes, count = (lists >= 0).sum(1), len(lists)
        if (sizes == 0).any():
            raise ValueError(f"item {int(sizes.argmin())} of the mini-batch has no destination; leave it out")
        name = f"{LISTS} (num_destinations={self.num_destinations})"
        check_ids(name, torch.from_numpy(lists[lists >= 0]), self.num_destinations)
        none = np.empty((count, 0), dtype=np.int64)
        known = np.sort(np.where(lists < 0, NO_PLACE, lists), axis=1)
        positives = known[np.arange(count), pick(sizes, none, 1, fold(key, 1), distinct=False)[:, 0]]
        taken = none
        if self.strict:
            again = np.pad(known[:, 1:] == known[:, :-1], ((0, 0), (1, 0)))
            taken = np.sort(np.where(again, NO_PLACE, known), axis=1)
        negatives = pick(np.full(count, self.num_destinations), taken, self.ratio, key, distinct=False)
        if (negatives < 0).any():
            raise ValueError(
                f"item {int((negatives < 0).any(1).argmax())} of the mini-batch has all {self.num_destinations} "
                "destinations in its list; leave out strict"
            )
        return np.concatenate([positives, negatives.ravel()])
