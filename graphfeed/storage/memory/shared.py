"""Tensors in shared memory, and the handles by which other processes find them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import lies_as_it_reads
from graphfeed.ops.memory import (
    ALIGNMENT,
    NUMPY_DTYPES,
    Bytes,
    MemoryFile,
    SharedMemory,
    align,
    all_shared,
    as_bytes,
    populate,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one tensor lies in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Handle:
    """What is pickled in place of tensors."""

    path: str
    inode: int
    size: int
    places: tuple[Place, ...]

    @classmethod
    def of(cls, memory: SharedMemory, places: Sequence[Place]) -> "Handle":
        """Return what tells another process where tensors lie in shared memory."""
        return cls(memory.path, memory.identity[1], memory.size, tuple(places))


def find_handle(tensor: torch.Tensor) -> Handle | None:
    """Return where a CPU tensor lies in shared memory; None if it does not, or its values are not stored in order."""
    # A handle has a shape and no strides.
    if tensor.numel() == 0 or not lies_as_it_reads(tensor):
        return None
    start = tensor.data_ptr()
    for memory in all_shared():
        if memory.start <= start and start + tensor.nbytes <= memory.start + memory.size:
            return Handle.of(memory, [place_of(tensor, start - memory.start)])
    return None


def place_of(tensor: torch.Tensor, offset: int) -> Place:
    return Place(offset, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


class SharedBlock:
    """Tensors side by side in shared memory.

    Example:
        >>> block = SharedBlock.create([torch.arange(3)])
        >>> SharedBlock.open(block.handle).tensors
        [tensor([0, 1, 2])]
    """

    def __init__(self, shared: SharedMemory, places: Sequence[Place]) -> None:
        self.memory: Bytes = np.asarray(shared)
        self.handle = Handle.of(shared, places)
        self.tensors = tensors_of(self.memory, places)

    @classmethod
    def allocate(cls, tensors: Sequence[torch.Tensor]) -> "SharedBlock":
        """Return a new block with tensors of the same shapes and dtypes, full of zeros; the given may be meta tensors.

        Once they are written, `collapse(block.memory)` makes reading them faster.
        """
        places, size = [], 0
        for tensor in tensors:
            places.append(place_of(tensor, size))
            size = align(size + tensor.nbytes)
        return cls(SharedMemory.create(max(size, ALIGNMENT)), places)

    @classmethod
    def create(cls, tensors: Sequence[torch.Tensor]) -> "SharedBlock":
        """Copy CPU tensors into a new block."""
        block = cls.allocate(tensors)
        populate(block.memory)
        for own, tensor in zip(block.tensors, tensors, strict=True):
            own.copy_(tensor)
        return block

    @classmethod
    def open(cls, handle: Handle) -> "SharedBlock":
        """Map a block of another process, or of this one.

        Raises:
            FileNotFoundError: The process that owns it is gone, or runs on another machine.
        """
        advice = "it lives as long as the object that was pickled, on this machine: keep that until it is unpickled"
        try:
            file = MemoryFile(os.open(handle.path, os.O_RDWR))
        except OSError as error:
            raise FileNotFoundError(
                f"shared block {handle.path} can't be opened ({error.strerror}); {advice}"
            ) from error
        found = os.fstat(file.descriptor)
        if found.st_ino != handle.inode or found.st_size < handle.size:
            # A path may be used again, so the inode tells whether it is the same memory.
            raise FileNotFoundError(f"shared block {handle.path} is gone, something else lies there now; {advice}")
        return cls(SharedMemory.open(file, handle.path, handle.size), handle.places)


def tensors_of(memory: Any, places: Sequence[Place]) -> list[torch.Tensor]:
    """Return the tensors at some places of a mapping, which they keep alive."""
    tensors = []
    for place in places:
        dtype: torch.dtype = getattr(torch, place.dtype)
        count = int(np.prod(place.shape, dtype=np.int64))
        if count == 0:  # torch takes no empty buffer
            tensors.append(torch.empty(place.shape, dtype=dtype))
        else:
            flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=place.offset)
            tensors.append(flat.reshape(place.shape))
    return tensors


def to_bytes(tensor: torch.Tensor) -> tuple[NDArray[np.uint8], torch.dtype, tuple[int, ...]]:
    # Of a view, only what it shows.
    return as_bytes(tensor).copy(), tensor.dtype, tuple(tensor.shape)


def from_bytes(data: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor that views bytes."""
    known = NUMPY_DTYPES.get(dtype)
    if known is not None and data.size:
        return torch.from_numpy(data.view(known).reshape(shape))
    return torch.from_numpy(data).view(dtype).reshape(shape) if data.size else torch.empty(shape, dtype=dtype)
