"""Messages between processes of one machine: small ones through a socket, large ones through shared memory."""

import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed.loader.transport.arena import Arena, ArenaReader
from graphfeed.loader.transport.record_socket import DESCRIPTOR_LOST, RECORD_BYTES, RecordSocket
from graphfeed.ops.memory import Bytes, MemoryFile, as_bytes, map_shared
from graphfeed.ops.process import current_limits
from graphfeed.storage.memory import Frame, read_frame

INLINE, BLOCK, FILE = range(3)
"""Location of a message's bytes: in the record, in a block of the sender's arena, or in a separate file."""
PREFIX = struct.Struct("<5Q24x")
"""Header of every record, of 64 bytes, so that the message after it is aligned."""
INLINE_BYTES = RECORD_BYTES - PREFIX.size
"""Messages up to this size are part of the record: copying them is cheaper than managing a block."""
QUEUE_BYTES = 1 << 20
"""Requested size of a socket's queue; the system may give less."""
TIMEOUT_SECONDS = 600.0

Buffer = Any
"""A CPU tensor, or an object with the buffer protocol and contiguous bytes."""


class Record(NamedTuple):
    """The header of a record: its kind, and the location of the message."""

    kind: int
    size: int = 0
    """Bytes of the message."""
    slot: int = 0
    start: int = 0
    """Offset of the block in the arena."""
    arena_size: int = 0

    def pack(self) -> bytes:
        """Return the header's bytes."""
        return PREFIX.pack(*self)

    @classmethod
    def unpack(cls, data: Bytes) -> "Record":
        """Read the header of a record."""
        return cls(*PREFIX.unpack_from(data.data))


class MessageReader:
    """Reads the messages of records, and maps the senders' memory."""

    def __init__(self) -> None:
        self.arena: ArenaReader | None = None

    def read(self, data: Bytes, descriptor: int | None) -> tuple[bytes, list[Bytes]]:
        """Return a message's header, and its buffers, which view the record or the sender's memory.

        Closes the descriptor that came with the record. Without one, a block is in the latest arena.
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


class Outbox:
    """The sending end, for one thread of one process at a time.

    The bytes of a message are written once, into a shared block that the receiver reads in place, and that is reused
    after its last tensor is freed. If there is no free block because the receiver keeps many, the message goes into a
    separate memory file, so a receiver that keeps messages never blocks the sender. A message costs about 10
    microseconds, plus 1 per buffer, plus one copy of the bytes.

    It can be pickled to child processes of any start method; after that, use it only there. Nothing has a name in the
    file system, so nothing is left behind, however the two processes end. Linux only.

    Args:
        sock: One end of a pair of AF_UNIX, SOCK_SEQPACKET sockets, which the outbox then owns.
        arena_bytes: Size of the arena; 0 sends each large message in a separate file.
    """

    def __init__(self, sock: socket.socket, arena_bytes: int) -> None:
        if arena_bytes < 0:
            raise ValueError(f"arena_bytes must be 0 or more, but is {arena_bytes}")
        self.socket = RecordSocket(sock)
        self.arena_bytes = arena_bytes
        self.arena: Arena | None = None

    def send(
        self, header: bytes, buffers: Sequence[Buffer] = (), timeout_seconds: float = TIMEOUT_SECONDS
    ) -> int | None:
        """Send a message; return when its bytes are copied and its record is in the socket's queue.

        Returns the slot of the arena's block that contains the message; None if it is elsewhere. Raises `Closed` if the
        receiver has closed its end or died, and a TimeoutError if the message was not sent in time.
        """
        frame = Frame(header, [to_array(buffer) for buffer in buffers])
        if frame.size <= INLINE_BYTES:
            record = b"".join([Record(INLINE, frame.size).pack(), *frame.pieces()])
            self.socket.send(record, None, timeout_seconds)
            return None
        slot = self._send_block(frame, timeout_seconds)
        if slot is None:
            file = MemoryFile.create(frame.size)
            try:
                # Writing to a file takes half the time of writing to new pages of a mapping.
                with open(file.descriptor, "wb", closefd=False) as stream:
                    stream.writelines(frame.pieces())
                self.socket.send(Record(FILE, frame.size).pack(), file.descriptor, timeout_seconds)
            finally:
                file.close()
        return slot

    def _send_block(self, frame: Frame, timeout_seconds: float) -> int | None:
        if frame.size > self.arena_bytes:
            return None
        new = self.arena is None
        arena = self.arena or Arena(self.arena_bytes)
        block = arena.allocate(frame.size)
        if block is None:
            return None
        try:
            frame.write(arena.memory[block.start : block.stop])
            record = Record(BLOCK, frame.size, block.slot, block.start, arena.size)
            self.socket.send(record.pack(), arena.file.descriptor if new else None, timeout_seconds)
        except BaseException:
            arena.free(block.slot)
            raise
        if new:
            # The receiver now has its own descriptor.
            arena.file.close()
            self.arena = arena
        return block.slot

    def __reduce__(self) -> tuple[Any, ...]:
        return Outbox, (self.socket.sock, self.arena_bytes)

    def close(self) -> None:
        """End the stream: the receiver gets the remaining messages, then `Closed`. No effect if called again."""
        self.socket.close()
        self.arena = None

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.close()


class Inbox:
    """The receiving end, for one thread of one process at a time; it can be pickled like an `Outbox`.

    Example:
        >>> outbox, inbox = open_mailbox()
        >>> outbox.send(b"header", [torch.arange(3)])
        >>> header, (buffer,) = inbox.receive(timeout_seconds=10)
        >>> header, buffer.view("int64").tolist()
        (b'header', [0, 1, 2])
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = RecordSocket(sock)
        self.reader = MessageReader()

    def fileno(self) -> int:
        """Return the descriptor for `select`, which is readable when there is a message or the sender has closed."""
        return self.socket.sock.fileno()

    def receive(self, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[bytes, list[Bytes]]:
        """Return the next message: its header, and its buffers as arrays of bytes, aligned to 64.

        The arrays view shared memory, are writable, and may be kept. Each of them keeps the whole message alive. Do not
        use them in a process that was forked from this one. Raises `Closed` if the sender has closed its end or died,
        and all messages were received; and an OSError if a message's memory can't be mapped.
        """
        return self.reader.read(*self.socket.receive(timeout_seconds))

    def __reduce__(self) -> tuple[Any, ...]:
        return Inbox, (self.socket.sock,)

    def close(self) -> None:
        """Stop receiving: the sender's next message fails. Received messages stay valid. No effect if called again."""
        self.socket.close()
        self.reader.arena = None

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.close()


def require_linux() -> None:
    """Raise if the system has no anonymous memory files."""
    if not hasattr(os, "memfd_create"):
        raise RuntimeError("channels between processes need Linux; use threads, num_workers=0 or another executor")


def open_mailbox(arena_bytes: int | None = None) -> tuple[Outbox, Inbox]:
    """Return two connected ends. Send one of them to a child process, and then close it here."""
    require_linux()
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
    return Outbox(one, current_limits().arena_bytes if arena_bytes is None else arena_bytes), Inbox(other)


def to_array(buffer: Buffer) -> Bytes:
    # All of these return views.
    if isinstance(buffer, torch.Tensor):
        return as_bytes(buffer)
    if memoryview(buffer).nbytes == 0:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer(buffer, dtype=np.uint8)
