"""A server that answers requests of other ranks, with one thread per connection."""

import hmac
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, TypeAlias

import torch

from graphfeed.distributed.ranks.transport.connections import own_address
from graphfeed.distributed.ranks.transport.messages import (
    SIZE,
    Tensors,
    Traffic,
    frame_of,
    receive,
    receive_into,
    send_frame,
)
from graphfeed.ops.process import Changes, current_limits, uninterrupted
from graphfeed.storage.memory import Frame

Respond: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, torch.Tensor]], Tensors]
"""Computes the response to a request from its options and its tensors."""

TOKEN_BYTES = 16
GREETING = struct.Struct(f"<{TOKEN_BYTES}sI?")
"""The first bytes on a connection: the listener's token, the sender's rank, and whether it carries heartbeats."""
PAUSE_SECONDS = 0.1
"""Pause of a thread that could not accept a connection."""
ACCEPT_SECONDS = 1.0
"""How often a thread checks whether the listener is closed, on systems where closing doesn't wake it."""


class Listener:
    """Accepts connections of other ranks, and answers their requests."""

    def __init__(
        self,
        num_threads: int,
        traffic: Traffic,
        on_heartbeat: Callable[[int, socket.socket], None],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._traffic, self._take_pulse, self._context = traffic, on_heartbeat, context
        self.responds: dict[str, Respond] = {}
        self._changes = Changes()
        self._ending = self._closed = False
        self._socket: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        try:
            # All at once: a program that is ending can't start threads, but other ranks may still send requests.
            for _ in range(num_threads):
                # Not daemons: at exit, Python waits until the other ranks no longer need this one's part.
                thread = threading.Thread(target=self._run, name="graphfeed-answers", daemon=False)
                with uninterrupted():
                    thread.start()
                    self._threads.append(thread)
        except BaseException:
            self.close()
            raise

    def listen(self, toward: str, port: int = 0) -> tuple[tuple[str, int], str, bool]:
        """Listen at this rank's address; return it, the token for greetings, and whether connections need TLS."""
        address = own_address(toward)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with self._changes.lock:
            try:
                self._socket = socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN)
            except OSError as error:
                raise OSError(f"can't listen at port {port} of {address}: {error}; choose another port") from error
            self._socket.settimeout(ACCEPT_SECONDS)
            self._open.add(self._socket)
            self._changes.notify_all()
            return (address, int(self._socket.getsockname()[1])), self.token.hex(), self._context is not None

    def serve(self, subject: str, respond: Respond) -> str:
        with self._changes.lock:
            # Ranks create objects in the same order, so the n-th object of a subject is the same on all of them.
            name = f"{subject} {sum(known.rpartition(' ')[0] == subject for known in self.responds)}"
            self.responds[name] = respond
        self._changes.notify_all()
        return name

    def end(self) -> None:
        # Until this is called, requests for objects that this rank has not created wait.
        self._ending = True
        self._changes.notify_all()

    def close(self) -> None:
        """Close all connections and end all threads, after the responses in progress."""
        with self._changes.lock:
            self._closed = self._ending = True
            self._changes.notify_all()
            for open_socket in self._open:
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        if self._socket is not None:
            self._socket.close()

    def abandon(self) -> None:
        for open_socket in self._open:
            open_socket.close()  # the copy of this process, a fork

    def _run(self) -> None:
        """Serve one connection after another."""
        self._changes.wait_for(lambda: self._socket is not None or self._closed)
        while self._socket is not None and not self._closed:
            try:
                connection = self._socket.accept()[0]
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self._serve(connection)
            except TimeoutError:
                continue
            except OSError:
                time.sleep(PAUSE_SECONDS)  # the socket is closed, or too many files are open

    def _serve(self, connection: socket.socket) -> None:
        """Answer requests on a connection until it ends."""
        with self._changes.lock:
            self._open.add(connection)
        try:
            # On any error, the connection is closed, which the other rank notices.
            with ExitStack() as closing, suppress(Exception):
                closing.enter_context(connection)
                rank = self._greet(connection)
                if rank is not None:
                    closing.pop_all()
                    self._take_pulse(rank, connection)
                while rank is None and not self._closed:
                    frame = self._answer(*receive(connection))
                    self._traffic.add(bytes_sent=SIZE.size + frame.size)  # before the requester can continue
                    send_frame(connection, frame)
        finally:
            with self._changes.lock:
                self._open.discard(connection)

    def _greet(self, connection: socket.socket) -> int | None:
        """Return the rank whose heartbeats a connection carries; None if it carries requests."""
        connection.settimeout(current_limits().peer_seconds)
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        said = bytearray(GREETING.size)
        receive_into(connection, memoryview(said))
        token, rank, is_pulse = GREETING.unpack(said)
        if not hmac.compare_digest(token, self.token):
            raise PermissionError("another token")
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return int(rank) if is_pulse else None

    def _answer(self, head: dict[str, Any], tensors: Tensors) -> Frame:
        """Return the frame of the response to a request."""
        name = head["name"]
        self._changes.wait_for(lambda: name in self.responds or self._ending)
        respond = self.responds.get(name, refuse)
        try:
            return frame_of({}, respond(head["options"], tensors))
        except Exception as error:
            return frame_of({"error": f"{type(error).__name__}: {error}"}, {})


def refuse(*_: object) -> Tensors:
    raise RuntimeError("it has ended without creating this graph, feature or loader; all ranks must create the same")
