"""A feature store of files."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch

from graphfeed.ops.arguments import brief, checked
from graphfeed.storage.features.disk_based_feature import DiskBasedFeature
from graphfeed.storage.features.encoded_feature import open_codes
from graphfeed.storage.features.feature import Feature, TorchBasedFeature
from graphfeed.storage.features.feature_store import BasicFeatureStore
from graphfeed.storage.memory.outside_files import read_npy, read_tensors

ENCODING_FILES = ("scale", "offset", "bound")
"""Keys of an encoding with the path of an array: one number per column."""


@checked
@dataclass(frozen=True)
class OnDiskFeatureData:
    """The entry of a feature in a dataset: its key, and the file of its rows."""

    domain: Literal["node", "edge", "graph"]
    name: str
    format: Literal["torch", "numpy"]
    path: str | Path
    type: str | None = None
    in_memory: bool = True
    extra_fields: dict[str, Any] = field(default_factory=dict)
    """The feature's metadata. `encoding` describes codes: `bits`, `size`, and the files `scale`, `offset`, `bound`."""

    def __post_init__(self) -> None:
        if self.domain not in ("node", "edge", "graph"):
            raise ValueError(f"{self.path}: domain must be 'node', 'edge' or 'graph', but is {brief(self.domain)}")
        if self.format not in ("torch", "numpy"):
            raise ValueError(f"{self.path}: format must be 'torch' or 'numpy', but is {brief(self.format)}")


def open_feature(spec: OnDiskFeatureData) -> Feature:
    encoding = spec.extra_fields.get("encoding")
    if encoding is not None:
        more = {name: value for name, value in spec.extra_fields.items() if name != "encoding"}
        stored = open_stored(replace(spec, extra_fields=more))
        arrays = {name: torch.from_numpy(read_npy(encoding[name])) for name in ENCODING_FILES if name in encoding}
        try:
            options = {name: value for name, value in encoding.items() if name not in ENCODING_FILES}
            return open_codes(stored, options, arrays)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{spec.path} doesn't fit its encoding: {error}") from error
    return open_stored(spec)


def open_stored(spec: OnDiskFeatureData) -> Feature:
    """Return the feature of the rows or codes in the file."""
    if spec.format == "torch":
        if not spec.in_memory:
            raise ValueError(
                f"{spec.path}: format torch must be in memory; save it with numpy.save to leave it on disk"
            )
        return TorchBasedFeature(read_tensors(Path(spec.path)), spec.extra_fields)
    if spec.in_memory:
        return TorchBasedFeature(torch.from_numpy(read_npy(spec.path)), spec.extra_fields)
    return DiskBasedFeature(spec.path, spec.extra_fields)


class TorchBasedFeatureStore(BasicFeatureStore):
    """Features from `.npy` and `.pt` files. Only tensors are unpickled, no other objects.

    Args:
        feat_data: One description per feature. A "numpy" feature with `in_memory=False` stays on disk.

    Raises:
        ValueError: The format is unknown, or a "torch" feature has `in_memory=False`.
    """

    @checked
    def __init__(self, feat_data: Sequence[OnDiskFeatureData]) -> None:
        for number, spec in enumerate(feat_data):
            if not isinstance(spec, OnDiskFeatureData):
                raise TypeError(f"feat_data[{number}] must be an OnDiskFeatureData, but is {brief(spec)}")
        super().__init__({(spec.domain, spec.type, spec.name): open_feature(spec) for spec in feat_data})

    def pin_memory_(self) -> Self:
        """Page-lock the features in memory, in place, with a warning for each one on disk. Return this object.

        Raises:
            RuntimeError: torch finds no CUDA device.
        """
        for feature in self._features.values():
            feature.pin_memory_()
        return self

    def to(self, device: torch.device | str) -> Self:
        """Return a store with its features on a device or "pinned". Features on disk issue a warning and are kept."""
        store = copy.copy(self)
        store._features = {key: feature.to(device) for key, feature in self._features.items()}
        return store
