"""Named tensors as a table in JSON and the bytes of each tensor. Nothing is pickled, and what comes in is checked."""

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

import torch

from graphfeed.ops.buffers import as_bytes
from graphfeed.ops.shared_memory import Bytes
from graphfeed.storage.memory.shared import from_bytes

SampleMessage = dict[str, torch.Tensor]
"""How a sample is sent: tensors by name."""
Row: TypeAlias = tuple[str, torch.dtype, tuple[int, ...], int]
"""What a table says of a tensor: its name, its dtype, its shape, and its size in bytes."""

NAMED = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
DTYPES = {name: value for name, value in NAMED.items() if not name.startswith("q")}
"""By name, without the quantized ones: a tensor of these needs more than its bytes."""
DTYPE_NAMES = {value: str(value).removeprefix("torch.") for value in DTYPES.values()}
MOST_DIMENSIONS, MOST_VALUES = 64, 1 << 60
"""What a shape may have, also one with a 0 in it: beyond them, NumPy and torch raise errors of several kinds."""


def pack_tensors(tensors: Mapping[str, torch.Tensor]) -> tuple[bytes, list[Bytes]]:
    """Return the table and the bytes of tensors; those on other devices are copied to the CPU.

    Raises:
        TypeError: They are not a dict of dense tensors by name.

    Example:
        >>> table, buffers = pack_tensors({"ids": torch.arange(2)})
        >>> table, unpack_tensors(table, buffers)
        (b'[["ids", "int64", [2]]]', {'ids': tensor([0, 1])})
    """
    count_bytes(tensors)
    table = [(name, DTYPE_NAMES[tensor.dtype], tensor.shape) for name, tensor in tensors.items()]
    buffers = [as_bytes(tensor if tensor.is_cpu else tensor.cpu()) for tensor in tensors.values()]
    return json.dumps(table).encode(), buffers


def count_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    """Return how many bytes tensors have when they are sent: more than they take in memory, where they are expanded.

    Raises:
        TypeError: They are not a dict of dense tensors by name.
    """
    expected = "a message must be a dict of texts to tensors, but"
    if not isinstance(tensors, Mapping):
        raise TypeError(f"{expected} is a {type(tensors).__name__}")
    size = 0
    for name, tensor in tensors.items():
        if type(name) is not str or not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{expected} has {name!r}: {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise TypeError(f"tensors of a message must be dense, but {name!r} is {tensor.layout}; send its parts")
        size += tensor.numel() * tensor.itemsize
    return size


def unpack_tensors(table: bytes, buffers: Sequence[Bytes]) -> SampleMessage:
    """Return the tensors; they view the buffers.

    Raises:
        ValueError: The table describes no tensors, or others than the buffers hold.
    """
    rows = zip(read_table(table), buffers, strict=True)
    return {name: from_bytes(buffer, dtype, shape) for (name, dtype, shape, _), buffer in rows}


def read_table(table: bytes) -> list[Row]:
    """Return the tensors that a table describes.

    Raises:
        ValueError: It describes no tensors.
    """
    try:
        rows = [(str(name), DTYPES[dtype], tuple(map(int, shape))) for name, dtype, shape in json.loads(table)]
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("what came is no message: its table describes no tensors") from error
    for *_, shape in rows:
        if len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0 or prod(filter(None, shape)) > MOST_VALUES:
            raise ValueError(f"what came is no message: no tensor has the shape {str(shape)[:80]}")
    return [(name, dtype, shape, prod(shape) * dtype.itemsize) for name, dtype, shape in rows]
