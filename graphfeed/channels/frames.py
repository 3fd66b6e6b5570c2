"""Samples over a stream socket, between processes that share a token. Nothing is pickled."""

import hmac
import json
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from math import prod
from typing import TypeAlias

import torch

from graphfeed.channels.codec import DTYPES, SampleMessage, count_bytes, pack_tensors
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.buffers import as_bytes, empty

MAGIC = b"graphfeed channel 1\n"
NONCE_BYTES = PROOF_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
FRAME = struct.Struct("<BIQ")
SAMPLE, END, LEAVE = range(3)
LARGEST_HEADER = 1 << 24
LARGEST_BYTES = 1 << 34
"""The largest sample; a peer that announces more is not a sender of this library."""
BYTES_AT_ONCE = 1 << 24
"""How much is read of a frame until others have their turn, as a fast sender never lets its socket run dry."""
MOST_DIMENSIONS, MOST_VALUES = 64, 1 << 60
"""What a shape may have, also one with a 0 in it: beyond them, NumPy and torch raise errors of several kinds."""
Row: TypeAlias = tuple[str, torch.dtype, tuple[int, ...], int]
"""What a header says of a tensor: its name, its dtype, its shape, and its size in bytes."""


class Greeting:
    """One side of a greeting: each proves to the other that it knows the token, and neither tells it.

    The proofs of the listener and of the caller differ, so a third party can't pass on one as the other. The listener
    gives its own only to a caller that has given one: with it, others could try tokens by themselves.
    """

    def __init__(self, sock: socket.socket, token: bytes, *, listens: bool) -> None:
        self.sock = sock
        self.token = token
        self.listens = listens
        self.roles = (b"listens", b"calls") if listens else (b"calls", b"listens")
        self.own = secrets.token_bytes(NONCE_BYTES)
        self.came = b""
        sock.sendall(MAGIC + self.own)

    def step(self) -> bool | None:
        """Take what has come; return whether the other side has proved it, or None while that is open.

        Raises:
            Closed: The other side has gone.
        """
        try:
            part = self.sock.recv(HELLO_BYTES + PROOF_BYTES - len(self.came))
        except ConnectionError:
            part = b""
        if not part:
            raise Closed("the other side has closed the connection, or is dead")
        hears = len(self.came) < HELLO_BYTES <= len(self.came) + len(part)
        self.came += part
        if not MAGIC.startswith(self.came[: len(MAGIC)]):
            return False
        other, proof = self.came[len(MAGIC) : HELLO_BYTES], self.came[HELLO_BYTES:]
        if hears and not self.listens:
            self.sock.sendall(self.prove(self.roles[0] + self.own + other))
        if len(proof) < PROOF_BYTES:
            return None
        known = hmac.compare_digest(proof, self.prove(self.roles[1] + other + self.own))
        if known and self.listens:
            self.sock.sendall(self.prove(self.roles[0] + self.own + other))
        return known

    def prove(self, text: bytes) -> bytes:
        """Return what only those who know the token can compute."""
        return hmac.digest(self.token, text, "sha256")


def greet(sock: socket.socket, token: bytes, *, listens: bool) -> bool:
    """Greet the other side of a socket that waits; return whether it has proved that it knows the token.

    All of it takes no longer than the socket's time limit, also if the other side sends a byte at a time.

    Raises:
        Closed: The other side has gone.
        TimeoutError: It did not prove it in time.
    """
    limit, begin = sock.gettimeout(), time.monotonic()
    greeting = Greeting(sock, token, listens=listens)
    while (known := greeting.step()) is None:
        if limit is not None:
            sock.settimeout(max(begin + limit - time.monotonic(), 0.001))
    sock.settimeout(limit)
    return known


def pack_frame(kind: int, sample: SampleMessage | None = None) -> list[memoryview]:
    """Return a sample or a control frame as the parts that are sent one after the other.

    Raises:
        TypeError: The sample is not a dict of dense tensors by name.
        ValueError: It is larger than what a receiver takes.
    """
    sample = {} if sample is None else sample
    # Before any is made contiguous: one that is expanded may be far larger than its memory.
    size = count_bytes(sample)
    if size > LARGEST_BYTES:
        raise ValueError(f"a sample may have {LARGEST_BYTES} bytes, but this one has {size}; send less at a time")
    header, buffers = pack_tensors(sample)
    if len(header) > LARGEST_HEADER:
        raise ValueError(
            f"names and shapes of a sample may have {LARGEST_HEADER} bytes, but those of this one have {len(header)}; "
            "send less at a time"
        )
    head = FRAME.pack(kind, len(header), size) + header
    return [memoryview(head), *(buffer.data for buffer in buffers)]


def send_parts(sock: socket.socket, parts: Sequence[memoryview]) -> None:
    """Send the parts of a frame. After an error, no other frame can follow.

    The socket's time limit is for each wait: a slow receiver is waited for as long as it takes something.

    Raises:
        Closed: The receiver has gone.
        TimeoutError: It took nothing in time.
    """
    try:
        for part in parts:
            sent = 0
            while sent < len(part):
                sent += sock.send(part[sent:])
    except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise Closed("the receiver has closed the connection, or is dead") from error


class FrameReader:
    """Puts the frames that come through a socket together, from as much of them as has come.

    What has come of a frame is kept between calls, so a sender that stops in the middle of one keeps nobody waiting.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.num_bytes = 0
        """How many bytes have come."""
        self.pauses_at = 0
        """After how many bytes it is the turn of others."""
        self.frames = self._read()

    def read(self) -> tuple[int, SampleMessage] | None:
        """Return the kind of the next frame and its sample, or None while it has not come as a whole.

        It takes some 16 MB at a time. A socket without a time limit of 0 is waited for. After an error or an interrupt,
        nothing more can be read.

        Raises:
            Closed: The sender is gone.
            ValueError: What came is not a frame.
        """
        self.pauses_at = self.num_bytes + BYTES_AT_ONCE
        return next(self.frames)

    def _read(self) -> Iterator[tuple[int, SampleMessage] | None]:
        while True:
            head = bytearray(FRAME.size)
            yield from self._fill(memoryview(head))
            kind, header_size, size = FRAME.unpack(head)
            if kind > LEAVE or size > LARGEST_BYTES or header_size > LARGEST_HEADER:
                raise ValueError(f"what came is no sample: kind {kind}, {header_size} and {size} bytes")
            header = bytearray(header_size)
            yield from self._fill(memoryview(header))
            sample = allocate(bytes(header), size)
            for tensor in sample.values():
                yield from self._fill(as_bytes(tensor).data)
            yield kind, sample

    def _fill(self, view: memoryview) -> Iterator[None]:
        """Fill memory; yield whenever there is nothing to fill it with, or it is the turn of others."""
        while len(view):
            if self.num_bytes >= self.pauses_at:
                yield
            try:
                count = self.sock.recv_into(view)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                yield
                continue
            except (ConnectionError, ssl.SSLError):
                count = 0
            if not count:
                raise Closed("the sender has closed the connection, or is dead")
            self.num_bytes += count
            view = view[count:]


def allocate(header: bytes, size: int) -> SampleMessage:
    """Return uninitialised tensors in pooled memory, as a header describes them.

    Raises:
        ValueError: The header describes no tensors, or tensors that don't have `size` bytes together.
    """
    table = read_table(header)
    if sum(own for *_, own in table) != size:
        raise ValueError(f"what came is no sample: its tensors don't have {size} bytes")
    return {name: empty(shape, dtype) for name, dtype, shape, _ in table}


def read_table(header: bytes) -> list[Row]:
    """Return the name, the dtype, the shape and the size in bytes of each tensor that a header describes.

    Raises:
        ValueError: The header describes no tensors.
    """
    try:
        rows = [(str(name), DTYPES[dtype], tuple(map(int, shape))) for name, dtype, shape in json.loads(header)]
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("what came is no sample: its header describes no tensors") from error
    if any(length < 0 for *_, shape in rows for length in shape):
        raise ValueError("what came is no sample: a shape is negative")
    if any(len(shape) > MOST_DIMENSIONS or prod(filter(None, shape)) > MOST_VALUES for *_, shape in rows):
        raise ValueError("what came is no sample: a shape is that of no tensor")
    return [(name, dtype, shape, prod(shape) * dtype.itemsize) for name, dtype, shape in rows]
