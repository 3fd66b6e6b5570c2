"""Tensors of every dtype, and the tensors of mini-batches, with the types that a type checker expects."""

from typing import Any

import torch

import graphfeed as gf

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def tensor(value: Any) -> torch.Tensor:
    """Return a value that must be a tensor."""
    assert isinstance(value, torch.Tensor)
    return value


def layers_of(batch: gf.MiniBatch) -> list[gf.SampledSubgraph]:
    """Return the subgraphs of a mini-batch, which must have been sampled."""
    assert batch.sampled_subgraphs is not None
    return batch.sampled_subgraphs


def degrees(layer: gf.SampledSubgraph) -> torch.Tensor:
    """Return the number of edges of each column of a subgraph without types."""
    return layer.sampled_csc.indptr.diff()
