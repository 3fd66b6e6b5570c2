"""A feature in a `FeatureStore` of PyG's, of which each mini-batch gets the rows that it needs."""

import copy
from typing import Any

import torch

from graphfeed.ops.arguments import as_tensor, brief
from graphfeed.storage import Feature


class StoreFeature(Feature):
    """Reads rows of a PyG `FeatureStore` by its own `get_tensor`, so that only these are ever there."""

    def __init__(self, store: Any, attr: Any) -> None:
        self._store, self._attr = store, copy.copy(attr)
        if not self._attr.is_set("group_name"):
            self._attr.group_name = None  # PyG's own `Data` leaves it unset, and then refuses to read

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        attr = copy.copy(self._attr)
        attr.index = None if ids is None else ids.to(torch.int64)
        rows = self._store.get_tensor(attr, convert_type=True)
        if rows is None:
            raise KeyError(f"{self} is not in the feature store")
        rows = as_tensor(str(self), rows)
        if ids is not None and len(rows) != len(ids):
            raise ValueError(f"{self} has {len(rows)} rows for {len(ids)} ids; let get_tensor return one for each id")
        return rows

    def size(self) -> torch.Size:
        return self._shape()[1:]

    def count(self) -> int:
        return self._shape()[0]

    def _shape(self) -> torch.Size:
        attr = copy.copy(self._attr)
        attr.index = None
        size = self._store.get_tensor_size(attr)
        if size is None:
            raise ValueError(f"the feature store knows no size of {self}; let get_tensor_size return it")
        return torch.Size(size)

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        del value, ids
        raise TypeError(f"{self} is only read here; call update_tensor() of the feature store")

    def __repr__(self) -> str:
        group = getattr(self._attr, "group_name", None)
        owner = f" of {brief(group)}" if isinstance(group, (str, tuple)) else ""
        return f"feature {self._attr.attr_name!r}{owner} in {type(self._store).__name__}"
