"""The records that announce messages, and how a message is read from one."""

import os
import struct
from typing import NamedTuple

from graphfeed.loader.transport.arena import ArenaReader
from graphfeed.loader.transport.record_socket import DESCRIPTOR_LOST, RECORD_BYTES
from graphfeed.ops.memory import Bytes, map_shared
from graphfeed.storage.memory import read_frame

INLINE, BLOCK, FILE = range(3)
"""Where the bytes of a message are: in the record, in a block of the sender's arena, or in a file of their own."""
PREFIX = struct.Struct("<5Q24x")
"""What every record begins with; 64 bytes, so that what follows is aligned."""
INLINE_BYTES = RECORD_BYTES - PREFIX.size
"""Messages up to this size travel in the record: copying them is cheaper than managing a block."""


class Record(NamedTuple):
    """The header of a record: its kind, and where the message lies."""

    kind: int
    size: int = 0
    """Bytes of the message."""
    slot: int = 0
    start: int = 0
    """Offset of the block in the arena."""
    arena_size: int = 0

    def pack(self) -> bytes:
        """Return the record's bytes."""
        return PREFIX.pack(*self)

    @classmethod
    def unpack(cls, data: Bytes) -> "Record":
        """Read the beginning of a record."""
        return cls(*PREFIX.unpack_from(data.data))


class MessageReader:
    """Reads the messages that records announce, and maps the senders' memory for that."""

    def __init__(self) -> None:
        self.arena: ArenaReader | None = None

    def read(self, data: Bytes, descriptor: int | None) -> tuple[bytes, list[Bytes]]:
        """Return a message's header, and its buffers, which view the record or the sender's memory.

        Args:
            data: The record.
            descriptor: What came along with it, which is closed here. Without one, a block lies in the arena of the
                block before.
        """
        record = Record.unpack(data)
        try:
            if record.kind == INLINE:
                memory = data[PREFIX.size :]
            elif record.kind == FILE:
                assert descriptor is not None
                memory = map_shared(descriptor, record.size)
            else:
                if descriptor is not None:
                    self.arena = self.open_arena(descriptor, record.arena_size)
                if self.arena is None:
                    raise OSError(DESCRIPTOR_LOST)
                memory = self.arena.lease(record.slot, record.start, record.size)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return read_frame(memory)[:2]

    def open_arena(self, descriptor: int, size: int) -> ArenaReader:
        """Map an arena."""
        return ArenaReader(descriptor, size)
