"""Messages between ranks: a dict that JSON can encode, and tensors, sent over a socket. Nothing is pickled."""

import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.ops.memory import POOL, Bytes
from graphfeed.storage.memory import Frame, decode_tensors, encode_tensors, read_frame

Tensors: TypeAlias = Mapping[str, torch.Tensor]
Message: TypeAlias = tuple[dict[str, Any], dict[str, torch.Tensor]]

SIZE = struct.Struct("<Q")
"""The prefix of a message: the number of bytes that follow."""
MOST_PIECES = 512
"""Maximum number of buffers per system call; Linux allows 1,024."""


@dataclass
class Traffic:
    """Counters of the messages and rows of a rank."""

    exchanges: int = 0
    """Number of exchanges with other ranks; simultaneous requests count as one."""
    bytes_sent: int = 0
    """Bytes of its requests, and of its responses to others."""
    rows_needed: int = 0
    """Rows of its nodes that ranks needed for joint mini-batches (`cooperative=True`), counted per rank and node."""
    rows_read: int = 0
    """Rows of its nodes that it read for them, once for all ranks. `rows_needed - rows_read` reads were saved."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        with self._lock:  # any thread may call this
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)


def send(connection: socket.socket, head: Mapping[str, Any], tensors: Tensors) -> int:
    # Sent directly from the memory of the tensors.
    return send_frame(connection, frame_of(head, tensors))


def frame_of(head: Mapping[str, Any], tensors: Tensors) -> Frame:
    # Shares the memory of the tensors. Raises a TypeError for sparse tensors and values that JSON can't encode.
    return Frame(*encode_tensors(tensors, head))


def send_frame(connection: socket.socket, frame: Frame) -> int:
    """Send a frame; return the size of the message in bytes."""
    if isinstance(connection, ssl.SSLSocket):
        # In one buffer, because TLS creates at least one record per call.
        memory: Bytes = POOL.empty(SIZE.size + frame.size, np.uint8)
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
        # The system may have sent some of the buffers, and a part of the next one.
        while sent >= pieces[0].nbytes:
            sent -= pieces.pop(0).nbytes
        pieces[0] = pieces[0][sent:]


def receive(connection: socket.socket) -> Message:
    """Wait for a message and return it; its tensors share one buffer."""
    size = bytearray(SIZE.size)
    receive_into(connection, memoryview(size))
    # Never pinned: torch doesn't notice the copies of tensors over parts of an array.
    memory: Bytes = POOL.empty(SIZE.unpack(size)[0], np.uint8)
    receive_into(connection, memory.data)
    header, parts, _ = read_frame(memory)
    return decode_tensors(header, parts)


def receive_into(connection: socket.socket, memory: memoryview) -> None:
    whole = 0 if isinstance(connection, ssl.SSLSocket) else socket.MSG_WAITALL
    while memory.nbytes:
        count = connection.recv_into(memory, 0, whole)
        if not count:
            raise ConnectionResetError("the other rank has closed the connection")
        memory = memory[count:]
