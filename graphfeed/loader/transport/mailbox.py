"""Messages from one process to another on the same machine: small ones by socket, large ones by shared memory."""

import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed.loader.transport.arena import ARENA_BYTES, Arena, ArenaReader
from graphfeed.loader.transport.record_socket import DESCRIPTOR_LOST, RECORD_BYTES, RecordSocket
from graphfeed.ops.memory import Bytes, MemoryFile, as_bytes, map_shared
from graphfeed.storage.memory import Frame, read_frame

INLINE, BLOCK, FILE = range(3)
"""Where the bytes of a message are: in the record, in a block of the sender's arena, or in a file of their own."""
PREFIX = struct.Struct("<5Q24x")
"""What every record begins with; 64 bytes, so that what follows is aligned."""
INLINE_BYTES = RECORD_BYTES - PREFIX.size
"""Messages up to this size travel in the record: copying them is cheaper than managing a block."""
QUEUE_BYTES = 1 << 20
"""The size of a socket's queue that the system is asked for; it may give less."""
TIMEOUT_SECONDS = 600.0

Buffer = Any
"""A CPU tensor, or an object with the buffer protocol and contiguous bytes."""


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

        The descriptor that came along with a record is closed here. Without one, a block lies in the last arena.
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

    The bytes of a message are written once, into a shared block that the receiver reads in place, and that is used
    again after the last tensor over it is gone. One that finds no room there, as the receiver holds many others, goes
    into a memory file of its own. So a receiver that keeps its messages never blocks the sender. A message costs about
    10 microseconds, plus 1 per buffer, plus one copy of the bytes.

    It pickles to child processes of any start method; after that, use it only there. Nothing has a name in the file
    system, so nothing stays behind however the two processes end. Linux only.

    Args:
        sock: One end of a pair of AF_UNIX, SOCK_SEQPACKET sockets, which the outbox takes over.
        arena_bytes: The size of the arena; 0 sends each large message in a file of its own.
    """

    def __init__(self, sock: socket.socket, arena_bytes: int = ARENA_BYTES) -> None:
        if arena_bytes < 0:
            raise ValueError(f"arena_bytes must be 0 or more, but is {arena_bytes}")
        self.socket = RecordSocket(sock)
        self.arena_bytes = arena_bytes
        self.arena: Arena | None = None

    def send(
        self, header: bytes, buffers: Sequence[Buffer] = (), timeout_seconds: float = TIMEOUT_SECONDS
    ) -> int | None:
        """Send a message; return once its bytes are copied and its record is in the socket's queue.

        The result is the slot of the arena's block that holds the message; None if it lies elsewhere. A receiver that
        closed its end, or is dead, raises `Closed`. A TimeoutError says that the message was not sent.
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
                # Writing to a file takes half the time of writing to the fresh pages of a mapping.
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
            # The receiver has a descriptor of its own now.
            arena.file.close()
            self.arena = arena
        return block.slot

    def __reduce__(self) -> tuple[Any, ...]:
        return Outbox, (self.socket.sock, self.arena_bytes)

    def close(self) -> None:
        """End the stream: the receiver gets what was sent, and then Closed. Does nothing the second time."""
        self.socket.close()
        self.arena = None

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.close()


class Inbox:
    """The receiving end, for one thread of one process at a time; it pickles as an `Outbox` does.

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
        """Return the descriptor that is readable when a message or the end has come, for `select` and its like."""
        return self.socket.sock.fileno()

    def receive(self, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[bytes, list[Bytes]]:
        """Return the next message: its header, and its buffers as arrays of bytes, aligned to 64.

        The arrays view shared memory, are writable, and may be kept. Each of them keeps the whole message alive. Do not
        use them in a process that was forked from this one. `Closed` says that the sender has closed its end, or is
        dead, and all that it sent was received; an OSError, that a message's memory can't be had.
        """
        return self.reader.read(*self.socket.receive(timeout_seconds))

    def __reduce__(self) -> tuple[Any, ...]:
        return Inbox, (self.socket.sock,)

    def close(self) -> None:
        """Stop receiving: the sender's next message fails. Received messages stay. Does nothing the second time."""
        self.socket.close()
        self.reader.arena = None

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.close()


def require_linux() -> None:
    """Raise if the system has no anonymous memory files."""
    if not hasattr(os, "memfd_create"):
        raise RuntimeError("channels between processes need Linux; use threads, num_workers=0 or another executor")


def open_mailbox(arena_bytes: int = ARENA_BYTES) -> tuple[Outbox, Inbox]:
    """Return two connected ends. Send one of them to a child process, and close it here after that."""
    require_linux()
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
    return Outbox(one, arena_bytes), Inbox(other)


def to_array(buffer: Buffer) -> Bytes:
    # None of these copies.
    if isinstance(buffer, torch.Tensor):
        return as_bytes(buffer)
    if memoryview(buffer).nbytes == 0:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer(buffer, dtype=np.uint8)
