"""Bit-by-bit comparison of mini-batches and of whatever they are made of."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from graphfeed.ops import Key

PLAIN = (str, bytes, int, float, bool, type(None), torch.dtype, torch.device, Key)


def tensor_text(value: torch.Tensor) -> str:
    """Return dtype, shape and a hash of the bytes; the device doesn't count."""
    shape = f"{value.dtype}{list(value.shape)}"
    if value.numel() == 0:
        return shape
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{shape} {hashlib.sha256(data).hexdigest()}"


def leaves(value: Any, path: str = "value") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each part: of dicts also the order of keys, of objects all attributes."""
    if isinstance(value, torch.Tensor):
        yield path, tensor_text(value)
    elif isinstance(value, np.ndarray):
        yield path, f"array {tensor_text(torch.from_numpy(value.copy()))}"
    elif isinstance(value, PLAIN):
        yield path, f"{type(value).__name__} {value!r}"
    elif isinstance(value, Mapping):
        yield path, f"{type(value).__name__} of {list(value)!r}"
        for name, part in value.items():
            yield from leaves(part, f"{path}[{name!r}]")
    elif isinstance(value, (list, tuple)):
        yield path, f"{type(value).__name__} of {len(value)}"
        for place, part in enumerate(value):
            yield from leaves(part, f"{path}[{place}]")
    elif hasattr(value, "to_dict"):  # PyG's data
        yield from leaves(value.to_dict(), path)
    else:
        attributes = vars(value)
        yield path, f"{type(value).__qualname__} with {sorted(attributes)}"
        for name in sorted(attributes):
            yield from leaves(attributes[name], f"{path}.{name}")


def digest(value: Any) -> str:
    """Return a hash that two values share if and only if all their types, shapes, key orders and bits are equal."""
    return hashlib.sha256("\n".join(f"{path} {text}" for path, text in leaves(value)).encode()).hexdigest()


def digests(values: Any) -> list[str]:
    """Return the hash of each of several, such as the mini-batches of an epoch."""
    return [digest(value) for value in values]


def assert_same(first: Any, second: Any) -> None:
    """Fail, naming the first part that differs, unless two values are equal bit by bit."""
    left, right = dict(leaves(first)), dict(leaves(second))
    for path in [*left, *right]:
        assert left.get(path) == right.get(path), f"{path}: {left.get(path)} is not {right.get(path)}"
