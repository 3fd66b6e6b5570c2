"""Samples over a stream socket, between processes that share a token. Nothing is pickled."""

import hmac
import ipaddress
import json
import os
import secrets
import socket
import struct
from math import prod

from graphfeed.channels.codec import DTYPES, SampleMessage, pack_tensors
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.buffers import as_bytes, empty

TOKEN_VARIABLE = "GRAPHFEED_TOKEN"
MAGIC = b"graphfeed channel 1\n"
NONCE_BYTES = PROOF_BYTES = 32
FRAME = struct.Struct("<BIQ")
SAMPLE, END, LEAVE = range(3)
LARGEST_HEADER = 1 << 24
LARGEST_BYTES = 1 << 34
"""The largest sample; a peer that announces more is not a sender of this library."""


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


def greet(sock: socket.socket, token: bytes, *, listens: bool) -> bool:
    """Prove to the other side that this one knows the token; return whether it proves the same.

    The proofs of the listener and of the caller differ, so a third party can't pass on one as the other.
    """
    own = secrets.token_bytes(NONCE_BYTES)
    sock.sendall(MAGIC + own)
    greeting = read_exactly(sock, len(MAGIC) + NONCE_BYTES)
    if not greeting.startswith(MAGIC):
        return False
    other = greeting[len(MAGIC) :]
    mine, theirs = (b"listens", b"calls") if listens else (b"calls", b"listens")
    sock.sendall(hmac.digest(token, mine + own + other, "sha256"))
    proof = read_exactly(sock, PROOF_BYTES)
    return hmac.compare_digest(proof, hmac.digest(token, theirs + other + own, "sha256"))


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
    try:
        rows = [(str(name), DTYPES[dtype], shape) for name, dtype, shape in json.loads(header)]
        table = [(name, dtype, [int(length) for length in shape]) for name, dtype, shape in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("what came is no sample: its header describes no tensors") from error
    if any(length < 0 for *_, shape in table for length in shape):
        raise ValueError("what came is no sample: a shape is negative")
    if sum(prod(shape) * dtype.itemsize for _, dtype, shape in table) != size:
        raise ValueError(f"what came is no sample: its tensors don't have {size} bytes")
    return {name: empty(tuple(shape), dtype) for name, dtype, shape in table}


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
