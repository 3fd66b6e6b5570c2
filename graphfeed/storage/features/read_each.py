"""Read rows of several features at once."""

from collections.abc import Sequence
from typing import Any

import torch

from graphfeed.ops.rows import gather_each
from graphfeed.storage.features.feature import TorchBasedFeature


def read_each(features: Sequence[Any], ids: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Read rows of several features, those of a dtype at once; None: not all features are tensors."""
    if len(features) < 2 or not all(type(feature) is TorchBasedFeature for feature in features):
        return None
    tensors, rows = [feature._tensor for feature in features], dict[int, torch.Tensor]()
    for dtype in {tensor.dtype for tensor in tensors}:
        own = [number for number, tensor in enumerate(tensors) if tensor.dtype is dtype]
        found = gather_each([tensors[number] for number in own], [ids[number] for number in own])
        rows.update(zip(own, found or [features[number].read(ids[number]) for number in own], strict=True))
    return [rows[number] for number in range(len(features))]
