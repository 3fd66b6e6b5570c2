"""Rows of unknown number: memory that grows in place, without a second copy."""

import ctypes
import mmap
import os
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.memory import as_bytes
from graphfeed.ops.process import current_limits

FIRST_BYTES = 1 << 20
"""Size of the first mapping. Memory is allocated only where it is written."""
GROWTH = 1.25
"""Growth factor of the mapping. With two lanes, at most an eighth of it is unused."""


class GrowingRows:
    """Collects appended rows in one tensor."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, lanes: int = 1, descriptor: int | None = None) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        # Two lanes are for pairs stored as in an `edge_index`, all first parts before all second ones.
        self.lanes = lanes
        self.descriptor = descriptor  # of a file that grows; None for memory of this process
        self.row_bytes = int(np.prod(self.shape, dtype=np.int64)) * dtype.itemsize
        self.rows = 0
        self.room = 0
        """Capacity of a lane in rows."""
        self.memory: mmap.mmap | None = None

    @property
    def nbytes(self) -> int:
        return self.lanes * self.rows * self.row_bytes

    def append(self, parts: Sequence[torch.Tensor]) -> None:
        """Append the same number of rows to each lane, converted to the dtype."""
        count = len(parts[0])
        if self.row_bytes and self.rows + count > self.room:
            self._grow(self.rows + count)
        if self.row_bytes and count:
            # By NumPy: torch's threads synchronize at each copy, which took 4 times as long on a busy machine.
            view = self._view()
            for lane, part in enumerate(parts):
                start = (lane * self.room + self.rows) * self.row_bytes
                self._reserve(start, count)
                view[start : start + count * self.row_bytes] = as_bytes(part.to(self.dtype))
        self.rows += count

    def finish(self) -> torch.Tensor:
        """Return all rows, shape (rows, ...) or (lanes, rows, ...). No rows can be appended afterwards."""
        shape = (self.rows, *self.shape) if self.lanes == 1 else (self.lanes, self.rows, *self.shape)
        if self.nbytes == 0:
            return torch.empty(shape, dtype=self.dtype, device="cpu")
        self._move_lanes(self.rows)
        self._resize(self.nbytes)
        return torch.from_numpy(self._view()[: self.nbytes]).view(self.dtype).view(shape)

    def _view(self) -> NDArray[np.uint8]:
        assert self.memory is not None
        return np.frombuffer(self.memory, dtype=np.uint8)

    def _grow(self, rows: int) -> None:
        least = min(FIRST_BYTES, current_limits().part_bytes) // (self.lanes * self.row_bytes)
        room = max(rows, int(self.room * GROWTH), least)
        self._resize(self.lanes * room * self.row_bytes)
        self._move_lanes(room)

    def _move_lanes(self, room: int) -> None:
        up = room > self.room
        address = self._view().ctypes.data
        # Upwards, the last lane moves first, so that no lane is overwritten before it has moved.
        for lane in reversed(range(1, self.lanes)) if up else range(1, self.lanes):
            size = self.row_bytes
            self._reserve(lane * room * size, self.rows)
            ctypes.memmove(address + lane * room * size, address + lane * self.room * size, self.rows * size)
        self.room = room

    def _reserve(self, start: int, rows: int) -> None:
        # A full disk raises an error here; a write to the mapping would end the process.
        if self.descriptor is not None and rows and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.descriptor, start, rows * self.row_bytes)

    def _resize(self, size: int) -> None:
        """Map `size` bytes, keeping the contents."""
        if self.descriptor is not None:
            os.truncate(self.descriptor, size)
            self.memory = mmap.mmap(self.descriptor, size)
        elif self.memory is None:
            self.memory = map_anonymous(size)
        else:
            try:
                self.memory.resize(size)
            except SystemError:  # this system can't move mappings
                before, self.memory = self.memory, map_anonymous(size)
                kept = min(len(before), size)
                self.memory[:kept] = memoryview(before)[:kept]


def map_anonymous(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
