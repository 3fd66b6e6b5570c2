"""Encoding of tensors as bytes for memory, files and sockets: a header, then the aligned bytes of each tensor.

A `Frame` lays out any header and buffers contiguously. `encode_tensors` returns the header and buffers of named
tensors. Its header is JSON: `decode_tensors` executes no code, and validates everything that a sender may send.
"""

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import kind_of
from graphfeed.ops.memory import ALIGNMENT, Bytes, as_bytes
from graphfeed.storage.memory.shared import from_bytes

_NAMED = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
DTYPES = {name: dtype for name, dtype in _NAMED.items() if not name.startswith("q")}
"""Dtypes by name, without the quantized ones, whose tensors are more than their bytes."""
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MOST_DIMENSIONS, MOST_VALUES = 64, 1 << 56
"""Limits of a shape, even of one that contains a 0. Above them, NumPy and torch raise various errors."""
SIZES = struct.Struct("<2Q")
"""Start of a frame: the size of its header and the number of its buffers; the sizes of the buffers follow."""


class TensorSpec(NamedTuple):
    """Description of a tensor in a header."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def to_row(self) -> list[Any]:
        """Return the description as a list that JSON can represent."""
        return [self.name, DTYPE_NAMES[self.dtype], list(self.shape)]


def describe_tensors(tensors: Mapping[str, torch.Tensor]) -> list[TensorSpec]:
    """Return the descriptions of dense tensors, without reading their values."""
    expected = "a message must be a dict of strings to tensors, but"
    if not isinstance(tensors, Mapping):
        raise TypeError(f"{expected} is {kind_of(tensors)}")
    specs = []
    for name, tensor in tensors.items():
        if type(name) is not str or not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{expected} has {name!r}: {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise TypeError(f"tensors of a message must be dense, but {name!r} is {tensor.layout}; send its parts")
        specs.append(TensorSpec(name, tensor.dtype, tuple(tensor.shape)))
    return specs


def read_specs(rows: Any) -> list[TensorSpec]:
    """Return the descriptions for rows of `TensorSpec.to_row` after JSON. Other values raise a ValueError."""
    try:
        specs = [TensorSpec(name, DTYPES[dtype], tuple(shape)) for name, dtype, shape in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it describes no tensors ({type(error).__name__}: {error})") from error
    for name, _, shape in specs:
        if type(name) is not str or not all(type(length) is int and length >= 0 for length in shape):
            # The product below leaves out zeros: the other lengths of a shape with a 0 may overflow.
            raise ValueError(f"it describes no tensors: {name!r} has the shape {list(shape)}")
        if len(shape) > MOST_DIMENSIONS or math.prod(filter(None, shape)) > MOST_VALUES:
            raise ValueError(f"{name!r} has a shape that no tensor has: {list(shape)}")
    if len({spec.name for spec in specs}) < len(specs):
        raise ValueError("it describes two tensors of the same name")
    return specs


def encode_tensors(tensors: Mapping[str, torch.Tensor], head: Any = None) -> tuple[bytes, list[Bytes]]:
    """Return a header and the bytes of each tensor, as a view of a contiguous CPU tensor or a copy of another one.

    Args:
        tensors: Dense tensors by name.
        head: Additional data for the receiver, representable as JSON.

    Example:
        >>> header, buffers = encode_tensors({"ids": torch.arange(2)}, head="first")
        >>> header, decode_tensors(header, buffers)
        (b'["first", [["ids", "int64", [2]]]]', ('first', {'ids': tensor([0, 1])}))
    """
    rows = [spec.to_row() for spec in describe_tensors(tensors)]
    buffers = [as_bytes(tensor if tensor.is_cpu else tensor.cpu()) for tensor in tensors.values()]
    return json.dumps([head, rows]).encode(), buffers


def decode_tensors(header: bytes, buffers: Sequence[Bytes]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the head, and the tensors as views of the buffers. Raises a ValueError for an invalid or wrong header."""
    try:
        head, rows = json.loads(header)
        specs = read_specs(rows)
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"the header of a message of tensors can't be read: {error}") from error
    sizes = [buffer.size for buffer in buffers]
    if sizes != [spec.nbytes for spec in specs]:
        raise ValueError(f"{sum(sizes)} bytes in {len(sizes)} buffers were received, which don't match the header")
    pairs = zip(specs, buffers, strict=True)
    return head, {name: from_bytes(buffer, dtype, shape) for (name, dtype, shape), buffer in pairs}


def plan_frame(sizes: Iterable[int], start: int = 0, alignment: int = ALIGNMENT) -> tuple[list[int], int]:
    """Return the offsets of contiguous buffers, and the offset after the last, all multiples of `alignment`.

    Example:
        >>> plan_frame([10, 70, 0], start=3)
        ([64, 128, 256], 256)
    """
    # -x % a is the padding up to the next multiple.
    starts, end = [], start + -start % alignment
    for size in sizes:
        starts.append(end)
        end += size + -size % alignment  # rounded up
    return starts, end


class Frame:
    """A header and aligned buffers, to be written contiguously for `read_frame`. Nothing is copied before `write`.

    The size is aligned, too, so that frames can follow each other.

    Example:
        >>> frame = Frame(b"header", [np.arange(3, dtype=np.uint8)])
        >>> frame.write(memory := np.empty(frame.size, np.uint8))
        >>> read_frame(memory)
        (b'header', [array([0, 1, 2], dtype=uint8)], 128)
    """

    def __init__(self, header: bytes, buffers: Sequence[Bytes]) -> None:
        sizes = [buffer.size for buffer in buffers]
        self.head = struct.pack(f"<{2 + len(sizes)}Q", len(header), len(sizes), *sizes) + header
        self.buffers = buffers
        self.starts, self.size = plan_frame(sizes, len(self.head))

    def write(self, memory: Bytes) -> None:
        """Write the frame to the beginning of the memory. Padding bytes are not written."""
        memory[: len(self.head)] = np.frombuffer(self.head, np.uint8)
        for start, buffer in zip(self.starts, self.buffers, strict=True):
            memory[start : start + buffer.size] = buffer

    def pieces(self) -> Iterator[memoryview]:
        """Yield the pieces to write to a file or a socket, in order, padding included."""
        yield memoryview(self.head)
        end = len(self.head)
        for start, buffer in zip(self.starts, self.buffers, strict=True):
            # Zeros up to the next buffer.
            yield memoryview(bytes(start - end))
            yield buffer.data
            end = start + buffer.size
        yield memoryview(bytes(self.size - end))


def read_frame(memory: Bytes, largest_head: int | None = None) -> tuple[bytes, list[Bytes], int]:
    """Read the frame at the beginning of the memory; return its header, views of its buffers, and its size.

    Raises a ValueError if the frame is invalid or truncated, or has over `largest_head` bytes before the buffers.
    """
    if memory.size < SIZES.size:
        raise ValueError(f"a frame of tensors has at least {SIZES.size} bytes, but {memory.size} were received")
    header_size, num_buffers = SIZES.unpack_from(memory.data)
    begin = SIZES.size + 8 * num_buffers
    end = begin + header_size
    # Checked first, since a sender may claim any number of buffers.
    if end > (memory.size if largest_head is None else min(memory.size, largest_head)):
        limit = "" if largest_head is None else f", and its head may have {largest_head}"
        raise ValueError(f"a frame claims a head of {end} bytes, but all of it has {memory.size}{limit}")
    sizes = struct.unpack_from(f"<{num_buffers}Q", memory.data, SIZES.size)
    starts, stop = plan_frame(sizes, end)
    if stop > memory.size:
        raise ValueError(f"a frame claims {stop} bytes, but {memory.size} were received")
    buffers = [memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return memory[begin:end].tobytes(), buffers, stop
