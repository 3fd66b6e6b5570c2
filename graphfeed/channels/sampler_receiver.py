"""DGL's former receiver of samples."""

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.frames import END, LEAVE, choose_token, greet, parse_address, receive_frame
from graphfeed.channels.line import PeerError
from graphfeed.loader.transport.thread_channel import Closed

GREETING_SECONDS = 10.0
"""How long one that calls may take to prove that it is one of ours; others wait meanwhile."""


@dataclass(eq=False)
class Caller:
    """A sender's connection."""

    sock: socket.socket
    name: str
    ended: bool = False
    """It has signalled the end of the epoch; what it sends after that is left where it is until the next one."""
    samples: int = 0
    """What came in this epoch."""


class SamplerReceiver:
    """Receives the samples of several senders, under the name that DGL's contrib package had for it.

    Iterating it gives the samples of one epoch, in order for each sender: it ends when `num_sender` senders have
    signalled, and can be iterated again for the next. Where theirs mixes epochs, waits for ever for a dead sender and
    lets none join late, this one keeps epochs apart, raises, and lets senders come at any time.

    Args:
        graph: Taken for the sake of code that gives it; samples come as dicts of tensors, whatever the graph.
        addr: Where to listen, as "127.0.0.1:50051"; port 0 lets the system choose, see `address`.
        num_sender: So many signals make the end of an epoch.
        net_type: "socket".
        token: What senders have to know; None takes that of the environment, GRAPHFEED_TOKEN. Without one, only this
            machine can be listened on.
        timeout: Seconds without any sample before the wait fails.

    Raises:
        ValueError: A malformed address, another net_type, no sender, or no token where others can call.

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
        self.signals = 0
        self.epoch = 0

    def __iter__(self) -> Iterator[SampleMessage]:
        """Yield the samples of an epoch, or of what is left of it.

        Raises:
            TimeoutError: Nothing came in time.
            PeerError: A sender left or was cut off before it signalled.
        """
        end = time.monotonic() + self.timeout
        while self.signals < self.num_sender:
            ready = self.selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(
                    f"no sample came for {self.timeout:g} s; {self.signals} of {self.num_sender} senders have "
                    f"signalled, {sum(not caller.ended for caller in self.callers)} others are connected"
                )
            for key, _ in ready:
                if key.data is None:
                    self._accept()
                elif (sample := self._hear(key.data)) is not None:
                    yield sample
                    end = time.monotonic() + self.timeout
        self._begin_epoch()

    def close(self) -> None:
        """Stop listening, and hang up. Does nothing the second time."""
        for caller in self.callers:
            caller.sock.close()
        self.callers.clear()
        self.listener.close()
        self.selector.close()

    def __del__(self) -> None:
        if hasattr(self, "callers"):
            self.close()

    def _accept(self) -> None:
        sock, address = self.listener.accept()
        sock.settimeout(GREETING_SECONDS)
        try:
            known = greet(sock, self.token, listens=True)
        except (Closed, OSError):
            known = False
        if not known:
            sock.close()
            return
        sock.settimeout(self.timeout)
        caller = Caller(sock, f"sender {address[0]}:{address[1]}")
        self.callers.append(caller)
        self.selector.register(sock, selectors.EVENT_READ, caller)

    def _hear(self, caller: Caller) -> SampleMessage | None:
        try:
            kind, sample = receive_frame(caller.sock)
        except (Closed, OSError, ValueError) as error:
            self._drop(caller)
            raise PeerError(f"{caller.name} was cut off before it signalled: {error}") from error
        if kind == END:
            caller.ended = True
            self.signals += 1
            self.selector.unregister(caller.sock)
        elif kind == LEAVE:
            self._drop(caller)
            if caller.samples:
                raise PeerError(f"{caller.name} left after {caller.samples} samples, before it signalled")
        else:
            caller.samples += 1
            return sample
        return None

    def _drop(self, caller: Caller) -> None:
        with suppress(KeyError):
            self.selector.unregister(caller.sock)
        caller.sock.close()
        self.callers.remove(caller)

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self.signals = 0
        for caller in self.callers:
            if caller.ended:
                caller.ended = False
                caller.samples = 0
                self.selector.register(caller.sock, selectors.EVENT_READ, caller)
