"""Dicts of tensors as a short text and the bytes of the tensors. Nothing is pickled."""

import json
from collections.abc import Mapping, Sequence

import torch

from graphfeed.ops.buffers import as_bytes
from graphfeed.ops.shared_memory import Bytes
from graphfeed.storage.memory.shared import from_bytes

SampleMessage = dict[str, torch.Tensor]
"""How a sample is sent: tensors by name."""

NAMED = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
DTYPES = {name: value for name, value in NAMED.items() if not name.startswith("q")}
"""By name, without the quantized ones: a tensor of these needs more than its bytes."""
DTYPE_NAMES = {value: str(value).removeprefix("torch.") for value in DTYPES.values()}


def pack_tensors(message: Mapping[str, torch.Tensor]) -> tuple[bytes, list[Bytes]]:
    """Return a header and the bytes of each tensor; tensors on other devices are copied to the CPU.

    Raises:
        TypeError: The message is not a dict of dense tensors by name.

    Example:
        >>> header, buffers = pack_tensors({"ids": torch.arange(2)})
        >>> header, unpack_tensors(header, buffers)
        (b'[["ids", "int64", [2]]]', {'ids': tensor([0, 1])})
    """
    count_bytes(message)
    table = [(name, DTYPE_NAMES[tensor.dtype], tensor.shape) for name, tensor in message.items()]
    buffers = [as_bytes(tensor if tensor.is_cpu else tensor.cpu()) for tensor in message.values()]
    return json.dumps(table).encode(), buffers


def count_bytes(message: Mapping[str, torch.Tensor]) -> int:
    """Return how many bytes the tensors of a message have when they are sent.

    Raises:
        TypeError: The message is not a dict of dense tensors by name.
    """
    expected = "a message must be a dict of texts to tensors, but"
    if not isinstance(message, Mapping):
        raise TypeError(f"{expected} is a {type(message).__name__}")
    size = 0
    for name, tensor in message.items():
        if type(name) is not str or not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{expected} has {name!r}: {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise TypeError(f"tensors of a message must be dense, but {name!r} is {tensor.layout}; send its parts")
        size += tensor.numel() * tensor.itemsize
    return size


def unpack_tensors(header: bytes, buffers: Sequence[Bytes]) -> SampleMessage:
    """Return the tensors; they view the buffers."""
    table: list[tuple[str, str, list[int]]] = json.loads(header)
    pairs = zip(table, buffers, strict=True)
    return {name: from_bytes(buffer, DTYPES[dtype], tuple(shape)) for (name, dtype, shape), buffer in pairs}
