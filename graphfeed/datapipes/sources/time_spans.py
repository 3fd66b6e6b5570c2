"""Divide items in the order of their times into spans of equal length."""

from dataclasses import dataclass

import numpy as np
import torch

from graphfeed.ops.arguments import as_tensor, brief, check_count
from graphfeed.ops.sampling import as_times
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.memory import Shareable


@dataclass(frozen=True, eq=False, repr=False)
class TimeSpans(Shareable):
    """The spans that have items: span `i` has the items from `starts[i]` to `starts[i + 1]`."""

    starts: torch.Tensor

    def __len__(self) -> int:
        return len(self.starts) - 1


def check_rising(name: str, times: torch.Tensor) -> None:
    """Raise a ValueError that names the first row whose time is earlier than the one before it."""
    falls = np.flatnonzero(~(times[1:].numpy() >= times[:-1].numpy()))
    if len(falls):
        row = int(falls[0]) + 1
        raise ValueError(
            f"{name} must not decrease, but {name}[{row}] is {times[row].item()} after {times[row - 1].item()}; sort "
            "the items by time: order = times.argsort(stable=True)"
        )


def find_spans(item_set: ItemSet | HeteroItemSet, every: int) -> TimeSpans:
    """Find the spans of `every` units of time that have items. Each begins at a multiple of `every`."""
    check_count("every", every, 1)
    names = item_set.names or ()
    if isinstance(item_set, HeteroItemSet) or "timestamp" not in names or item_set.group_size > 1:
        raise ValueError(
            "every needs items without types and groups, with a member named 'timestamp', but the item set has "
            f"{type(item_set).__name__} and the names {brief(item_set.names)}"
        )
    times = as_times("timestamp", as_tensor("timestamp", ItemSet(item_set.members[names.index("timestamp")])[:]))
    check_rising("timestamp", times)
    spans = times.numpy() // every
    changes = np.flatnonzero(spans[1:] != spans[:-1]) + 1
    return TimeSpans(torch.from_numpy(np.concatenate(([0], changes, [len(spans)])).astype(np.int64)))
