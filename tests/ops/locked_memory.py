"""Page-locked memory without a device: what CUDA's runtime answers, and what torch makes of the answers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from mmap import PAGESIZE
from typing import Any
from unittest.mock import patch

import torch

from graphfeed.ops.memory import pinned
from graphfeed.ops.memory.pinned import READ_ONLY
from tests.ops.stream_order import ORDER

ALREADY_REGISTERED = 712


class LockedMemory:
    """Stands for CUDA's runtime, and for the memory that torch pins itself."""

    def __init__(self) -> None:
        self.status = {0: 0, READ_ONLY: 0}
        """What it answers, by flag."""
        self.locked: dict[int, int] = {}
        """Addresses and sizes of what is registered."""
        self.kept: list[torch.Tensor] = []
        """What torch has pinned, which lives as long as this."""

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        assert address % PAGESIZE == size % PAGESIZE == 0
        if any(address < start + length and start < address + size for start, length in self.locked.items()):
            return ALREADY_REGISTERED
        if self.status[flags] == 0:
            self.locked[address] = size
        return self.status[flags]

    def cudaHostUnregister(self, address: int) -> int:
        size = self.locked.pop(address)
        ORDER.unlocked(address, address + size)
        return 0

    def pin_memory(self, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        """Return a copy that counts as pinned by torch; other memory is never on its pages."""
        if tensor.numel() == 0:
            return tensor.clone()
        memory = torch.empty(tensor.numel() * tensor.itemsize + 2 * PAGESIZE, dtype=torch.uint8)
        first = -memory.data_ptr() % PAGESIZE
        # Not a view of the larger block, because torch asks about the first byte of the storage.
        copy = torch.from_numpy(memory[first : first + tensor.numel() * tensor.itemsize].numpy())
        copy = copy.view(tensor.dtype).reshape(tensor.shape).copy_(tensor)
        self.kept.append(copy)
        self.locked[copy.untyped_storage().data_ptr()] = copy.untyped_storage().nbytes()
        return copy

    def is_pinned(self, tensor: torch.Tensor, device: Any = None) -> bool:
        """Answer as torch does: whether the first byte of the tensor's storage is locked."""
        first = tensor.untyped_storage().data_ptr()
        return any(start <= first < start + size for start, size in self.locked.items())

    def holds_all(self, tensor: torch.Tensor) -> bool:
        """Tell whether every byte between a tensor's first and last is locked."""
        place, last = tensor.data_ptr(), tensor.data_ptr() + span_of(tensor)
        while place < last:
            ends = (start + size for start, size in tuple(self.locked.items()) if start <= place < start + size)
            end = next(ends, None)
            if end is None:
                return False
            place = end
        return True

    def check_copy(self, tensor: torch.Tensor) -> None:
        """Raise as CUDA does where a copy reads memory of which only a part is locked, or in two steps."""
        start, end = tensor.data_ptr(), tensor.data_ptr() + span_of(tensor)
        for first, size in self.locked.items():
            if first < end and start < first + size and not (first <= start and end <= first + size):
                raise RuntimeError("CUDA error: invalid argument; a copy reads memory that is registered in part")

    @contextmanager
    def installed(self) -> Iterator["LockedMemory"]:
        """Let torch and graphfeed page-lock memory here."""
        with ExitStack() as stack:
            for owner, name, value in (
                (torch.cuda, "is_available", lambda: True),
                (torch.cuda, "is_initialized", lambda: True),
                (torch.cuda, "cudart", lambda: self),
                (torch.Tensor, "is_pinned", lambda tensor, device=None: self.is_pinned(tensor)),
                (torch.Tensor, "pin_memory", lambda tensor, device=None: self.pin_memory(tensor)),
                (pinned, "forget_error", lambda: None),
            ):
                stack.enter_context(patch.object(owner, name, value))
            yield self


def span_of(tensor: torch.Tensor) -> int:
    """Return how many bytes lie between a tensor's first and its end, with those that it skips."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.itemsize
