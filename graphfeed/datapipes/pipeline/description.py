"""Readable descriptions of stages and chains: tensors as dtype and shape, without default values."""

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import torch

from graphfeed.storage import FeatureStore, HeteroItemSet, ItemSet

LONGEST = 100
MOST_PARTS = 16


def value_in_line(value: Any) -> str:
    """Return a short description of a value."""
    if isinstance(value, torch.Tensor):
        if value.numel() <= 1 and value.layout == torch.strided and not value.is_meta:
            return str(value.tolist())
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (ItemSet, HeteroItemSet)):
        return f"{type(value).__name__}({len(value)} items)"
    if isinstance(value, FeatureStore):
        return f"{type(value).__name__}({len(list(value.keys()))} features)"
    if type(value) in (list, tuple):
        few = len(value) <= MOST_PARTS
        return f"[{', '.join(map(value_in_line, value))}]" if few else f"{type(value).__name__} of {len(value)}"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    text = repr(value)
    # A description of several lines would break the layout of the chain.
    if "\n" in text:
        return f"{type(value).__name__}(...)"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def describe_stage(stage: Any) -> str:
    """Return a description of a stage with its fields, except those that are stages or have their default."""
    words = []
    for field in fields(stage) if is_dataclass(stage) else ():
        value = getattr(stage, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        parts = value if isinstance(value, (list, tuple)) else (value,)
        is_input = any(part is source for part in parts for source in stage.inputs)
        # By identity, because comparing tensors gives no single bool.
        if field.repr and not is_input and value is not default:
            words.append(f"{field.name}={value_in_line(value)}")
    return f"{type(stage).__name__}({', '.join(words)})"


def describe_chain(pipe: Any) -> str:
    """Return the stages of a pipeline with arrows between them, source first. Branches of a join are in brackets."""
    before = [describe_chain(stage) for stage in pipe.inputs]
    text = describe_stage(pipe)
    if not before:
        return text
    return f"{before[0] if len(before) == 1 else '[' + ', '.join(before) + ']'} -> {text}"
