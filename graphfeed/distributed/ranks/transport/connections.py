"""Connections for requests to another rank. The thread that needs a response reads it itself."""

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

from graphfeed.distributed.ranks.transport.messages import Message, Tensors, receive, send
from graphfeed.ops.process import Changes

TIME_LIMIT = struct.Struct("ll")
"""A `struct timeval`: seconds and microseconds."""
INTERFACE_ADDRESS = 0x8915
"""SIOCGIFADDR of Linux, which returns the IPv4 address of a network interface."""
INTERFACES_6, LINK_LOCAL = Path("/proc/net/if_inet6"), 0x20
"""The file in which Linux lists IPv6 addresses of interfaces, and the scope of link-local ones."""

NEW = object()
"""Marker: a new connection may be opened."""


class Connections:
    """The connections to one rank. Each carries one request at a time, then its response."""

    # Requests don't wait for those of other threads, and responses need no dispatcher: the other rank has a thread per
    # connection. The first thread that needs a response or its connection reads it, under its lock; `Answer` keeps it.
    def __init__(self, connect: Callable[[], socket.socket], most: int) -> None:
        self._connect = connect
        self._free = most
        self._idle: list[socket.socket] = []
        self._unread: deque[Answer] = deque()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self._changes = Changes()

    def send_request(self, head: Mapping[str, Any], tensors: Tensors) -> tuple["Answer", int]:
        """Send a request; return its future response, and the size of the request in bytes."""
        connection = self._acquire()
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

    def _acquire(self) -> socket.socket:
        """Return a connection without a pending request, for exclusive use by the caller."""
        while (found := self._changes.wait_for(self._choose)) is not NEW:
            if isinstance(found, socket.socket):
                return found
            with suppress(Exception):  # the requester gets it
                found.read()
        try:
            connection = self._connect()
        except BaseException:
            self.drop(None)
            raise
        with self._changes.lock:
            if not self._closed:  # it may have been closed while this connection was opened
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
        # All connections have a request in flight; reading the oldest response frees one.
        return self._unread[0] if self._unread else None

    def release(self, answer: "Answer", connection: socket.socket) -> None:
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
            self._free += 1  # a replacement may be opened
        self._changes.notify_all()

    def has_all(self) -> bool:
        with self._changes.lock:
            unread = list(self._unread)
        # Read all responses that have arrived, even if no thread waits for them.
        for answer in unread:
            if answer.has_come():
                with suppress(Exception):
                    answer.read()
        return not self._unread

    def close(self) -> None:
        """Fail all pending requests."""
        with self._changes.lock:
            self._closed = True
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # which wakes blocked readers
            unread, idle = list(self._unread), self._idle
        for answer in unread:
            with suppress(Exception):
                answer.read()
        for connection in idle:
            connection.close()

    def abandon(self) -> None:
        # Called in a fork: a shutdown would end the connections of the parent process too.
        for connection in list(self._open):
            connection.close()


class Answer:
    """The response to a request, to be read from its connection."""

    def __init__(self, connections: Connections, connection: socket.socket) -> None:
        self._connections = connections
        self._connection: socket.socket | None = connection
        self._message: Message
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def has_come(self) -> bool:
        """Return whether data has arrived and no thread is reading it yet."""
        # A thread that has the lock waits for the response, and reads it.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._connection is not None and bool(wait([self._connection], 0))
        except OSError:
            return False
        finally:
            self._lock.release()

    def read(self) -> Message:
        """Wait for the response and return it. Further calls return or raise the same."""
        with self._lock:
            if self._connection is not None:
                connection = self._connection
                try:
                    self._message = receive(connection)
                except BaseException as error:
                    # The interrupt is for the thread that got it; the requester gets an InterruptedError.
                    interrupted = InterruptedError(f"the thread that read a response got {error!r}")
                    self._error = error if isinstance(error, Exception) else interrupted
                    self._connection = None
                    self._connections.drop(connection, self)
                    raise
                self._connection = None
                self._connections.release(self, connection)
            if self._error is not None:
                raise self._error
            return self._message


def open_connection(
    address: tuple[str, int], greeting: bytes, connect_seconds: float, seconds: float, context: ssl.SSLContext | None
) -> socket.socket:
    """Connect to another rank and send the greeting. Reads have a time limit of `seconds`, rounded up."""
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
            # A limit of the socket itself: with Python's timeout, each read would take two system calls.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIME_LIMIT.pack(int(seconds) + 1, 0))
        closing.pop_all()
    return connection


def own_address(toward: str) -> str:
    """Return the IPv4 or IPv6 address at which other ranks reach this one."""
    # The address from which this machine reaches the rendezvous, unless an interface is named.
    if name := os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]:
        return address_of(name)
    try:
        kind, _, _, _, address = socket.getaddrinfo(toward, 9, type=socket.SOCK_DGRAM)[0]
    except socket.gaierror:
        if toward == socket.gethostname():
            return "127.0.0.1"  # a machine without a resolvable name has no peers
        raise
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
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
