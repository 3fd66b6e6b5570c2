"""Connection to the broker of a channel: one request at a time, each with a timeout."""

import multiprocessing.util
import os
import socket
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress

from graphfeed.channels.bounded_queue import END, FAILED, NOTHING, OK, EndOfEpoch, PeerError
from graphfeed.channels.broker import GET, LEAVE, STOP, control_record, text_of
from graphfeed.loader.transport import ArenaReader, Closed, MessageReader, Outbox, Record
from graphfeed.ops.memory import Bytes
from graphfeed.ops.process import after_fork_in_child

REPLY_SECONDS = 10.0
"""Timeout of requests that the broker answers at once."""
MAPPINGS = 64
"""Maximum number of mapped arenas of producers. The least recently used one is unmapped first."""
GONE = "the channel is closed: the process that created it has closed it or has ended"


class SharedReader(MessageReader):
    """Reads messages of several producers, and keeps their arenas mapped."""

    def __init__(self) -> None:
        super().__init__()
        self.arenas: dict[int, ArenaReader] = {}

    def open_arena(self, descriptor: int, size: int) -> ArenaReader:
        # Each message may come with its own descriptor; the inode identifies the memory.
        number = os.fstat(descriptor).st_ino
        arena = self.arenas.pop(number, None) or super().open_arena(descriptor, size)
        while len(self.arenas) >= MAPPINGS:
            del self.arenas[next(iter(self.arenas))]
        self.arenas[number] = arena  # at the end: the first one is the least recently used
        return arena


class ChannelClient:
    """Connection of one thread to a broker, for sending and receiving."""

    def __init__(self, address: str, arena_bytes: int = 0) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.connect(address)
        except ConnectionError as error:
            sock.close()
            raise Closed(GONE) from error
        self.outbox = Outbox(sock, arena_bytes)  # messages that don't fit into the arena use separate files
        self.socket = self.outbox.socket
        self.reader = SharedReader()
        CLIENTS.add(self)
        self.goodbye = multiprocessing.util.Finalize(None, leave_at_exit, (weakref.ref(self),), exitpriority=10)

    def put(self, header: bytes, buffers: Sequence[Bytes], timeout_seconds: float) -> bool:
        """Send a message; return False if there was no space for it before the timeout."""
        try:
            slot = self.outbox.send(header, buffers, REPLY_SECONDS)
        except Closed as error:
            raise Closed(GONE) from error
        is_sent = False
        try:
            is_sent = self._wait(timeout_seconds)[0] == OK
        finally:
            if not is_sent and slot is not None and self.outbox.arena is not None:
                self.outbox.arena.free(slot)  # no consumer has seen this block, or the arena is no longer used
        return is_sent

    def get(self, timeout_seconds: float) -> tuple[bytes, list[Bytes]] | None:
        """Return the next message, or None after the timeout."""
        self._send(GET)
        kind, record, descriptor = self._wait(timeout_seconds)
        if kind == NOTHING:
            return None
        if kind == END:
            raise EndOfEpoch(text_of(record))
        return self.reader.read(record, descriptor)

    def request(self, kind: int) -> tuple[int, Bytes, int | None]:
        """Send a request that is answered at once; return the kind, the record and the descriptor of the reply."""
        self._send(kind)
        return self._receive(REPLY_SECONDS)

    @property
    def is_closed(self) -> bool:
        return self.socket.sock.fileno() < 0  # after `close`, and in a forked process

    def close(self, error: str = "") -> None:
        self.goodbye.cancel()
        if not self.is_closed:
            with suppress(Closed, TimeoutError):
                self._send(LEAVE, error[:4000])  # the other clients receive the error
            with suppress(OSError):
                self.socket.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for a reply
            self.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "goodbye"):
            self.close()

    def _send(self, kind: int, text: str = "") -> None:
        try:
            self.socket.send(control_record(kind, text), None, REPLY_SECONDS)
        except Closed as error:
            raise Closed(GONE) from error

    def _wait(self, timeout_seconds: float) -> tuple[int, Bytes, int | None]:
        try:
            return self._receive(timeout_seconds)
        except TimeoutError:
            return self.request(STOP)  # the broker may have replied in the meantime

    def _receive(self, timeout_seconds: float) -> tuple[int, Bytes, int | None]:
        try:
            record, descriptor = self.socket.receive(timeout_seconds)
        except Closed as error:
            raise Closed(GONE) from error
        kind = Record.unpack(record).kind
        if kind == FAILED:
            raise PeerError(text_of(record))
        return kind, record, descriptor


CLIENTS: weakref.WeakSet[ChannelClient] = weakref.WeakSet()


def leave_at_exit(client: "weakref.ref[ChannelClient]") -> None:
    living = client()
    error = sys.exception()  # the exception that ends the process, if any
    if living is not None:
        living.close(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "")


@after_fork_in_child
def close_all() -> None:
    # They belong to the parent, which stays in the channel, so LEAVE is not sent.
    for client in list(CLIENTS):
        client.goodbye.cancel()
        client.socket.close()
