"""DGL's former receiver of samples."""

import errno
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from graphfeed.channels.addresses import PLAINTEXT, check_way, choose_token, join_address, listen, parse_address
from graphfeed.channels.certificates import make_server_context
from graphfeed.channels.channel_client import PeerError
from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.frames import END, LEAVE, FrameReader, Greeting
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.checks import check_seconds

GREETING_SECONDS = 10.0
"""How long a caller may take to prove that it knows the token, while the receiver is iterated."""
MOST_GREETINGS = 64
"""How many callers may be about to prove it; others wait in the system."""
MOST_SECONDS = 1e6
"""The longest wait for sockets that the system takes."""
NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Why nobody can be let in, whoever calls."""


@dataclass(eq=False)
class Caller:
    """Somebody who has yet to prove that it knows the token. Nobody waits for it."""

    sock: socket.socket
    name: str
    token: bytes
    greeting: Greeting | None = None
    """It begins once TLS has, where there is TLS."""
    until: float = field(default_factory=lambda: time.monotonic() + GREETING_SECONDS)
    events: int = selectors.EVENT_READ
    """What has to happen to the socket before the next step."""

    def step(self) -> bool | None:
        """Take what has come; return whether it has proved it, or None while that is open."""
        try:
            if self.greeting is None:
                if isinstance(self.sock, ssl.SSLSocket):
                    self.sock.do_handshake()
                self.greeting = Greeting(self.sock, self.token, listens=True)
            return self.greeting.step()
        except (BlockingIOError, ssl.SSLWantReadError):
            self.events = selectors.EVENT_READ
            return None
        except ssl.SSLWantWriteError:
            self.events = selectors.EVENT_WRITE
            return None
        except (Closed, OSError):
            return False


@dataclass(eq=False)
class SenderConnection:
    """A sender's connection."""

    sock: socket.socket
    name: str
    frames: FrameReader
    ended: bool = False
    """It has signalled the end of the epoch; what it sends after that is not read before the next epoch."""
    samples: int = 0
    """How many came in this epoch."""

    def has_decrypted(self) -> bool:
        """Tell whether something is left to be read that the system no longer tells of."""
        return not self.ended and isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0


class SamplerReceiver:
    """Receives the samples of several senders, under the name that DGL's contrib package used.

    An iteration yields the samples of one epoch, in order for each sender. It ends when `num_sender` senders have
    signalled; the next iteration yields the next epoch. DGL's receiver mixed epochs, waited for ever for a dead sender
    and let none join late. This one keeps epochs apart, raises an error, and lets senders join at any time.

    Where other machines can call, senders need a token, and what they send needs TLS. Nothing is unpickled, and nothing
    but a greeting of 84 bytes is read of a caller that does not know the token. A sender that sends faster than samples
    are taken has to wait.

    Args:
        graph: Ignored, for programs that pass it; samples come as dicts of tensors, whatever the graph.
        addr: The address to listen on, such as "127.0.0.1:50051" or "[::1]:50051". With port 0 the system chooses one,
            see `address`. Without TLS, other than loopback addresses must be written as "tcp://0.0.0.0:50051"; then
            anybody on the way can read the samples, and put others in their place.
        num_sender: How many signals end an epoch.
        net_type: "socket".
        token: The token that senders have to know; None means that of the environment, GRAPHFEED_TOKEN. Without one,
            only a loopback address can be listened on, and every user of this machine may send.
        tls: A certificate chain and a private key, both as PEM.
        timeout: After how many seconds in which nothing came the receiver gives up.

    Raises:
        OSError: The address is taken, or not one of this machine.
        TypeError: An argument is of another type.
        ValueError: A malformed address, another net_type, no sender, a certificate that can't be used, or no token or
            no TLS where other machines can call.

    Example:
        >>> import threading, torch
        >>> from graphfeed.channels import SamplerSender
        >>> receiver = SamplerReceiver(None, "127.0.0.1:0", num_sender=1)
        >>> sent = threading.Thread(target=lambda: SamplerSender({0: receiver.address}).send({"x": torch.ones(1)}, 0))
        >>> sent.start()
        >>> next(iter(receiver))
        {'x': tensor([1.])}
        >>> receiver.close()
    """

    def __init__(
        self,
        graph: Any,
        addr: str,
        num_sender: int = 1,
        net_type: str = "socket",
        *,
        token: str | None = None,
        tls: tuple[bytes, bytes] | None = None,
        timeout: float = 600.0,
    ) -> None:
        if num_sender < 1:
            raise ValueError(f"num_sender must be 1 or more, but is {num_sender}")
        if net_type != "socket":
            raise ValueError(f"net_type must be 'socket', but is {net_type!r}")
        host, port = parse_address(check_way(addr, PLAINTEXT, "tls=(certificate, key)", has_tls=tls is not None))
        self.graph = graph
        self.num_sender = num_sender
        check_seconds("timeout", timeout)
        self.timeout = timeout
        self.token = choose_token(token, host)
        self.context = None if tls is None else make_server_context(*tls)
        self.callers: list[Caller] = []
        self.connections: list[SenderConnection] = []
        self.signals = 0
        self.epoch = 0
        self.left = time.monotonic()
        """When this was last iterated."""
        self.listener = listen(host, port)
        self.listener.setblocking(False)  # a caller may have gone between the selector's word and `accept`
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.address = join_address(host, self.listener.getsockname()[1])
        """Where it listens, as "host:port"."""

    def __iter__(self) -> Iterator[SampleMessage]:
        """Yield the samples of an epoch, or what is left of it.

        Raises:
            TimeoutError: Nothing came in time; the message names the senders that are connected and silent.
            PeerError: A sender left or was cut off before it signalled; the message names it.
            RuntimeError: The receiver is closed.
        """
        self._resume()
        end = time.monotonic() + self.timeout
        while self.signals < self.num_sender:
            self._check_open()
            self._hang_up_on_late()
            decrypted = {connection for connection in self.connections if connection.has_decrypted()}
            first = min([end, *(caller.until for caller in self.callers)])
            ready = self.selector.select(0.0 if decrypted else min(max(0.0, first - time.monotonic()), MOST_SECONDS))
            peers = decrypted | {key.data for key, _ in ready}
            for peer in peers:
                if peer is None:
                    self._accept()
                elif isinstance(peer, Caller):
                    self._greet(peer)
                else:
                    before = peer.frames.num_bytes
                    sample = self._receive(peer)
                    if sample is not None:
                        self.left = time.monotonic()
                        yield sample
                        self._check_open()
                        self._resume()
                    if sample is not None or peer.frames.num_bytes > before:
                        end = time.monotonic() + self.timeout
            if time.monotonic() >= end:
                silent = [connection.name for connection in self.connections if not connection.ended]
                raise TimeoutError(
                    f"no sample came for {self.timeout:g} s; {self.signals} of {self.num_sender} senders have "
                    f"signalled, and {' and '.join(silent) or 'no other'} is connected"
                )
        self._begin_epoch()

    def close(self) -> None:
        """Stop listening, and close all connections. Does nothing the second time."""
        for sock in [peer.sock for peer in self.connections] + [caller.sock for caller in self.callers]:
            sock.close()
        self.connections.clear()
        self.callers.clear()
        self.listener.close()
        self.selector.close()

    def __enter__(self) -> Self:
        """Return the receiver, which the end of the block closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the receiver."""
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "selector"):
            self.close()

    def _accept(self) -> None:
        try:
            sock, address = self.listener.accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                raise
            return  # it has gone already
        sock.setblocking(False)
        if self.context is not None:
            try:
                sock = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:  # it has gone already
                sock.close()
                return
        caller = Caller(sock, f"sender {join_address(*address[:2])}", self.token)
        self.callers.append(caller)
        self.selector.register(sock, selectors.EVENT_READ, caller)
        if len(self.callers) == MOST_GREETINGS:
            self.selector.unregister(self.listener)

    def _greet(self, caller: Caller) -> None:
        known = caller.step()
        if known is None:
            self.selector.modify(caller.sock, caller.events, caller)
            return
        self._forget(caller)
        if not known:
            caller.sock.close()
            return
        connection = SenderConnection(caller.sock, caller.name, FrameReader(caller.sock))
        self.connections.append(connection)
        self.selector.register(caller.sock, selectors.EVENT_READ, connection)

    def _check_open(self) -> None:
        if self.listener.fileno() < 0:
            raise RuntimeError("the receiver is closed; make another")

    def _resume(self) -> None:
        """Give callers the time back in which nobody iterated, and so nobody answered them."""
        away = time.monotonic() - self.left
        for caller in self.callers:
            caller.until += away

    def _hang_up_on_late(self) -> None:
        self.left = time.monotonic()
        for caller in [caller for caller in self.callers if caller.until < self.left]:
            self._forget(caller)
            caller.sock.close()

    def _forget(self, caller: Caller) -> None:
        if len(self.callers) == MOST_GREETINGS:
            self.selector.register(self.listener, selectors.EVENT_READ)
        self.callers.remove(caller)
        self.selector.unregister(caller.sock)

    def _receive(self, connection: SenderConnection) -> SampleMessage | None:
        try:
            frame = connection.frames.read()
        except (Closed, OSError, ValueError) as error:
            self._drop(connection)
            raise PeerError(f"{connection.name} was cut off before it signalled: {error}") from error
        except BaseException:
            self._drop(connection)  # it can't be read any more
            raise
        if frame is None:
            return None
        kind, sample = frame
        if kind == END:
            connection.ended = True
            self.signals += 1
            self.selector.unregister(connection.sock)
        elif kind == LEAVE:
            self._drop(connection)
            if connection.samples:
                raise PeerError(f"{connection.name} left after {connection.samples} samples, before it signalled")
        else:
            connection.samples += 1
            return sample
        return None

    def _drop(self, connection: SenderConnection) -> None:
        with suppress(KeyError):
            self.selector.unregister(connection.sock)
        connection.sock.close()
        self.connections.remove(connection)

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self.signals = 0
        self.left = time.monotonic()
        for connection in self.connections:
            if connection.ended:
                connection.ended = False
                connection.samples = 0
                self.selector.register(connection.sock, selectors.EVENT_READ, connection)
