"""Messages between ranks: a dict for JSON and some tensors, sent through a socket. Nothing is pickled."""

import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import torch

from graphfeed.ops.memory import buffers
from graphfeed.storage.memory import Frame, decode_tensors, encode_tensors, read_frame

Tensors: TypeAlias = Mapping[str, torch.Tensor]
Message: TypeAlias = tuple[dict[str, Any], dict[str, torch.Tensor]]

SIZE = struct.Struct("<Q")
"""What a message begins with: how many bytes follow."""
MOST_PIECES = 512
"""How many pieces one call of the system sends; at most 1,024 are possible on Linux."""


@dataclass
class Traffic:
    """Counts of what a rank has sent so far."""

    exchanges: int = 0
    """How often it asked other ranks something; all that is asked at the same time counts once."""
    bytes_sent: int = 0
    """Its questions, and its answers to others."""
    rows_needed: int = 0
    """The rows of its nodes that ranks needed for joint mini-batches (`cooperative=True`): one per rank and node."""
    rows_read: int = 0
    """Those that it read, each once for all ranks; the rest was saved."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        with self._lock:  # any thread may call this
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)


def send(connection: socket.socket, head: Mapping[str, Any], tensors: Tensors) -> int:
    # Sent from the memory of the tensors, without a copy of them.
    return send_frame(connection, frame_of(head, tensors))


def frame_of(head: Mapping[str, Any], tensors: Tensors) -> Frame:
    # It shares the memory of the tensors. What is no dense tensor, or nothing that JSON can hold, is a TypeError.
    return Frame(*encode_tensors(tensors, head))


def send_frame(connection: socket.socket, frame: Frame) -> int:
    """Send what `frame_of` returned; return its size in bytes."""
    if isinstance(connection, ssl.SSLSocket):
        # In one piece, as TLS makes a record of each call at least.
        memory = buffers.empty(SIZE.size + frame.size, torch.uint8).numpy()
        SIZE.pack_into(memory.data, 0, frame.size)
        frame.write(memory[SIZE.size :])
        connection.sendall(memory.data)
        return memory.nbytes
    pieces = [memoryview(SIZE.pack(frame.size)), *frame.pieces()]
    size = left = SIZE.size + frame.size
    while True:
        sent = connection.sendmsg(islice(pieces, MOST_PIECES))
        left -= sent
        if not left:
            return size
        # The system may have sent some of the pieces, and a part of the next one.
        while sent >= pieces[0].nbytes:
            sent -= pieces.pop(0).nbytes
        pieces[0] = pieces[0][sent:]


def receive(connection: socket.socket) -> Message:
    """Wait for a message, and return it; its tensors share one piece of memory."""
    size = bytearray(SIZE.size)
    fill(connection, memoryview(size))
    memory = buffers.empty(SIZE.unpack(size)[0], torch.uint8).numpy()
    fill(connection, memory.data)
    header, parts, _ = read_frame(memory)
    return decode_tensors(header, parts)


def fill(connection: socket.socket, memory: memoryview) -> None:
    whole = 0 if isinstance(connection, ssl.SSLSocket) else socket.MSG_WAITALL
    while memory.nbytes:
        count = connection.recv_into(memory, 0, whole)
        if not count:
            raise ConnectionResetError("the other end has closed the connection")
        memory = memory[count:]
