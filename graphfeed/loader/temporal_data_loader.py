"""Load events in the order of their times."""

import copy
from collections.abc import Mapping
from typing import Any

import torch

from graphfeed.datapipes import ItemSampler, MiniBatch, Transform, check_rising
from graphfeed.loader.dataloader import DataLoader
from graphfeed.ops import Key, draw_key, drawing
from graphfeed.ops.arguments import as_tensor, brief, check_count
from graphfeed.storage import ItemSet


def gather_events(rows: Any, names: Any) -> MiniBatch:
    """Return a mini-batch with an attribute for each member of the events."""
    minibatch = MiniBatch()
    vars(minibatch).update(zip(names, rows, strict=True))
    return minibatch


def add_ends(events: Any, key: Key | None, stage: int, ratio: float, bounds: tuple[int, int]) -> None:
    """Set `neg_dst` of events, if there is a ratio, and `n_id`."""
    ends = [events.src, events.dst]
    if ratio:
        with drawing(key, stage):
            generator = torch.Generator().manual_seed(draw_key(0))
        size, (lowest, highest) = (round(ratio * len(events.dst)),), bounds
        drawn = torch.randint(lowest, highest + 1, size, generator=generator, device="cpu")
        events.neg_dst = drawn.to(events.dst.dtype)
        ends.append(events.neg_dst)
    events.n_id = torch.unique(torch.cat(ends))


RESERVED = {"key", "n_id", "neg_dst"}
"""Attributes that the loader sets."""


class AddEnds(Transform, draws=True, keeps_size=True, seeded=False):
    """Adds negative destinations, and the ids of all nodes."""

    ratio: float = 0.0
    """Number of negative destinations per event."""
    bounds: tuple[int, int] = (0, 0)
    """The lowest and the highest id of a negative destination."""

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        result = copy.copy(minibatch)
        add_ends(result, minibatch.key, self.number, self.ratio, self.bounds)
        return result


class TemporalDataLoader(DataLoader[Any]):
    """Yields mini-batches of successive events, with the attributes of PyG's `TemporalDataLoader`, but without PyG.

    A mini-batch has the attributes of the next events, and `n_id`, the sorted ids of all of its nodes. With
    `neg_sampling_ratio`, `neg_dst` has ids drawn uniformly between the lowest and the highest destination, which may
    include true ones. They depend only on the random seed, the epoch and the mini-batch.

    Args:
        events: Arrays with a row per event: `src`, `dst`, and `t`, which doesn't decrease; others are optional.
        batch_size: Number of events per mini-batch.
        neg_sampling_ratio: Number of negative destinations per event.
        options: As for `DataLoader`.

    Raises:
        ValueError: Times decrease, there are no events, or the ratio is negative.

    Example:
        >>> events = {"src": [0, 1, 0], "dst": [3, 3, 2], "t": [5, 5, 8]}
        >>> [(batch.t.tolist(), batch.n_id.tolist()) for batch in TemporalDataLoader(events, batch_size=2)]
        [([5, 5], [0, 1, 3]), ([8], [0, 2])]
    """

    def __init__(
        self, events: Mapping[str, Any], batch_size: int = 1, neg_sampling_ratio: float = 0.0, **options: Any
    ) -> None:
        members = {name: as_tensor(name, values) for name, values in events.items()}
        if not {"src", "dst", "t"} <= members.keys():
            raise ValueError(f"events must have 'src', 'dst' and 't', but has {brief(list(members))}")
        taken = [name for name in members if name in RESERVED or callable(getattr(MiniBatch, name, None))]
        if taken:
            raise ValueError(f"events can't have the attributes {taken}, which mini-batches have; rename them")
        if not 0 <= neg_sampling_ratio < 1 << 20:
            raise ValueError(f"neg_sampling_ratio must be 0 or more, and below 2**20, but is {neg_sampling_ratio}")
        check_count("batch_size", batch_size, 1)
        check_rising("t", members["t"])
        ends = members["dst"]
        bounds = (int(ends.min()), int(ends.max())) if neg_sampling_ratio and len(ends) else (0, 0)
        pipe = ItemSampler(ItemSet(tuple(members.values()), names=tuple(members)), batch_size, gather_events)
        super().__init__(AddEnds(pipe, float(neg_sampling_ratio), bounds), **options)
