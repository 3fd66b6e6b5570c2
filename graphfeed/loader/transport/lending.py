"""Results that lie where their receiver reads them: ops write into memory that is lent, and that is sent as a place."""

import struct
import threading
import weakref
from bisect import bisect_right
from collections import defaultdict
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np

from graphfeed.loader.transport.arena import Arena, Block, Loan, MemoryOwner, Reading, create_memory
from graphfeed.storage.memory.memory_map import Bytes

LENDING_BYTES = 1 << 30
"""Address space: blocks are as large as what they hold may become, and pages come when they are first written."""
SMALL_BYTES = 1 << 14
"""What is smaller is copied, or it would keep a block for little."""
COUNT = struct.Struct("<Q")
"""What a header begins with: how many buffers lie in blocks."""
PLACE = struct.Struct("<6Q")
"""A buffer's number; its block's slot, start and size; where in the block the buffer begins, and its size."""


class Holding(Loan):
    """A block in the hands of the process that writes it."""

    claimed = False
    """Whether somebody else sees to it that the block becomes free."""

    def __del__(self) -> None:
        if not self.claimed:
            super().__del__()


class Piece(NamedTuple):
    """A buffer that lies in a block, and where in the arena."""

    number: int
    start: int
    stop: int


class Lender(MemoryOwner):
    """The sender's side: a source of memory for a `BufferPool`, and what makes messages of what was written there.

    A buffer that lies in one of its blocks is sent as a place, without a copy. That is right only where nothing in this
    process can write to it any more, or see what the receiver writes: so a block is handed over when nothing here
    refers to it, which its array's death tells. The receiver's last reference gives it back. Buffers in a block that
    something here still refers to, as a stage that keeps a tensor for the next mini-batch, are copied like those in any
    other memory; so are small ones, and all but the largest of those that overlap, for they arrive apart.

    Where the receiver keeps so much that no room is left, `take` has nothing to give, and all is copied. It pickles to
    child processes of any start method; then use it there only, in any of their threads but `pack` in one.

    Args:
        descriptor: A memory file, which it takes over; -1 for none.
        size: Of the file.

    Example:
        >>> lender, borrower = open_lending(1 << 20)
        >>> memory = lender.take(1 << 16)
        >>> memory[:3] = [1, 2, 3]
        >>> buffers = [memory]
        >>> del memory
        >>> header, copied, kept = lender.pack(b"header", buffers)
        >>> header, (same,) = borrower.unpack(header, copied)
        >>> len(copied), bytes(header), same[:3].tolist()
        (1, b'header', [1, 2, 3])
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size
        self.lock = threading.Lock()
        self.arena: Arena | None = None
        self.holdings: dict[int, weakref.ref[Holding]] = {}
        """The latest of each slot."""

    def take(self, size: int) -> Bytes | None:
        """Return memory of so many bytes, which is free again when nothing views it; None where no room is left."""
        with self.lock:
            arena = self.arena or self.map()
            block = None if arena is None else arena.take(size)
            if arena is None or block is None:
                return None
            address = arena.memory.ctypes.data + block.start
            holding = Holding(arena.marks, block.slot, address, block.stop - block.start)
            self.holdings[block.slot] = weakref.ref(holding)
        return np.asarray(holding)[:size]

    def map(self) -> Arena | None:
        """Map the file, the first time; where there is no room for it, do without."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                self.arena = Arena(self.size, descriptor)
                self.arena.close()
        return self.arena

    def pack(self, header: bytes, buffers: list[Any]) -> tuple[bytes, list[Any], list[Any]]:
        """Return a message's header with places in it, what is left to copy, and what must live until that is sent.

        Takes the arrays out of the list: what it gives is right where the caller keeps no other reference to them.
        """
        arena = self.arena
        if arena is None:
            return COUNT.pack(0) + header, buffers, []
        lent: list[tuple[Piece, Block]] = []
        kept = []
        for block, pieces in self.claim(arena, buffers):
            for piece in pieces:
                buffers[piece.number] = arena.memory[piece.start : piece.stop]
            holding = self.holdings[block.slot]()
            chosen = worth_lending(pieces) if holding is None else []
            lent.extend((piece, block) for piece in chosen)
            if holding is not None:
                holding.claimed = False
                kept.append(holding)
            elif not chosen:
                address = arena.memory.ctypes.data + block.start
                kept.append(Holding(arena.marks, block.slot, address, block.stop - block.start))
        lent.sort()
        places = [
            PLACE.pack(number, block.slot, block.start, block.stop - block.start, start - block.start, stop - start)
            for (number, start, stop), block in lent
        ]
        for piece, _ in reversed(lent):
            del buffers[piece.number]
        return b"".join((COUNT.pack(len(lent)), *places, header)), buffers, kept

    def claim(self, arena: Arena, buffers: list[Any]) -> list[tuple[Block, list[Piece]]]:
        """Return the blocks that buffers lie in, which will not be free by themselves, and the buffers in each."""
        first = arena.memory.ctypes.data
        with self.lock:
            blocks = sorted(arena.out.values(), key=lambda block: block.start)
        starts = [block.start for block in blocks]
        found: defaultdict[Block, list[Piece]] = defaultdict(list)
        for number, buffer in enumerate(buffers):
            start = buffer.__array_interface__["data"][0] - first
            if not 0 <= start < arena.size:
                continue
            block = blocks[bisect_right(starts, start) - 1]
            holding = self.holdings[block.slot]()
            assert holding is not None
            holding.claimed = True
            found[block].append(Piece(number, start, start + buffer.size))
        return list(found.items())

    def __reduce__(self) -> tuple[Any, ...]:
        if self.descriptor < 0:
            return Lender, (-1, self.size)
        return receive_lender, (DupFd(self.descriptor), self.size)


def receive_lender(descriptor: Any, size: int) -> Lender:
    """Return the lender that another process sends."""
    return Lender(descriptor.detach(), size)


def worth_lending(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces of a block that aren't small and don't overlap, the largest of those that do."""
    chosen: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.start - piece.stop):
        if piece.stop - piece.start < SMALL_BYTES:
            break
        if all(piece.stop <= other.start or other.stop <= piece.start for other in chosen):
            chosen.append(piece)
    return chosen


class Borrower:
    """The receiver's side."""

    def __init__(self, reading: Reading | None) -> None:
        self.reading = reading

    def unpack(self, header: bytes, buffers: list[Bytes]) -> tuple[bytes, list[Bytes]]:
        """Return the header without places, and all buffers in the order in which they were packed."""
        (count,) = COUNT.unpack_from(header)
        end = COUNT.size + count * PLACE.size
        blocks: dict[int, Bytes] = {}
        for number, slot, start, size, offset, length in PLACE.iter_unpack(header[COUNT.size : end]):
            assert self.reading is not None
            if slot not in blocks:
                blocks[slot] = self.reading.lend(slot, start, size)
            buffers.insert(number, blocks[slot][offset : offset + length])
        return header[end:], buffers


def open_lending(size: int = LENDING_BYTES) -> tuple[Lender, Borrower]:
    """Return two sides that belong together; send the first to a child process, and then close it here.

    Where the system has no room for so much, nothing is lent.
    """
    try:
        descriptor = create_memory(size)
        lender = Lender(descriptor, size)
        return lender, Borrower(Reading(descriptor, size))
    except (OSError, OverflowError):
        return Lender(-1, size), Borrower(None)
