"""An allocator in shared memory: one process writes blocks, and another one frees them after reading them."""

import bisect
import os
from dataclasses import dataclass

import numpy as np

from graphfeed.ops.memory import Bytes, MemoryFile, align, map_shared

SLOTS = 1024
"""Maximum number of used blocks of an arena; each has a byte that its reader sets when it is done."""


@dataclass(frozen=True, slots=True)
class ArenaBlock:
    """A piece of an arena."""

    slot: int
    start: int
    stop: int


class Arena:
    """The writer's side of an arena in shared memory: allocates blocks, and frees those that readers are done with."""

    def __init__(self, size: int, file: MemoryFile | None = None) -> None:
        self.size = max(align(size), SLOTS)
        self.file = MemoryFile.create(self.size) if file is None else file
        self.memory = map_shared(self.file.descriptor, self.size)
        self.marks = self.memory[:SLOTS]
        self.starts = [SLOTS]
        self.stops = [self.size]
        self.slots = list(range(SLOTS - 1, -1, -1))
        self.in_use: dict[int, ArenaBlock] = {}

    def allocate(self, size: int) -> ArenaBlock | None:
        """Return the lowest free block of at least `size` bytes, or None if there is none."""
        # Never waits, and takes a few microseconds. If there is no block, the caller sends the bytes in another way.
        self.reclaim()
        size = align(max(size, 1))
        for number, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            if stop - start >= size and self.slots:
                if stop - start == size:
                    del self.starts[number], self.stops[number]
                else:
                    self.starts[number] = start + size
                block = ArenaBlock(self.slots.pop(), start, start + size)
                self.in_use[block.slot] = block
                return block
        return None

    def reclaim(self) -> None:
        # A copy, because NumPy fails if readers set marks between its two passes.
        for slot in np.flatnonzero(self.marks.copy()).tolist():
            self.marks[slot] = 0
            self.free(slot)

    def free(self, slot: int) -> None:
        """Free a block, and merge it with its free neighbours."""
        block = self.in_use.pop(slot)
        self.slots.append(slot)
        index = bisect.bisect(self.starts, block.start)
        start, stop = block.start, block.stop
        if index < len(self.starts) and self.starts[index] == stop:
            stop = self.stops[index]
            del self.starts[index], self.stops[index]
        if index and self.stops[index - 1] == start:
            self.stops[index - 1] = stop
        else:
            self.starts.insert(index, start)
            self.stops.insert(index, stop)


class BlockLease:
    """A block that is owned by its reader. NumPy arrays keep it alive; its deletion marks the block as free."""

    def __init__(self, marks: Bytes, slot: int, address: int, size: int) -> None:
        self.marks = marks
        self.slot = slot
        self.process = os.getpid()
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}

    def __del__(self) -> None:
        # A process forked from the reader has a copy of this object, but only the reader owns the block.
        if os.getpid() == self.process:
            self.marks[self.slot] = 1


class ArenaReader:
    """The reader's side of an arena.

    Example:
        >>> arena = Arena(1 << 20)
        >>> block = arena.allocate(3)
        >>> arena.memory[block.start : block.start + 3] = [1, 2, 3]
        >>> ArenaReader(arena.file.descriptor, arena.size).lease(block.slot, block.start, 3).tolist()
        [1, 2, 3]
    """

    def __init__(self, descriptor: int, size: int) -> None:
        # The marks are at the beginning of the arena.
        self.marks = map_shared(descriptor, size)
        self.address = self.marks.ctypes.data

    def lease(self, slot: int, start: int, size: int) -> Bytes:
        """Return the bytes of a block, which becomes free when no array views them any more."""
        # The lease refers to the mapping, which therefore lives as long as any view.
        return np.asarray(BlockLease(self.marks, slot, self.address + start, size))
