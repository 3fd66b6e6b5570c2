"""Messages from one process to another of the same machine: small ones by socket, large ones by shared memory."""

import os
import socket
import struct
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphfeed.loader.transport.arena import ARENA_BYTES, Arena, Reading, create_memory, require_linux
from graphfeed.loader.transport.ear import Ear, TimeLimit
from graphfeed.loader.transport.layout import Layout, lay_out, take_apart
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.buffers import as_bytes
from graphfeed.storage.memory.memory_map import Bytes, align, map_shared

INLINE_BYTES = 1 << 14
"""Messages of up to this size go through the socket: a copy is cheaper than the account of a block."""
PREFIX = struct.Struct("<6Q16x")
"""What each record begins with: its kind; for messages then their size, the block's place in the arena, its slot and
the arena's size, the header's size, and how many buffers there are."""
RECORD_BYTES = PREFIX.size + INLINE_BYTES
CHUNK_BYTES = 4 * RECORD_BYTES
"""Received small messages share memory of this size."""
QUEUE_BYTES = 1 << 20
"""What a socket is asked to keep; systems give less."""
TIMEOUT_SECONDS = 600.0
INLINE, BLOCK, FILE = range(3)

Buffer = Any
"""Whatever has the buffer protocol with contiguous bytes, or is a CPU tensor."""


class Outbox:
    """The sending end, for one thread of one process at a time.

    A message's bytes are written once, into a shared block that the receiver reads where it lies, and that is used
    again when the last tensor over it is gone. Where the receiver keeps so many that the arena is full, or a message is
    larger than the arena, it goes in a memory file of its own: keeping what was received never stalls the sender.

    It pickles to child processes of any start method (`multiprocessing.Process(args=...)`); then use it there only.
    The memory appears with the first message that needs it. Nothing has a name in the system, so nothing stays behind
    however the two processes end. Linux only.

    Costs about 10 microseconds a message and 1 a buffer, beside one copy of the bytes.

    Args:
        sock: One end of a pair of AF_UNIX, SOCK_SEQPACKET sockets, which it takes over.
        arena_bytes: The shared memory used at most; 0 sends each large message in a file of its own.
    """

    def __init__(self, sock: socket.socket, arena_bytes: int = ARENA_BYTES) -> None:
        if arena_bytes < 0:
            raise ValueError(f"arena_bytes must be 0 or more, but is {arena_bytes}")
        self.sock = sock
        self.limit = TimeLimit(sock, socket.SO_SNDTIMEO)
        self.arena_bytes = arena_bytes
        self.arena: Arena | None = None
        self.latest: int | None = None

    def send(
        self,
        header: bytes,
        buffers: Sequence[Buffer] = (),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Send a message; returns when its bytes are copied and its record is in the socket's queue.

        Raises:
            Closed: The receiver has closed its end, or is dead.
            TimeoutError: The receiver left dozens of messages unread for so long; this one was not sent.
        """
        arrays = [to_array(buffer) for buffer in buffers]
        layout = lay_out(len(header), tuple([part.size for part in arrays]))
        self.latest = None
        if layout.size <= INLINE_BYTES:
            record = PREFIX.pack(INLINE, layout.size, 0, 0, len(header), len(arrays))
            self._put(b"".join((record, *layout.parts(header, arrays))), None, timeout_seconds)
        elif not self._send_block(header, arrays, layout, timeout_seconds):
            self._send_file(header, arrays, layout, timeout_seconds)

    def _send_block(self, header: bytes, arrays: Sequence[Bytes], layout: Layout, timeout_seconds: float) -> bool:
        if layout.size > self.arena_bytes:
            return False
        new = self.arena is None
        arena = self.arena or Arena(self.arena_bytes)
        block = arena.take(layout.size)
        if block is None:
            return False
        try:
            memory = arena.memory[block.start : block.stop]
            memory[: layout.header.stop] = np.frombuffer(layout.table + header, dtype=np.uint8)
            for part, place in zip(arrays, layout.places, strict=True):
                memory[place] = part
            where = block.slot | arena.size << 16
            record = PREFIX.pack(BLOCK, layout.size, block.start, where, len(header), len(arrays))
            self._put(record, arena.descriptor if new else None, timeout_seconds)
        except BaseException:
            arena.give_back(block.slot)
            raise
        self.latest = block.slot
        if new:
            arena.close()
            self.arena = arena
        return True

    def _send_file(self, header: bytes, arrays: Sequence[Bytes], layout: Layout, timeout_seconds: float) -> None:
        descriptor = create_memory(layout.size)
        try:
            # Writing to a file is cheaper than to fresh pages of a mapping.
            write(descriptor, np.frombuffer(layout.table + header, dtype=np.uint8), 0)
            for part, place in zip(arrays, layout.places, strict=True):
                write(descriptor, part, place.start)
            self._put(PREFIX.pack(FILE, layout.size, 0, 0, len(header), len(arrays)), descriptor, timeout_seconds)
        finally:
            os.close(descriptor)

    def _put(self, record: bytes, descriptor: int | None, timeout_seconds: float) -> None:
        flags = self.limit.flags(timeout_seconds) | socket.MSG_NOSIGNAL
        try:
            if descriptor is None:
                self.sock.send(record, flags)
            else:
                self.sock.sendmsg([record], with_descriptor(descriptor), flags)
        except BlockingIOError as error:
            raise TimeoutError(f"the receiver's queue was full for {timeout_seconds:g} s") from error
        except ConnectionError as error:
            raise Closed("the receiver has closed its end, or is dead") from error

    def revoke(self) -> None:
        """Use the memory of the last message again; only for one that the receiver never saw."""
        if self.latest is not None and self.arena is not None:
            self.arena.give_back(self.latest)
            self.latest = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Outbox, (self.sock, self.arena_bytes)

    def close(self) -> None:
        """End the stream: the receiver gets what was sent, and then Closed. Does nothing the second time."""
        self.sock.close()
        self.arena = None

    def __del__(self) -> None:
        if hasattr(self, "sock"):
            self.close()


class Inbox:
    """The receiving end, for one thread of one process at a time.

    Where messages follow each other closely it looks for the next one awake, for up to a tenth of a millisecond, before
    it sleeps: 10 kB there and back take less than two bare sockets that wake each other. One that waits for longer
    takes no time of a core. It pickles to child processes of any start method; then use it there only.

    Example:
        >>> outbox, inbox = open_mailbox()
        >>> outbox.send(b"header", [torch.arange(3)])
        >>> header, (buffer,) = inbox.receive(timeout_seconds=10)
        >>> header, buffer.view("int64").tolist()
        (b'header', [0, 1, 2])
        >>> outbox.close(), inbox.close()
        (None, None)
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.ear = Ear(sock)
        self.chunk: Bytes | None = None
        self.reading: Reading | None = None

    def fileno(self) -> int:
        """Return the descriptor that is readable when a message or the end has come; for `select` and its like."""
        return self.sock.fileno()

    def receive(self, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[bytes, list[Bytes]]:
        """Return the next message: its header, and its buffers as arrays of bytes, aligned to 64.

        The arrays view shared memory, are writable, and may be kept as long as one likes. One of them keeps the whole
        message. Do not use them in a process that was forked off this one.

        Raises:
            Closed: The sender has closed its end, or is dead, and all that it sent was received.
            TimeoutError: Nothing came in time.
        """
        record = self.chunk
        if record is None:
            # Unlike NumPy's, torch's memory is aligned to 64 bytes.
            record = self.chunk = torch.empty(CHUNK_BYTES, dtype=torch.uint8).numpy()
        got, descriptor = self.ear.hear(record, timeout_seconds)
        if got == 0:
            raise Closed("the sender has closed its end, or is dead")
        kind, size, start, rest, header_size, count = PREFIX.unpack_from(record.data)
        if kind == INLINE:
            used = align(got)
            self.chunk = record[used:] if record.size >= used + RECORD_BYTES else None
            return take_apart(record[PREFIX.size : got], header_size, count)
        if descriptor is not None:
            try:
                if kind == FILE:
                    return take_apart(map_shared(descriptor, size), header_size, count)
                self.reading = Reading(descriptor, rest >> 16)
            finally:
                os.close(descriptor)
        if kind == FILE or self.reading is None:
            raise OSError(
                "the memory of a message did not arrive: this process has too many open files; raise ulimit -n"
            )
        return take_apart(self.reading.lend(rest & 0xFFFF, start, size), header_size, count)

    def __reduce__(self) -> tuple[Any, ...]:
        return Inbox, (self.sock,)

    def close(self) -> None:
        """Stop receiving: the sender's next message fails. What was received stays. Does nothing the second time."""
        self.sock.close()
        self.chunk = self.reading = None

    def __del__(self) -> None:
        if hasattr(self, "sock"):
            self.close()


def open_mailbox(arena_bytes: int = ARENA_BYTES) -> tuple[Outbox, Inbox]:
    """Return two ends that belong together; send one of them to a child process, and then close it here."""
    require_linux()
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
    return Outbox(one, arena_bytes), Inbox(other)


def with_descriptor(descriptor: int | None) -> list[Any]:
    """Return what sends a descriptor along with a record."""
    return [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]


def word(kind: int) -> bytes:
    """Return a record that holds nothing but its kind, and may be followed by a text."""
    return PREFIX.pack(kind, 0, 0, 0, 0, 0)


def to_array(buffer: Buffer) -> Bytes:
    """Return the bytes of a tensor or a buffer without copying them."""
    if type(buffer) is np.ndarray and buffer.ndim == 1 and buffer.dtype.char == "B":
        return buffer
    if isinstance(buffer, torch.Tensor):
        return as_bytes(buffer)
    if memoryview(buffer).nbytes == 0:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer(buffer, dtype=np.uint8)


def write(descriptor: int, data: Bytes, offset: int) -> None:
    """Write all of an array to its place in a file."""
    while data.size:
        written = os.pwrite(descriptor, data.data, offset)
        data, offset = data[written:], offset + written
