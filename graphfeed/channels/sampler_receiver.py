"""DGL's former receiver of samples."""

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from graphfeed.channels.channel_client import PeerError
from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.frames import END, LEAVE, Greeting, choose_token, parse_address, receive_frame
from graphfeed.loader.transport.thread_channel import Closed

GREETING_SECONDS = 10.0
"""How long a caller may take to prove that it knows the token."""
MOST_GREETINGS = 64
"""How many callers may be about to prove it; others wait in the system."""


@dataclass(eq=False)
class Caller:
    """Somebody who has yet to prove that it knows the token. Nobody waits for it."""

    sock: socket.socket
    name: str
    greeting: Greeting
    until: float = field(default_factory=lambda: time.monotonic() + GREETING_SECONDS)


@dataclass(eq=False)
class SenderConnection:
    """A sender's connection."""

    sock: socket.socket
    name: str
    ended: bool = False
    """It has signalled the end of the epoch; what it sends after that is not read before the next epoch."""
    samples: int = 0
    """How many came in this epoch."""


class SamplerReceiver:
    """Receives the samples of several senders, under the name that DGL's contrib package used.

    An iteration yields the samples of one epoch, in order for each sender. It ends when `num_sender` senders have
    signalled; the next iteration yields the next epoch. DGL's receiver mixed epochs, waited for ever for a dead sender
    and let none join late. This one keeps epochs apart, raises an error, and lets senders join at any time.

    Args:
        graph: Ignored, for programs that pass it; samples come as dicts of tensors, whatever the graph.
        addr: The address to listen on, such as "127.0.0.1:50051". With port 0 the system chooses one, see `address`.
        num_sender: How many signals end an epoch.
        net_type: "socket".
        token: The token that senders have to know; None means that of the environment, GRAPHFEED_TOKEN. Without one,
            only a loopback address can be listened on.
        timeout: How many seconds to wait for a sample.

    Raises:
        ValueError: A malformed address, another net_type, no sender, or no token where other machines can call.

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
        timeout: float = 600.0,
    ) -> None:
        if num_sender < 1:
            raise ValueError(f"num_sender must be 1 or more, but is {num_sender}")
        if net_type != "socket":
            raise ValueError(f"net_type must be 'socket', but is {net_type!r}")
        host, port = parse_address(addr)
        self.graph = graph
        self.num_sender = num_sender
        self.timeout = timeout
        self.token = choose_token(token, host)
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server((host, port))
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.address = f"{host}:{self.listener.getsockname()[1]}"
        self.callers: list[Caller] = []
        self.connections: list[SenderConnection] = []
        self.signals = 0
        self.epoch = 0

    def __iter__(self) -> Iterator[SampleMessage]:
        """Yield the samples of an epoch, or what is left of it.

        Raises:
            TimeoutError: Nothing came in time; the message names the senders that are connected and silent.
            PeerError: A sender left or was cut off before it signalled.
        """
        end = time.monotonic() + self.timeout
        while self.signals < self.num_sender:
            first = min([end, *(caller.until for caller in self.callers)])
            ready = self.selector.select(max(0.0, first - time.monotonic()))
            self._hang_up_on_silent({key.data for key, _ in ready})
            for key, _ in ready:
                if key.data is None:
                    self._accept()
                elif isinstance(key.data, Caller):
                    self._greet(key.data)
                elif (sample := self._receive(key.data)) is not None:
                    yield sample
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

    def __del__(self) -> None:
        if hasattr(self, "connections"):
            self.close()

    def _accept(self) -> None:
        try:
            sock, address = self.listener.accept()
            sock.setblocking(False)
            caller = Caller(sock, f"sender {address[0]}:{address[1]}", Greeting(sock, self.token, listens=True))
        except OSError:  # it has gone already
            return
        self.callers.append(caller)
        self.selector.register(sock, selectors.EVENT_READ, caller)
        if len(self.callers) == MOST_GREETINGS:
            self.selector.unregister(self.listener)

    def _greet(self, caller: Caller) -> None:
        try:
            known = caller.greeting.step()
        except (Closed, OSError):
            known = False
        if known is None:
            return
        self._forget(caller)
        if not known:
            caller.sock.close()
            return
        caller.sock.settimeout(self.timeout)
        connection = SenderConnection(caller.sock, caller.name)
        self.connections.append(connection)
        self.selector.register(caller.sock, selectors.EVENT_READ, connection)

    def _hang_up_on_silent(self, ready: set[Any]) -> None:
        now = time.monotonic()
        for caller in [caller for caller in self.callers if caller.until < now and caller not in ready]:
            self._forget(caller)
            caller.sock.close()

    def _forget(self, caller: Caller) -> None:
        if len(self.callers) == MOST_GREETINGS:
            self.selector.register(self.listener, selectors.EVENT_READ)
        self.callers.remove(caller)
        self.selector.unregister(caller.sock)

    def _receive(self, connection: SenderConnection) -> SampleMessage | None:
        try:
            kind, sample = receive_frame(connection.sock)
        except (Closed, OSError, ValueError) as error:
            self._drop(connection)
            raise PeerError(f"{connection.name} was cut off before it signalled: {error}") from error
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
        for connection in self.connections:
            if connection.ended:
                connection.ended = False
                connection.samples = 0
                self.selector.register(connection.sock, selectors.EVENT_READ, connection)
