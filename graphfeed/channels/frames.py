"""Samples over a stream socket, between processes that share a token. Nothing is pickled."""

import hmac
import ipaddress
import json
import os
import secrets
import socket
import struct
from math import prod

import torch

from graphfeed.channels.codec import DTYPES, SampleMessage, pack_tensors
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.buffers import as_bytes, empty

TOKEN_VARIABLE = "GRAPHFEED_TOKEN"
MAGIC = b"graphfeed channel 1\n"
NONCE_BYTES = PROOF_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
FRAME = struct.Struct("<BIQ")
SAMPLE, END, LEAVE = range(3)
LARGEST_HEADER = 1 << 24
LARGEST_BYTES = 1 << 34
"""The largest sample; a peer that announces more is not a sender of this library."""
MOST_DIMENSIONS, MOST_VALUES = 64, 1 << 60
"""What a shape may have, also one with a 0 in it: beyond them, NumPy and torch raise errors of several kinds."""


def parse_address(address: str) -> tuple[str, int]:
    """Return the host and the port of an address.

    Example:
        >>> parse_address("127.0.0.1:50051")
        ('127.0.0.1', 50051)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"an address must be as '127.0.0.1:50051', but is {address!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def choose_token(token: str | None, host: str) -> bytes:
    """Return the given token, or else the environment's; without one, only loopback addresses are allowed.

    Raises:
        ValueError: There is no token, and the host is not a loopback address.
    """
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE, "")
    if not token and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached by others: give both sides the same token, or set {TOKEN_VARIABLE} for both"
        )
    return token.encode()


class Greeting:
    """One side of a greeting: each proves to the other that it knows the token, and neither tells it.

    The proofs of the listener and of the caller differ, so a third party can't pass on one as the other.
    """

    def __init__(self, sock: socket.socket, token: bytes, *, listens: bool) -> None:
        self.sock = sock
        self.token = token
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
        answers = len(self.came) < HELLO_BYTES <= len(self.came) + len(part)
        self.came += part
        if not MAGIC.startswith(self.came[: len(MAGIC)]):
            return False
        other, proof = self.came[len(MAGIC) : HELLO_BYTES], self.came[HELLO_BYTES:]
        if answers:
            self.sock.sendall(self.prove(self.roles[0] + self.own + other))
        if len(proof) < PROOF_BYTES:
            return None
        return hmac.compare_digest(proof, self.prove(self.roles[1] + other + self.own))

    def prove(self, text: bytes) -> bytes:
        """Return what only those who know the token can compute."""
        return hmac.digest(self.token, text, "sha256")


def greet(sock: socket.socket, token: bytes, *, listens: bool) -> bool:
    """Greet the other side of a socket that waits; return whether it has proved that it knows the token."""
    greeting = Greeting(sock, token, listens=listens)
    while (known := greeting.step()) is None:
        pass
    return known


def send_frame(sock: socket.socket, kind: int, sample: SampleMessage | None = None) -> None:
    """Send a sample or a control frame, within the socket's time limit."""
    header, buffers = pack_tensors(sample or {})
    try:
        sock.sendall(FRAME.pack(kind, len(header), sum(buffer.size for buffer in buffers)) + header)
        for buffer in buffers:
            sock.sendall(buffer.data)
    except ConnectionError as error:
        raise Closed("the receiver has closed the connection, or is dead") from error


def receive_frame(sock: socket.socket) -> tuple[int, SampleMessage]:
    """Return the kind of the next frame, and its sample.

    Raises:
        Closed: The sender is gone.
        ValueError: What came is not a frame.
    """
    kind, header_size, size = FRAME.unpack(read_exactly(sock, FRAME.size))
    if kind > LEAVE or size > LARGEST_BYTES or header_size > LARGEST_HEADER:
        raise ValueError(f"what came is no sample: kind {kind}, {header_size} and {size} bytes")
    sample = allocate(read_exactly(sock, header_size), size)
    for tensor in sample.values():
        read_into(sock, as_bytes(tensor).data)
    return kind, sample


def allocate(header: bytes, size: int) -> SampleMessage:
    """Return uninitialised tensors in pooled memory, as a header describes them.

    Raises:
        ValueError: The header describes no tensors, or tensors that don't have `size` bytes together.
    """
    table = read_table(header)
    if sum(own for *_, own in table) != size:
        raise ValueError(f"what came is no sample: its tensors don't have {size} bytes")
    return {name: empty(shape, dtype) for name, dtype, shape, _ in table}


def read_table(header: bytes) -> list[tuple[str, torch.dtype, tuple[int, ...], int]]:
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


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes."""
    data = bytearray(size)
    read_into(sock, memoryview(data))
    return bytes(data)


def read_into(sock: socket.socket, view: memoryview) -> None:
    """Fill memory from a socket; raise Closed if the other side ends before that."""
    while len(view):
        try:
            count = sock.recv_into(view)
        except ConnectionError:
            count = 0
        if not count:
            raise Closed("the sender has closed the connection, or is dead")
        view = view[count:]
