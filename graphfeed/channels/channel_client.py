"""A process's connection to the broker of a channel: one request at a time, each with a time limit."""

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
"""How long the broker may take over a request that needs no waiting."""
MAPPINGS = 64
"""How many producers' arenas are kept mapped; those used longest ago are unmapped first."""
GONE = "the channel is closed: the process that made it closed it or is gone"


class SharedReader(MessageReader):
    """Reads the messages of several producers, and keeps their arenas mapped."""

    def __init__(self) -> None:
        super().__init__()
        self.arenas: dict[int, ArenaReader] = {}

    def open_arena(self, descriptor: int, size: int) -> ArenaReader:
        # Each message may bring a descriptor of its own; the inode tells which memory it is.
        number = os.fstat(descriptor).st_ino
        arena = self.arenas.pop(number, None) or super().open_arena(descriptor, size)
        while len(self.arenas) >= MAPPINGS:
            del self.arenas[next(iter(self.arenas))]
        self.arenas[number] = arena  # at the end, so that the first is the one used longest ago
        return arena


class ChannelClient:
    """A connection to a broker, for one thread, which may send and receive."""

    def __init__(self, address: str, arena_bytes: int = 0) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.connect(address)
        except ConnectionError as error:
            sock.close()
            raise Closed(GONE) from error
        self.outbox = Outbox(sock, arena_bytes)  # what does not fit into the arena goes into files of its own
        self.socket = self.outbox.socket
        self.reader = SharedReader()
        CLIENTS.add(self)
        self.goodbye = multiprocessing.util.Finalize(None, leave_at_exit, (weakref.ref(self),), exitpriority=10)

    def put(self, header: bytes, buffers: Sequence[Bytes], timeout_seconds: float) -> bool:
        """Send a message; return False if there was no room for it in time."""
        try:
            slot = self.outbox.send(header, buffers, REPLY_SECONDS)
        except Closed as error:
            raise Closed(GONE) from error
        is_sent = False
        try:
            is_sent = self._wait(timeout_seconds)[0] == OK
        finally:
            if not is_sent and slot is not None and self.outbox.arena is not None:
                self.outbox.arena.free(slot)  # no consumer has seen this block, or else this arena is used no more
        return is_sent

    def get(self, timeout_seconds: float) -> tuple[bytes, list[Bytes]] | None:
        """Return the next message, or None if none came in time."""
        self._send(GET)
        kind, record, descriptor = self._wait(timeout_seconds)
        if kind == NOTHING:
            return None
        if kind == END:
            raise EndOfEpoch(text_of(record))
        return self.reader.read(record, descriptor)

    def request(self, kind: int) -> tuple[int, Bytes, int | None]:
        """Send a request that needs no waiting; return the reply's kind, its record, and the descriptor with it."""
        self._send(kind)
        return self._receive(REPLY_SECONDS)

    @property
    def is_closed(self) -> bool:
        return self.socket.sock.fileno() < 0  # after `close`, and in a fork of the process

    def close(self, error: str = "") -> None:
        self.goodbye.cancel()
        if not self.is_closed:
            with suppress(Closed, TimeoutError):
                self._send(LEAVE, error[:4000])  # an error goes to the other peers
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
            return self.request(STOP)  # the broker may have replied meanwhile

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
    error = sys.exception()  # the one that ends the process, if there is one
    if living is not None:
        living.close(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "")


@after_fork_in_child
def close_all() -> None:
    # They are the parent's, which stays in the channel: no LEAVE is sent.
    for client in list(CLIENTS):
        client.goodbye.cancel()
        client.socket.close()
