"""A process's connection to the middle of a channel: one question at a time, each with a time limit."""

import multiprocessing.util
import os
import socket
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch

from graphfeed.channels.exchange import END, FAILED, NOTHING
from graphfeed.channels.hub import CANCEL, CONSUMER, ENDED, LEAVE, PRODUCER, WANT, WITHDRAW
from graphfeed.loader.transport.arena import Reading
from graphfeed.loader.transport.ear import Ear
from graphfeed.loader.transport.layout import take_apart
from graphfeed.loader.transport.mailbox import BLOCK, FILE, INLINE, PREFIX, RECORD_BYTES, Outbox, word
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.storage.memory.memory_map import Bytes, map_shared

ANSWER_SECONDS = 10.0
"""How long the channel's own thread may take to answer what needs no waiting."""
MAPPINGS = 64
"""Arenas of producers that are kept mapped; those of long dead ones go."""


class PeerError(RuntimeError):
    """Somebody at the other end of a channel failed or died; the text says who, and why."""


class EndOfEpoch(Exception):
    """All producers have ended the epoch, and all its messages have been received."""


class Line:
    """A connection to a hub."""

    role: int | None = None

    def __init__(self, address: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ear = Ear(self.sock)
        try:
            self.sock.connect(address)
        except ConnectionError as error:
            self.sock.close()
            raise Closed("the channel is closed: the process that made it closed it or is gone") from error
        LINES.add(self)
        self.goodbye = multiprocessing.util.Finalize(None, leave_at_exit, (weakref.ref(self),), exitpriority=10)
        if self.role is not None:
            self.say(self.role)

    def say(self, kind: int, text: str = "") -> None:
        """Send a word."""
        try:
            self.sock.send(word(kind) + text.encode(), socket.MSG_NOSIGNAL)
        except OSError as error:
            raise Closed("the channel is closed: the process that made it closed it or is gone") from error

    def hear(self, timeout_seconds: float) -> tuple[int, Bytes, int | None]:
        """Return the kind of an answer, its record and the descriptor that came along.

        Raises:
            Closed: The hub is gone.
            TimeoutError: It did not answer in time.
        """
        record = np.empty(RECORD_BYTES, dtype=np.uint8)
        size, descriptor = self.ear.hear(record, timeout_seconds)
        if not size:
            raise Closed("the channel is closed: the process that made it closed it or is gone")
        record = record[:size]
        kind = int(PREFIX.unpack_from(record.data)[0])
        if kind == FAILED:
            raise PeerError(text_of(record))
        return kind, record, descriptor

    def ask(self, kind: int) -> tuple[int, Bytes, int | None]:
        """Say something and return the answer."""
        self.say(kind)
        return self.hear(ANSWER_SECONDS)

    def close(self, error: str = "") -> None:
        """Leave; the others hear of an error."""
        self.goodbye.cancel()
        if self.sock.fileno() >= 0:
            with suppress(Closed):
                self.say(LEAVE, error[:4000])
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
            self.sock.close()

    def __del__(self) -> None:
        if hasattr(self, "goodbye"):
            self.close()


class Sender(Line):
    """A producer's."""

    role = PRODUCER

    def __init__(self, address: str, arena_bytes: int) -> None:
        super().__init__(address)
        self.outbox = Outbox(self.sock, arena_bytes)

    def send(self, header: bytes, buffers: Sequence[Bytes], timeout_seconds: float) -> bool:
        """Send a message; return False where there was no room for it in time."""
        self.outbox.send(header, buffers, ANSWER_SECONDS)
        try:
            self.hear(timeout_seconds)
        except TimeoutError:
            if self.ask(WITHDRAW)[0] == NOTHING:
                self.outbox.revoke()
                return False
        except PeerError:
            self.outbox.revoke()
            raise
        return True

    def end(self) -> None:
        """End the epoch."""
        self.ask(ENDED)


class Receiver(Line):
    """A consumer's."""

    role = CONSUMER

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.readings: dict[int, Reading] = {}

    def receive(self, timeout_seconds: float) -> tuple[bytes, list[Bytes]] | None:
        """Return a message, or None where nothing came in time.

        Raises:
            EndOfEpoch: There are no more in this epoch.
            PeerError: A producer failed.
        """
        self.say(WANT)
        try:
            kind, record, descriptor = self.hear(timeout_seconds)
        except TimeoutError:
            kind, record, descriptor = self.ask(CANCEL)
        if kind == NOTHING:
            return None
        if kind == END:
            raise EndOfEpoch(f"epoch {text_of(record)} is over")
        return self.open(record, descriptor)

    def open(self, record: Bytes, descriptor: int | None) -> tuple[bytes, list[Bytes]]:
        """Return the message that a record stands for."""
        kind, size, start, rest, header_size, count = PREFIX.unpack_from(record.data)
        if kind == INLINE:
            # Unlike NumPy's, torch's memory is aligned to 64 bytes.
            memory = torch.empty(size, dtype=torch.uint8).numpy()
            memory[:] = record[PREFIX.size :]
            return take_apart(memory, header_size, count)
        if descriptor is None:
            raise OSError("a message's memory did not arrive: this process has too many open files; raise ulimit -n")
        try:
            if kind == FILE:
                return take_apart(map_shared(descriptor, size), header_size, count)
            assert kind == BLOCK
            lent = self.reading(descriptor, rest >> 16).lend(rest & 0xFFFF, start, size)
            return take_apart(lent, header_size, count)
        finally:
            os.close(descriptor)

    def reading(self, descriptor: int, size: int) -> Reading:
        """Return the mapping of a producer's memory."""
        number = os.fstat(descriptor).st_ino
        known = self.readings.pop(number, None) or Reading(descriptor, size)
        while len(self.readings) >= MAPPINGS:
            del self.readings[next(iter(self.readings))]
        self.readings[number] = known
        return known


def text_of(record: Bytes) -> str:
    """Return the text of an answer."""
    return bytes(record[PREFIX.size :]).decode(errors="replace")


LINES: weakref.WeakSet[Line] = weakref.WeakSet()


def leave_at_exit(line: "weakref.ref[Line]") -> None:
    """Say goodbye where a process ends, and with which error if it is one that ends it."""
    living = line()
    error = sys.exception()
    if living is not None:
        living.close(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "")


def hang_up_copies() -> None:
    """Close in a forked process what belongs to its parent, without a word."""
    for line in list(LINES):
        line.goodbye.cancel()
        line.sock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=hang_up_copies)
