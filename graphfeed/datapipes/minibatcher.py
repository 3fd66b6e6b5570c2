"""How items become a mini-batch."""

import warnings
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch

FIELDS = {field.name for field in fields(MiniBatch)}


def minibatcher_default(batch: Any, names: tuple[str, ...] | None) -> Any:
    """Put each member of the items into the mini-batch field of its name.

    Args:
        batch: Rows of an item set: a member, a tuple of members, or a dict of those by type, which is turned into one
            dict by type a member.
        names: The item set's names.

    Returns:
        A `MiniBatch`; the batch as it is, with a warning, if there are no names. A name that is no field is set all
        the same, with a warning.
    """
    if names is None:
        warnings.warn(
            "the item set has no names, so its rows are passed on as they are; name them, for example names='seeds'",
            stacklevel=2,
        )
        return batch
    minibatch = MiniBatch()
    for place, name in enumerate(names):
        if name not in FIELDS:
            warnings.warn(
                f"item name {name!r} is no field of MiniBatch; it is set as an attribute",
                stacklevel=2,
            )
        if len(names) == 1:
            value = batch
        elif isinstance(batch, Mapping):
            value = {kind: rows[place] for kind, rows in batch.items()}
        else:
            value = batch[place]
        setattr(minibatch, name, value)
    return minibatch
