"""Page-locked memory without a device: what CUDA's runtime answers, and what torch makes of the answers."""

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from math import prod
from mmap import PAGESIZE
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from graphfeed.ops.memory import pinned
from graphfeed.ops.memory.pinned import READ_ONLY
from tests.stand_ins.stream_order import ORDER

ALREADY_REGISTERED = 712
OTHER_VALUE = 1
"""Content of memory after it is freed: small, so that an index is not far out of range."""


class Block:
    """A block of torch's pinned memory, of a power of two bytes, which is never given back to the system."""

    def __init__(self, size: int) -> None:
        memory = np.empty(size + 2 * PAGESIZE, np.uint8)  # other memory is never on its pages
        first = -memory.ctypes.data % PAGESIZE
        self.bytes = memory[first : first + size]
        self.storage = 0
        """The storage that was handed out."""
        self.streams: set[Any] = set()
        """The streams on which it was copied since it was handed out."""

    def spoil(self) -> None:
        """Give it other values, as whoever gets it next."""
        self.bytes[:] = 0
        self.bytes[::8] = OTHER_VALUE


class LockedMemory:
    """Stands for CUDA's runtime, and for the memory that torch pins itself."""

    def __init__(self) -> None:
        self.status = {0: 0, READ_ONLY: 0}
        """Status codes by flag."""
        self.flags: list[int] = []
        """Flags of all registrations."""
        self.locked: dict[int, int] = {}
        """Addresses and sizes of what is registered."""
        self.blocks: dict[int, Block] = {}
        """Torch's pinned blocks, by address."""
        self.free: list[Block] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        assert address % PAGESIZE == size % PAGESIZE == 0
        if any(address < start + length and start < address + size for start, length in self.locked.items()):
            return ALREADY_REGISTERED
        self.flags.append(flags)
        if self.status[flags] == 0:
            self.locked[address] = size
        return self.status[flags]

    def cudaHostUnregister(self, address: int) -> int:
        size = self.locked.pop(address)
        ORDER.unlocked(address, address + size)
        return 0

    def pin_memory(self, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        """Return a copy that counts as pinned by torch, unless the tensor does."""
        if tensor.numel() == 0:
            return tensor.clone()
        if self.is_pinned(tensor):
            return tensor
        return self.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)

    def empty(self, shape: Any, *, dtype: torch.dtype, **_: Any) -> torch.Tensor:
        """Return what `torch.empty(..., pin_memory=True)` does, in a block that was freed if one has its size."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = 1 << (prod(shape) * dtype.itemsize - 1).bit_length()
        block = next((block for block in self.free if block.bytes.size == size), None)
        if block is None:
            block = Block(size)
            self.blocks[block.bytes.ctypes.data] = block
            self.locked[block.bytes.ctypes.data] = size
        else:
            self.free.remove(block)
        # Not a view of a larger storage, because torch asks about the first byte of the storage.
        own = block.bytes[: prod(shape) * dtype.itemsize]
        weakref.finalize(own, self.take_back, block)
        made = torch.from_numpy(own).view(dtype).reshape(shape)
        block.storage = made.untyped_storage()._cdata
        return made

    def take_back(self, block: Block) -> None:
        """Reuse a freed block: at once or, if it was copied, when the streams have finished the copies.

        Torch doesn't track kernels that read it.
        """
        left = set(block.streams)

        def passed(stream: Any) -> None:
            left.discard(stream)
            if not left:
                hand_out()

        def hand_out() -> None:
            block.streams.clear()
            block.spoil()
            self.free.append(block)

        for stream in block.streams:
            stream.add(lambda stream=stream: passed(stream))
        if not left:
            hand_out()

    def note_copy(self, tensor: torch.Tensor, stream: Any) -> None:
        """Note that a stream copies a tensor without a wait, as torch does for storages in its own pinned memory.

        Of other storages there, such as those of NumPy arrays, torch only knows tensors at the start of a block.
        """
        own = tensor.untyped_storage()._cdata
        for start, block in tuple(self.blocks.items()):
            if block.storage == own or start == tensor.data_ptr():
                block.streams.add(stream)

    def is_pinned(self, tensor: torch.Tensor, device: Any = None) -> bool:
        """Answer as torch does: whether the first byte of the tensor's storage is locked."""
        first = tensor.untyped_storage().data_ptr()
        return any(start <= first < start + size for start, size in self.locked.items())

    def holds_all(self, tensor: torch.Tensor) -> bool:
        """Return whether all bytes from a tensor's first to its last one are locked."""
        place, last = tensor.data_ptr(), tensor.data_ptr() + span_of(tensor)
        while place < last:
            ends = (start + size for start, size in tuple(self.locked.items()) if start <= place < start + size)
            end = next(ends, None)
            if end is None:
                return False
            place = end
        return True

    def source_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the CPU as a copy on a device will find it: other values if its block is reused before."""
        # CUDA sets memory aside before it returns if it is not page-locked, and takes a number by its value.
        if not tensor.dim() or not self.holds_all(tensor):
            return tensor.clone()
        first, size = tensor.data_ptr(), span_of(tensor)
        for start, block in tuple(self.blocks.items()):
            if start <= first < start + block.bytes.size:
                whole = torch.from_numpy(block.bytes[first - start : first - start + size]).view(tensor.dtype)
                return whole.as_strided(tensor.shape, tensor.stride())
        return tensor

    def check_copy(self, tensor: torch.Tensor) -> None:
        """Raise as CUDA does where a copy reads memory of which only a part is locked, or in two steps."""
        start, end = tensor.data_ptr(), tensor.data_ptr() + span_of(tensor)
        for first, size in self.locked.items():
            if first < end and start < first + size and not (first <= start and end <= first + size):
                raise RuntimeError("CUDA error: invalid argument; a copy reads memory that is registered in part")

    @contextmanager
    def installed(self) -> Iterator["LockedMemory"]:
        """Make torch and graphfeed page-lock memory here."""
        with ExitStack() as stack:
            for owner, name, value in (
                (torch.cuda, "is_available", lambda: True),
                (torch.cuda, "is_initialized", lambda: True),
                (torch.cuda, "is_current_stream_capturing", lambda: False),
                (torch.cuda, "cudart", lambda: self),
                (torch, "empty", partial(empty_in, self, torch.empty)),
                (torch.Tensor, "is_pinned", lambda tensor, device=None: self.is_pinned(tensor)),
                (torch.Tensor, "pin_memory", lambda tensor, device=None: self.pin_memory(tensor)),
                (pinned, "forget_error", lambda: None),
            ):
                stack.enter_context(patch.object(owner, name, value))
            yield self


def empty_in(memory: LockedMemory, empty: Any, *shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
    """Stand for `torch.empty`."""
    made: torch.Tensor = memory.empty(*shape, **options) if pin_memory else empty(*shape, **options)
    return made


def span_of(tensor: torch.Tensor) -> int:
    """Return how many bytes lie between a tensor's first and its end, with those that it skips."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.itemsize
