"""Identity of data by its rows: the same in memory, in files, in shared memory and on a GPU."""

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
from graphfeed.storage.features.encoded_feature import EncodedFeature
from graphfeed.storage.features.feature import TorchBasedFeature
from graphfeed.storage.graph.graph_arrays import GraphArrays

WHOLE_BYTES = 1 << 22
"""All rows of an array of at most this size count."""
SAMPLES = 1000
"""Number of rows of a larger array that count, evenly spaced. Using all would take as long as reading the data."""


def identify(data: Any, *more: Any) -> str:
    """Return a string that is equal for equal data and `more`, and most likely another for others; "" without rows.

    A change of a few rows of an array of more than 4 MiB may go unnoticed. `more` must be JSON-serializable.
    """
    parts = list(identity_parts(data))
    digest = hashlib.sha256(json.dumps(more).encode())
    for name, count, rows in parts:
        digest.update(f"\n{name} {count} ".encode())
        if isinstance(rows, torch.Tensor):
            digest.update(f"{dtype_and_shape(rows.dtype, rows.shape[1:])}\n".encode())
            digest.update(as_bytes(rows.detach().cpu().contiguous()).data)
        else:  # other objects count by their class
            digest.update(json.dumps(rows, skipkeys=True, default=lambda value: type(value).__name__).encode())
    return digest.hexdigest()[:16] if parts else ""


def identity_parts(data: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield the name of each array in the data, its number of rows, and some of the rows."""
    if isinstance(data, CachedFeature):  # it has the rows of its fallback
        yield from identity_parts(data._fallback_feature)
    elif isinstance(data, (TorchBasedFeature, DiskBasedFeature, EncodedFeature)):
        yield "rows", data.count(), data.read(sample_evenly(data.count(), data.size().numel() * data.dtype.itemsize))
    elif isinstance(data, HeteroItemSet):
        for seed_type, items in data.by_type.items():
            yield from ((f"{seed_type} {name}", *rest) for name, *rest in identity_parts(items))
    elif isinstance(data, ItemSet):
        if data.group_size > 1:
            yield "group size", data.group_size, None
        for number, member in enumerate(data.members):
            if isinstance(member, (torch.Tensor, int, list, range)):  # rows of other objects may be slow
                rows = ItemSet(member, names="rows")  # an unnamed mask would stand for nodes
                row_bytes = 8 if isinstance(member, list) or is_number(member) else rows[:1].nbytes
                yield f"member {number}", len(data), rows[sample_evenly(len(data), row_bytes)]
    elif isinstance(data, GraphArrays):
        for name, value in data.fields().items():
            for key, part in sorted(value.items()) if name.endswith("_attributes") else [("", value)]:
                if isinstance(part, torch.Tensor):
                    yield f"{name} {key}", len(part), part[sample_evenly(len(part), part[:1].nbytes).to(part.device)]
                else:
                    yield name, 0, part and sorted(part.items())


def sample_evenly(count: int, row_bytes: int) -> torch.Tensor:
    """Return positions of `count` rows, from the first to the last: all, or evenly spaced ones if they are large."""
    some = count if count * row_bytes <= WHOLE_BYTES else min(count, SAMPLES)
    return torch.arange(some, device="cpu") * (count - 1) // max(some - 1, 1)
