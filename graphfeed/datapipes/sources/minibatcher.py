"""Convert rows of items to a mini-batch."""

import warnings
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.ops.arguments import nearest
from graphfeed.ops.process import load_entry_point
from graphfeed.storage.datasets import LEGACY_NAMES

KNOWN_NAMES = {field.name for field in fields(MiniBatch)} | {"input_id", "destinations"}
"""The fields of a mini-batch, and attributes that `to_pyg_data()` and `sample_listed_pair` read."""


class ItemNameWarning(UserWarning):
    """An item set has no names, or a name that is not a field of a mini-batch."""


def minibatcher_default(batch: Any, names: tuple[str | None, ...] | None) -> Any:
    """Store each member of the items in the mini-batch field with its name. A member with the name None is left out.

    Former names still work: `seed_nodes` and `node_pairs` become `seeds`; together with `negative_srcs` and
    `negative_dsts`, shape (N, k), `node_pairs` become seeds, labels and indexes like those of negative sampling.

    Args:
        batch: Rows of an item set: a member, a tuple of members, or a dict of those by type, which becomes one dict by
            type per member.

    Returns:
        A `MiniBatch`, or the batch itself if there are no names. A name that is not a field becomes an attribute;
        `input_id`, which `MiniBatch.to_pyg_data` reads, and `destinations` do so without a warning.

    Warns:
        ItemNameWarning: There are no names, or a name is not a field.
    """
    if names is None:
        warnings.warn(
            "the item set has no names, so its rows are passed on unchanged; name them, for example names='seeds'",
            ItemNameWarning,
            stacklevel=2,
        )
        return batch
    if len(names) == 1:
        members = [batch]
    elif isinstance(batch, Mapping):
        members = [{seed_type: rows[number] for seed_type, rows in batch.items()} for number in range(len(names))]
    else:
        members = [batch[number] for number in range(len(names))]
    values = {name: member for name, member in zip(names, members, strict=True) if name is not None}
    if not LEGACY_NAMES.isdisjoint(values):
        values = load_entry_point("converters", "legacy_names")(values)
    minibatch = MiniBatch()
    for name, value in values.items():
        if name not in KNOWN_NAMES:
            warnings.warn(
                f"item name {name!r} is not a MiniBatch field; it is set as an attribute{nearest(name, KNOWN_NAMES)}",
                ItemNameWarning,
                stacklevel=2,
            )
        setattr(minibatch, name, value)
    return minibatch
