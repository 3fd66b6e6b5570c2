"""Checks of the rows of a feature in memory."""

from typing import TYPE_CHECKING, Any

import torch

from graphfeed.ops import is_gpu
from graphfeed.ops.arguments import as_tensor, kind_of

if TYPE_CHECKING:
    from graphfeed.storage.features.feature import Feature


def check_constant(feature: "Feature") -> "Feature":
    """Return a feature whose rows may be cached or sent to other ranks; raise a TypeError if they are trained."""
    if feature.is_trained:
        raise TypeError(
            f"rows of {kind_of(feature)} can't be cached or partitioned, because each step changes them; use "
            "the feature itself"
        )
    return feature


def check_feature_rows(values: Any) -> torch.Tensor:
    rows = as_tensor("torch_feature", values)
    if rows.dim() < 2:
        raise ValueError(
            "dimension of torch_feature in TorchBasedFeature must be greater than 1, but got "
            f"{rows.dim()} dimension; make a column of it with .unsqueeze(1)"
        )
    if rows.requires_grad:
        raise ValueError(
            "torch_feature requires gradients, but rows that are read have none; pass its .detach(), or use a "
            "TrainableFeature, whose rows have gradients"
        )
    if rows.is_meta and not is_gpu(rows.device):
        raise ValueError(
            "torch_feature is on the device 'meta', where tensors have no values; pass one with values, such as "
            "torch.load(path, map_location='cpu')"
        )
    # Gathering needs each row in one piece of memory.
    return rows.contiguous()
