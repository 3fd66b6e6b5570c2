"""Connections to another rank, over which this one asks it. The thread that waits for an answer reads it itself."""

import os
import socket
import ssl
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from graphfeed.distributed.ranks.messages import Message, Tensors, receive, send
from graphfeed.ops.process import Changes

TIME_LIMIT = struct.Struct("ll")
"""A `struct timeval`: seconds, and microseconds."""
INTERFACE_ADDRESS = 0x8915
"""SIOCGIFADDR of Linux, which returns the IPv4 address of an interface."""
INTERFACES_6, LINK_LOCAL = Path("/proc/net/if_inet6"), 0x20
"""Where Linux lists the IPv6 addresses of interfaces, and the scope of those that no other network reaches."""

NEW = object()
"""Says that a connection may be opened."""


class Connections:
    """The connections to one rank. Each of them carries one question at a time, and then its answer."""

    # So nobody waits behind the question of another thread, and no thread has to sort answers. The other rank has as
    # many threads as there may be connections, each of which answers on one of them.
    def __init__(self, connect: Callable[[], socket.socket], most: int) -> None:
        self._connect = connect
        self._free = most
        self._idle: list[socket.socket] = []
        self._unread: deque[Answer] = deque()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self._changes = Changes()

    def ask(self, head: Mapping[str, Any], tensors: Tensors) -> tuple["Answer", int]:
        """Send a question; return what reads the answer, and the size of the question in bytes."""
        connection = self._take()
        try:
            size = send(connection, head, tensors)
        except BaseException:
            self.drop(connection)
            raise
        answer = Answer(self, connection)
        with self._changes.lock:
            self._unread.append(answer)
        self._changes.notify_all()
        return answer, size

    def _take(self) -> socket.socket:
        """Return a connection without a question, for the caller alone."""
        while (found := self._changes.wait_for(self._choose)) is not NEW:
            if isinstance(found, socket.socket):
                return found
            with suppress(Exception):  # which its own thread gets
                found.read()
        try:
            connection = self._connect()
        except BaseException:
            self.drop(None)
            raise
        with self._changes.lock:
            if not self._closed:  # else it was closed while this one was opened
                self._open.add(connection)
                return connection
        connection.close()
        raise ConnectionError("the peers have ended")

    def _choose(self) -> Any:
        if self._idle:
            return self._idle.pop()
        if self._free:
            self._free -= 1
            return NEW
        # All connections have a question; reading the oldest answer frees one.
        return self._unread[0] if self._unread else None

    def give_back(self, answer: "Answer", connection: socket.socket) -> None:
        with self._changes.lock:
            self._unread.remove(answer)
            self._idle.append(connection)
        self._changes.notify_all()

    def drop(self, connection: socket.socket | None, answer: "Answer | None" = None) -> None:
        if connection is not None:
            connection.close()
        with self._changes.lock:
            if answer is not None:
                self._unread.remove(answer)
            self._free += 1  # another one may be opened in its place
        self._changes.notify_all()

    def has_all(self) -> bool:
        with self._changes.lock:
            unread = list(self._unread)
        # Those that have come are read, also where nobody waits for them.
        for answer in unread:
            if answer.has_come():
                with suppress(Exception):
                    answer.read()
        return not self._unread

    def close(self) -> None:
        """Let all who wait for an answer fail."""
        with self._changes.lock:
            self._closed = True
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # which wakes who reads
            unread, idle = list(self._unread), self._idle
        for answer in unread:
            with suppress(Exception):
                answer.read()
        for connection in idle:
            connection.close()

    def abandon(self) -> None:
        # In a fork. Not shut down, as that would end the connections of the process that was forked.
        for connection in list(self._open):
            connection.close()


class Answer:
    """The answer to a question, which comes on its connection."""

    def __init__(self, connections: Connections, connection: socket.socket) -> None:
        self._connections = connections
        self._connection: socket.socket | None = connection
        self._message: Message
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def has_come(self) -> bool:
        """Return whether some of it is there to be read, and nobody reads it already."""
        # Whoever has the lock waits for the answer, and reads it.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._connection is not None and bool(wait([self._connection], 0))
        except OSError:
            return False
        finally:
            self._lock.release()

    def read(self) -> Message:
        """Wait for it, and return it, however often this is called; what failed once fails again."""
        with self._lock:
            if self._connection is not None:
                connection = self._connection
                try:
                    self._message = receive(connection)
                except BaseException as error:
                    # An interrupt is for the thread that got it; who waits for the answer gets an error of its own.
                    interrupted = InterruptedError(f"the thread that read an answer got {error!r}")
                    self._error = error if isinstance(error, Exception) else interrupted
                    self._connection = None
                    self._connections.drop(connection, self)
                    raise
                self._connection = None
                self._connections.give_back(self, connection)
            if self._error is not None:
                raise self._error
            return self._message


def open_connection(
    address: tuple[str, int], greeting: bytes, connect_seconds: float, seconds: float, context: ssl.SSLContext | None
) -> socket.socket:
    """Return a connection to another rank, which first gets a greeting, and whose answers may take some seconds."""
    with ExitStack() as closing:
        connection = closing.enter_context(socket.create_connection(address, connect_seconds))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            connection = closing.enter_context(context.wrap_socket(connection))
        connection.sendall(greeting)
        if context is not None:
            connection.settimeout(seconds + 1)
        else:
            connection.settimeout(None)
            # A time limit of the socket itself: with Python's, each read would be two calls of the system.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIME_LIMIT.pack(int(seconds) + 1, 0))
        closing.pop_all()
    return connection


def own_address(toward: str) -> str:
    """Return the address at which other ranks reach this one, of IPv4 or IPv6."""
    # The address from which this machine reaches the place where ranks meet, unless an interface is named.
    if name := os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]:
        return address_of(name)
    try:
        kind, _, _, _, address = socket.getaddrinfo(toward, 9, type=socket.SOCK_DGRAM)[0]
    except socket.gaierror:
        if toward == socket.gethostname():
            return "127.0.0.1"  # a machine that has no name for others is alone
        raise
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # which sends nothing
        return str(probe.getsockname()[0])


def address_of(interface: str) -> str:
    import fcntl  # noqa: PLC0415  # not on Windows

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe.fileno(), INTERFACE_ADDRESS, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            for line in INTERFACES_6.read_text().splitlines() if INTERFACES_6.exists() else ():
                digits, _, _, scope, _, name = line.split()
                if name == interface and int(scope, 16) != LINK_LOCAL:
                    return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
            raise OSError(f"GLOO_SOCKET_IFNAME is {interface!r}, but no such interface has an address") from error
    return socket.inet_ntoa(found[20:24])
