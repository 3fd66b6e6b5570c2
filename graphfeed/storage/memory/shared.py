"""Tensors in shared memory and in mapped files, and handles by which other processes open them without a copy."""

import mmap
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import is_plain_memory
from graphfeed.ops.memory import (
    ALIGNMENT,
    NUMPY_DTYPES,
    Bytes,
    FileMemory,
    MemoryFile,
    SharedMemory,
    align,
    as_bytes,
    is_written,
    map_file,
    mapping_of,
    populate,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Location, shape and dtype of a tensor in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Handle:
    """Description of tensors in shared memory, pickled instead of them."""

    path: str
    inode: int
    size: int
    places: tuple[Place, ...]

    @classmethod
    def of(cls, memory: SharedMemory, places: Sequence[Place]) -> "Handle":
        """Return the handle of tensors at the given places in shared memory."""
        return cls(memory.path, memory.identity[1], memory.size, tuple(places))


def find_handle(tensor: torch.Tensor) -> Handle | None:
    """Return the handle of a contiguous CPU tensor in shared memory; None for other tensors."""
    # A handle has a shape and no strides.
    if tensor.numel() == 0 or not is_plain_memory(tensor):
        return None
    start = tensor.data_ptr()
    memory = mapping_of(start, start + tensor.nbytes)
    return Handle.of(memory, [place_of(tensor, start - memory.start)]) if isinstance(memory, SharedMemory) else None


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Location, shape, strides and dtype of a tensor in a file."""

    path: str
    inode: int
    size: int
    modified_ns: int
    """Modification time of the file."""
    shared: bool
    """Whether writes to the tensor reach the file."""
    offset: int
    num_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def open(self) -> torch.Tensor:
        """Map the tensor. Writes reach the file if those of the sender do; otherwise they stay in this process.

        Warns if the file was written to or touched since the tensor was sent. A file that can't be opened raises a
        FileNotFoundError; a different file at the path, or one of a different size, a RuntimeError.
        """
        advice = "don't change a file while it is in use; write new data to another one"
        # Opened for writing only if the sender's writes reach the file, too: then both see each other's writes.
        try:
            file = MemoryFile(os.open(self.path, os.O_RDWR if self.shared else os.O_RDONLY))
        except OSError as error:
            raise FileNotFoundError(
                f"{self.path}, from which a tensor was mapped, can't be opened ({error.strerror}); {advice}"
            ) from error
        found = os.fstat(file.descriptor)
        if (found.st_ino, found.st_size) != (self.inode, self.size):
            raise RuntimeError(
                f"{self.path} has changed since it was sent: it was file {self.inode} of {self.size} bytes, and is "
                f"file {found.st_ino} of {found.st_size} bytes; {advice}"
            )
        # The sender maps the same file, so it sees the same changes. A new modification time doesn't prove that bytes
        # changed, and a worker may have to replace a lost one at any time, so this is not an error. If the processes
        # share the file for writing, it is expected.
        if not self.shared and found.st_mtime_ns != self.modified_ns:
            warnings.warn(f"{self.path} was written to or touched since it was sent; {advice}", stacklevel=2)
        # A mapping begins at a page boundary; the tensor begins somewhere in the first page.
        before = self.offset % mmap.ALLOCATIONGRANULARITY
        bounds = before + self.num_bytes, self.offset - before
        memory = map_file(file.descriptor, self.path, *bounds, shared=self.shared)
        dtype: torch.dtype = getattr(torch, self.dtype)
        flat = torch.frombuffer(memory, dtype=dtype, count=self.num_bytes // dtype.itemsize, offset=before)
        return flat.as_strided(self.shape, self.strides)


def find_places(tensors: Sequence[torch.Tensor], fewest_bytes: int = 0) -> list[FilePlace | Handle | None]:
    """Return the handle of each tensor in shared memory, or its file if larger than `fewest_bytes`; None for others."""
    return [
        find_handle(tensor) or (find_in_file(tensor) if tensor.nbytes > fewest_bytes else None) for tensor in tensors
    ]


def file_of(tensor: torch.Tensor) -> FileMemory | None:
    """Return the mapped file that contains a CPU tensor, or None."""
    memory = mapping_of(tensor.data_ptr(), tensor.data_ptr() + num_bytes_spanned(tensor))
    return memory if isinstance(memory, FileMemory) and tensor.numel() else None


def num_bytes_spanned(tensor: torch.Tensor) -> int:
    # From the first value to the last, for any strides.
    steps = sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


def find_in_file(tensor: torch.Tensor) -> FilePlace | None:
    """Return the place of a CPU tensor in a mapped file; None if it isn't in one, or the file has other values."""
    memory, size = file_of(tensor), num_bytes_spanned(tensor)
    # The values of a conjugate or negative view differ from the bytes.
    if memory is None or tensor.is_conj() or tensor.is_neg():
        return None
    try:
        found = os.stat(memory.path)
    except OSError:
        return None
    # Another file is at the path now, or the tensor has private writes that are not in the file.
    if found.st_ino != memory.inode or (
        memory.access == "c" and is_written(tensor.data_ptr(), tensor.data_ptr() + size)
    ):
        return None
    return FilePlace(
        path=memory.path,
        inode=found.st_ino,
        size=found.st_size,
        modified_ns=found.st_mtime_ns,
        shared=memory.access == "r+",
        offset=memory.offset + tensor.data_ptr() - memory.start,
        num_bytes=size,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
    )


def place_of(tensor: torch.Tensor, offset: int) -> Place:
    return Place(offset, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


class SharedBlock:
    """Tensors stored contiguously in shared memory.

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
        """Return a block of zeros shaped like the tensors, which may be meta tensors; `collapse` it once written."""
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
        """Map a block. Raises a FileNotFoundError if its owner has exited or runs on another machine."""
        advice = "it exists on this machine while the pickled object does: keep that object until it is unpickled"
        try:
            file = MemoryFile(os.open(handle.path, os.O_RDWR))
        except OSError as error:
            raise FileNotFoundError(
                f"shared block {handle.path} can't be opened ({error.strerror}); {advice}"
            ) from error
        found = os.fstat(file.descriptor)
        if found.st_ino != handle.inode or found.st_size < handle.size:
            # A path may be reused, so the inode identifies the memory.
            raise FileNotFoundError(f"shared block {handle.path} is gone, another file replaced it; {advice}")
        return cls(SharedMemory.open(file, handle.path, handle.size), handle.places)


def tensors_of(memory: Any, places: Sequence[Place]) -> list[torch.Tensor]:
    """Return the tensors at the given places of a mapping; they keep it alive."""
    tensors = []
    for place in places:
        dtype: torch.dtype = getattr(torch, place.dtype)
        count = int(np.prod(place.shape, dtype=np.int64))
        if count == 0:  # torch rejects empty buffers
            tensors.append(torch.empty(place.shape, dtype=dtype, device="cpu"))
        else:
            flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=place.offset)
            tensors.append(flat.reshape(place.shape))
    return tensors


def to_bytes(tensor: torch.Tensor) -> tuple[NDArray[np.uint8], torch.dtype, tuple[int, ...]]:
    # Only the visible values of a view.
    return as_bytes(tensor).copy(), tensor.dtype, tuple(tensor.shape)


def from_bytes(data: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor that views the bytes."""
    known = NUMPY_DTYPES.get(dtype)
    if known is not None and data.size:
        return torch.from_numpy(data.view(known).reshape(shape))
    return (
        torch.from_numpy(data).view(dtype).reshape(shape)
        if data.size
        else torch.empty(shape, dtype=dtype, device="cpu")
    )
