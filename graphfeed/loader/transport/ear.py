"""Receiving from a socket: with a time limit, and awake for a moment before one sleeps."""

import socket
import struct
import time
from array import array

from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops import poll_request, spin
from graphfeed.storage.memory.memory_map import Bytes

EXTRA_BYTES = socket.CMSG_SPACE(array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0
SPIN_MICROSECONDS = 100
"""How long one looks before one sleeps: about what two cores take that wake each other."""
BRIEF_SECONDS = 300e-6
"""After a wait that was shorter, the next one may be too: asleep, two that answer each other take so long."""


class TimeLimit:
    """How long the system waits in one direction of a blocking socket; cheaper than asking it before each call."""

    def __init__(self, sock: socket.socket, option: int) -> None:
        sock.setblocking(True)
        self.sock = sock
        self.option = option
        self.seconds = 0.0

    def flags(self, seconds: float) -> int:
        """Set the limit, and return the flags of the call that it is for; raise Closed where there is no socket."""
        if self.sock.fileno() < 0:
            raise Closed("this end was closed")
        if seconds <= 0:
            return socket.MSG_DONTWAIT
        if seconds != self.seconds:
            whole = int(seconds)
            # The system takes 0 for no limit.
            rest = max(int((seconds - whole) * 1e6), 1)
            self.sock.setsockopt(socket.SOL_SOCKET, self.option, struct.pack("@ll", whole, rest))
            self.seconds = seconds
        return 0


class Patience:
    """Decides whether to look before one sleeps: only where the wait before was a short one.

    So a descriptor at which little happens costs no core, and one at which much happens wakes nobody. What is waited
    for is not consumed, so nothing can be missed in between: who sleeps after it looked finds what came meanwhile.
    """

    def __init__(self, descriptor: int) -> None:
        self.request = poll_request(descriptor)
        self.brief = False
        self.limit = BRIEF_SECONDS
        self.start = 0.0

    def begin(self) -> None:
        """Begin a wait: look for a moment, or don't."""
        self.start = time.perf_counter()
        self.limit = BRIEF_SECONDS
        if self.brief and not spin(self.request, SPIN_MICROSECONDS):
            self.limit = 0.0

    def end(self) -> None:
        """End it."""
        self.brief = time.perf_counter() - self.start < self.limit


class Ear:
    """The receiving side of a socket that carries records."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.limit = TimeLimit(sock, socket.SO_RCVTIMEO)
        self.patience = Patience(sock.fileno())

    def hear(self, record: Bytes, timeout_seconds: float) -> tuple[int, int | None]:
        """Receive a record into memory; return its size and the descriptor that came along. The end has size 0.

        Raises:
            Closed: This end was closed.
            TimeoutError: Nothing came in time.
        """
        flags = self.limit.flags(timeout_seconds) | socket.MSG_CMSG_CLOEXEC
        waits = timeout_seconds > 0
        if waits:
            self.patience.begin()
        try:
            size, extra, _, _ = self.sock.recvmsg_into([record.data], EXTRA_BYTES, flags)
        except BlockingIOError as error:
            raise TimeoutError(f"nothing came for {timeout_seconds:g} s") from error
        except ConnectionError:
            return 0, None
        finally:
            if waits:
                self.patience.end()
        return size, array("i", extra[0][2])[0] if extra else None
