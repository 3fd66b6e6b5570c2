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
    rows: list[Any] = [None] * len(features)
    for dtype in {feature.dtype for feature in features}:
        own = [number for number, feature in enumerate(features) if feature.dtype is dtype]
        found = gather_each([features[number]._tensor for number in own], [ids[number] for number in own])
        for place, number in enumerate(own):
            rows[number] = features[number].read(ids[number]) if found is None else found[place]
    return rows
