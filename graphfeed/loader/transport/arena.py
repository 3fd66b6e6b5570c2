"""Memory that one process fills and another one reads: blocks that are used again, under no name in the system."""

import bisect
import os
from dataclasses import dataclass

import numpy as np

from graphfeed.storage.memory.memory_map import Bytes, align, map_shared

ARENA_BYTES = 1 << 28
"""Address space, not memory: pages come when they are first written, and the lowest free ones are taken."""
SLOTS = 1024
"""Blocks of an arena that may be out at once; each has a byte that its reader sets when it is done."""


def require_linux() -> None:
    """Raise where the system has no memory files without names."""
    if not hasattr(os, "memfd_create"):
        raise RuntimeError("channels between processes need Linux; use threads, num_workers=0 or another executor")


def create_memory(size: int) -> int:
    """Make an anonymous memory file that is as large as asked, and return its descriptor."""
    descriptor = os.memfd_create("graphfeed", os.MFD_CLOEXEC)
    try:
        os.truncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of an arena."""

    slot: int
    start: int
    stop: int


class MemoryOwner:
    """Owns the descriptor of a memory file, or -1."""

    descriptor: int

    def close(self) -> None:
        """Close the descriptor, if it is open; the memory goes with the last process that maps it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            self.close()


class Arena(MemoryOwner):
    """The writer's side: hands out blocks, and finds by their readers' marks which ones may be used again.

    Nothing waits: where no room is left, the caller sends its bytes another way. Costs a few microseconds a block.

    Args:
        size: Of the memory file.
        descriptor: One that is there already, which it takes over; None makes one.

    Example:
        >>> arena = Arena(1 << 20)
        >>> block = arena.take(100)
        >>> block.stop - block.start
        128
    """

    def __init__(self, size: int = ARENA_BYTES, descriptor: int | None = None) -> None:
        self.size = max(align(size), SLOTS)
        self.descriptor = create_memory(self.size) if descriptor is None else descriptor
        self.memory = map_shared(self.descriptor, self.size)
        self.marks = self.memory[:SLOTS]
        self.starts = [SLOTS]
        self.stops = [self.size]
        self.slots = list(range(SLOTS - 1, -1, -1))
        self.out: dict[int, Block] = {}

    def take(self, size: int) -> Block | None:
        """Return the lowest free block of at least so many bytes, or None where there is none."""
        self.collect()
        size = align(max(size, 1))
        for number, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            if stop - start >= size and self.slots:
                if stop - start == size:
                    del self.starts[number], self.stops[number]
                else:
                    self.starts[number] = start + size
                block = Block(self.slots.pop(), start, start + size)
                self.out[block.slot] = block
                return block
        return None

    def collect(self) -> None:
        """Take back all blocks whose readers are done."""
        marks = self.marks.tobytes()
        slot = marks.find(1)
        while slot >= 0:
            self.marks[slot] = 0
            self.give_back(slot)
            slot = marks.find(1, slot + 1)

    def give_back(self, slot: int) -> None:
        """Make a block free, and one with its free neighbours."""
        block = self.out.pop(slot)
        self.slots.append(slot)
        place = bisect.bisect(self.starts, block.start)
        start, stop = block.start, block.stop
        if place < len(self.starts) and self.starts[place] == stop:
            stop = self.stops[place]
            del self.starts[place], self.stops[place]
        if place and self.stops[place - 1] == start:
            self.stops[place - 1] = stop
        else:
            self.starts.insert(place, start)
            self.stops.insert(place, stop)


class Loan:
    """A block in a reader's hands; NumPy keeps it alive, and its writer learns when the last view of it is gone."""

    def __init__(self, marks: Bytes, slot: int, address: int, size: int) -> None:
        self.marks = marks
        self.slot = slot
        self.process = os.getpid()
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}

    def __del__(self) -> None:
        # A process that was forked off the reader holds a copy of this object, but no loan.
        if os.getpid() == self.process:
            self.marks[self.slot] = 1


class Reading:
    """The reader's side of an arena.

    Example:
        >>> arena = Arena(1 << 20)
        >>> block = arena.take(3)
        >>> arena.memory[block.start : block.start + 3] = [1, 2, 3]
        >>> Reading(arena.descriptor, arena.size).lend(block.slot, block.start, 3).tolist()
        [1, 2, 3]
    """

    def __init__(self, descriptor: int, size: int) -> None:
        # The marks lie at its beginning.
        self.marks = map_shared(descriptor, size)
        self.address = self.marks.ctypes.data

    def lend(self, slot: int, start: int, size: int) -> Bytes:
        """Return a block's bytes; it is free again once nothing views them."""
        # The loan refers to the mapping, which stays as long as anything views it.
        return np.asarray(Loan(self.marks, slot, self.address + start, size))
