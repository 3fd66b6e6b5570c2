"""The identity of data, by their rows: the same in memory, in files, in shared memory and on a GPU."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch

from graphfeed.ops.memory import as_bytes
from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet, is_number
from graphfeed.storage.features import dtype_and_shape
from graphfeed.storage.features.cached_feature import CachedFeature
from graphfeed.storage.features.disk_based_feature import DiskBasedFeature
from graphfeed.storage.features.feature import TorchBasedFeature
from graphfeed.storage.graph.graph_arrays import GraphArrays

WHOLE_BYTES = 1 << 22
"""All rows of an array of so many bytes count."""
SAMPLES = 1000
"""How many rows of a larger one count, evenly spaced. All of them would take as long as reading the data."""


def identify(data: Any, *more: Any) -> str:
    """Return the same text for the same data and `more`, and for others most likely another; "" if no rows are known.

    A change of a few rows of an array of more than 4 MiB may go unnoticed. `more` is what JSON can hold.
    """
    parts = list(parts_of(data))
    digest = hashlib.sha256(json.dumps(more).encode())
    for name, count, rows in parts:
        digest.update(f"\n{name} {count} ".encode())
        if isinstance(rows, torch.Tensor):
            digest.update(f"{dtype_and_shape(rows.dtype, rows.shape[1:])}\n".encode())
            digest.update(as_bytes(rows.detach().cpu().contiguous()).data)
        else:  # objects that Python may write another way in each run count by their class
            digest.update(json.dumps(rows, skipkeys=True, default=lambda value: type(value).__name__).encode())
    return digest.hexdigest()[:16] if parts else ""


def parts_of(data: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield the name of each array of some data, the number of its rows, and some of them."""
    if isinstance(data, CachedFeature):  # it has the rows of what is behind it
        yield from parts_of(data._fallback_feature)
    elif isinstance(data, (TorchBasedFeature, DiskBasedFeature)):
        yield "rows", data.count(), data.read(spread(data.count(), data.size().numel() * data.dtype.itemsize))
    elif isinstance(data, HeteroItemSet):
        for seed_type, items in data.by_type.items():
            yield from ((f"{seed_type} {name}", *rest) for name, *rest in parts_of(items))
    elif isinstance(data, ItemSet):
        for number, member in enumerate(data.members):
            if isinstance(member, (torch.Tensor, int, list, range)):  # of other objects, each row may take long
                rows = ItemSet(member, names="rows")  # a mask without a name would stand for nodes
                row_bytes = 8 if isinstance(member, list) or is_number(member) else rows[:1].nbytes
                yield f"member {number}", len(data), rows[spread(len(data), row_bytes)]
    elif isinstance(data, GraphArrays):
        for name, value in data.fields().items():
            for key, part in sorted(value.items()) if name.endswith("_attributes") else [("", value)]:
                if isinstance(part, torch.Tensor):
                    yield f"{name} {key}", len(part), part[spread(len(part), part[:1].nbytes).to(part.device)]
                else:
                    yield name, 0, part and sorted(part.items())


def spread(count: int, row_bytes: int) -> torch.Tensor:
    """Return positions from the first to the last of so many rows: of all, or evenly spaced ones if they are large."""
    some = count if count * row_bytes <= WHOLE_BYTES else min(count, SAMPLES)
    return torch.arange(some, device="cpu") * (count - 1) // max(some - 1, 1)
