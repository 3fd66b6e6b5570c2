"""Sockets for small records, each optionally with a file descriptor."""

import socket
from array import array

import torch

from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.memory import Bytes, align

RECORD_BYTES = (1 << 14) + 64
"""Maximum size of a record."""
CHUNK_BYTES = 4 * RECORD_BYTES
"""Size of the buffers that received records share."""
EXTRA_BYTES = socket.CMSG_SPACE(array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0

DESCRIPTOR_LOST = "a message's memory did not arrive: this process has too many open files; raise ulimit -n"


class RecordSocket:
    """One end of a pair of AF_UNIX, SOCK_SEQPACKET sockets, for one thread at a time. A timeout of 0 doesn't block."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.chunk: Bytes | None = None

    def send(self, record: bytes | memoryview, descriptor: int | None, timeout_seconds: float) -> None:
        """Send a record once the queue has space, optionally with a descriptor; raise `Closed` if an end was closed."""
        rights = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
        self._limit(timeout_seconds)
        try:
            self.sock.sendmsg([record], rights, socket.MSG_NOSIGNAL)
        except (BlockingIOError, TimeoutError) as error:
            raise TimeoutError(f"the receiver's queue was full for {timeout_seconds:g} s") from error
        except ConnectionError as error:
            raise Closed("the receiver has closed its end, or has died") from error

    def receive(self, timeout_seconds: float) -> tuple[Bytes, int | None]:
        """Return the next record, aligned to 64 bytes, and its descriptor, if any, which the caller must close.

        Raises the errors of `Inbox.receive`.
        """
        if self.chunk is None or self.chunk.size < RECORD_BYTES:
            # Unlike NumPy's, torch's memory is aligned to 64 bytes.
            self.chunk = torch.empty(CHUNK_BYTES, dtype=torch.uint8, device="cpu").numpy()
        chunk = self.chunk
        self._limit(timeout_seconds)
        try:
            size, extra, flags, _ = self.sock.recvmsg_into([chunk.data], EXTRA_BYTES, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, TimeoutError) as error:
            raise TimeoutError(f"nothing came for {timeout_seconds:g} s") from error
        except ConnectionError as error:
            raise Closed("the sender has closed its end, or has died") from error
        except OSError as error:
            if self.sock.fileno() < 0:  # another thread closed it in the meantime
                raise Closed("this end was closed") from error
            raise
        if size == 0:
            raise Closed("the sender has closed its end, or has died")
        if flags & socket.MSG_CTRUNC:
            raise OSError(DESCRIPTOR_LOST)
        self.chunk = chunk[align(size) :]
        return chunk[:size], array("i", extra[0][2])[0] if extra else None

    def close(self) -> None:
        """Close this end. No effect if called again."""
        self.sock.close()
        self.chunk = None

    def _limit(self, timeout_seconds: float) -> None:
        if self.sock.fileno() < 0:
            raise Closed("this end was closed")
        self.sock.settimeout(max(timeout_seconds, 0.0))
