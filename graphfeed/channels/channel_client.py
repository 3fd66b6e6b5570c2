"""A process's connection to the broker of a channel: one request at a time, each with a time limit."""

import multiprocessing.util
import os
import socket
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress

from graphfeed.channels.bounded_queue_state import END, FAILED, NOTHING
from graphfeed.channels.broker import (
    CANCEL,
    CONSUMER,
    END_EPOCH,
    GET,
    LEAVE,
    PRODUCER,
    WITHDRAW,
    control_record,
    text_of,
)
from graphfeed.loader.transport import ArenaReader, Closed, MessageReader, Outbox, Record, RecordSocket
from graphfeed.ops.memory import Bytes
from graphfeed.ops.process import after_fork_in_child

REPLY_SECONDS = 10.0
"""How long the broker may take over a request that needs no waiting."""
MAPPINGS = 64
"""How many producers' arenas are kept mapped; those used longest ago are unmapped first."""
GONE = "the channel is closed: the process that made it closed it or is gone"


class PeerError(RuntimeError):
    """A peer at the other end of a channel failed or died; the text says which one, and why."""


class EndOfEpoch(Exception):
    """All producers have ended the epoch, and all its messages have been received."""


class ChannelClient:
    """A connection to a broker."""

    role: int | None = None

    def __init__(self, address: str) -> None:
        self.socket = RecordSocket(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        try:
            self.socket.sock.connect(address)
        except ConnectionError as error:
            self.socket.close()
            raise Closed(GONE) from error
        CLIENTS.add(self)
        self.goodbye = multiprocessing.util.Finalize(None, leave_at_exit, (weakref.ref(self),), exitpriority=10)
        if self.role is not None:
            self.send(self.role)

    def send(self, kind: int, text: str = "") -> None:
        """Send a request."""
        try:
            self.socket.send(control_record(kind, text), None, REPLY_SECONDS)
        except Closed as error:
            raise Closed(GONE) from error

    def receive(self, timeout_seconds: float) -> tuple[int, Bytes, int | None]:
        """Return the kind of a reply, its record and the descriptor that came along.

        Raises:
            Closed: The broker is gone.
            TimeoutError: It did not reply in time.
            PeerError: The reply is that another peer failed.
        """
        try:
            record, descriptor = self.socket.receive(timeout_seconds)
        except Closed as error:
            raise Closed(GONE) from error
        kind = Record.unpack(record).kind
        if kind == FAILED:
            raise PeerError(text_of(record))
        return kind, record, descriptor

    def request(self, kind: int) -> tuple[int, Bytes, int | None]:
        """Send a request and return the reply."""
        self.send(kind)
        return self.receive(REPLY_SECONDS)

    def close(self, error: str = "") -> None:
        """Leave the channel; an error goes to the other peers."""
        self.goodbye.cancel()
        sock = self.socket.sock
        if sock.fileno() >= 0:
            with suppress(Closed, TimeoutError):
                self.send(LEAVE, error[:4000])
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for a reply
            self.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "goodbye"):
            self.close()


class Producer(ChannelClient):
    """The connection of a producer."""

    role = PRODUCER

    def __init__(self, address: str, arena_bytes: int) -> None:
        super().__init__(address)
        self.outbox = Outbox(self.socket.sock, arena_bytes)

    def put(self, header: bytes, buffers: Sequence[Bytes], timeout_seconds: float) -> bool:
        """Send a message; return False if there was no room for it in time."""
        try:
            slot = self.outbox.send(header, buffers, REPLY_SECONDS)
        except Closed as error:
            raise Closed(GONE) from error
        try:
            sent = self._is_accepted(timeout_seconds)
        except PeerError:
            self._free(slot)
            raise
        if not sent:
            self._free(slot)
        return sent

    def _is_accepted(self, timeout_seconds: float) -> bool:
        """Wait until the message is in the queue; if that takes too long, withdraw it."""
        try:
            self.receive(timeout_seconds)
        except TimeoutError:
            # The broker may have accepted it meanwhile.
            return self.request(WITHDRAW)[0] != NOTHING
        return True

    def _free(self, slot: int | None) -> None:
        """Free the block of a message that no consumer has seen."""
        if slot is not None and self.outbox.arena is not None:
            self.outbox.arena.free(slot)

    def end_epoch(self) -> None:
        """End the epoch."""
        self.request(END_EPOCH)


class Consumer(ChannelClient):
    """The connection of a consumer."""

    role = CONSUMER

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.reader = SharedReader()

    def get(self, timeout_seconds: float) -> tuple[bytes, list[Bytes]] | None:
        """Return the next message, or None if none came in time.

        Raises:
            EndOfEpoch: There are no more in this epoch.
            PeerError: A producer failed.
        """
        self.send(GET)
        try:
            kind, record, descriptor = self.receive(timeout_seconds)
        except TimeoutError:
            kind, record, descriptor = self.request(CANCEL)
        if kind == NOTHING:
            return None
        if kind == END:
            raise EndOfEpoch(f"epoch {text_of(record)} is over")
        return self.reader.read(record, descriptor)


class SharedReader(MessageReader):
    """Reads the messages of several producers, and keeps their arenas mapped."""

    def __init__(self) -> None:
        super().__init__()
        self.arenas: dict[int, ArenaReader] = {}

    def open_arena(self, descriptor: int, size: int) -> ArenaReader:
        """Return the mapping of a producer's arena."""
        number = os.fstat(descriptor).st_ino
        arena = self.arenas.pop(number, None) or super().open_arena(descriptor, size)
        while len(self.arenas) >= MAPPINGS:
            del self.arenas[next(iter(self.arenas))]
        self.arenas[number] = arena
        return arena


CLIENTS: weakref.WeakSet[ChannelClient] = weakref.WeakSet()


def leave_at_exit(client: "weakref.ref[ChannelClient]") -> None:
    """Leave the channel when the process ends, with the error that ends it, if there is one."""
    living = client()
    error = sys.exception()
    if living is not None:
        living.close(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "")


@after_fork_in_child
def close_all() -> None:
    """Close what belongs to the parent of a forked process, without leaving the channel."""
    for client in list(CLIENTS):
        client.goodbye.cancel()
        client.socket.close()
