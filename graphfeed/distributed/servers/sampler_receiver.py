"""The receiver of samples that DGL once had, as an Arrow Flight server."""

import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from graphfeed.channels import PeerError, SampleMessage
from graphfeed.distributed.wire import (
    FlightServer,
    check_encryption,
    check_schema,
    choose_token,
    from_batch,
    import_flight,
    parse_address,
    text_of,
    to_batch,
)
from graphfeed.ops.arguments import check_seconds, checked
from graphfeed.ops.process import Changes, Closeable
from graphfeed.storage.memory import describe_tensors

HELLO, SAMPLE, END, LEAVE = "hello", "sample", "end", "leave"
"""Messages of a sender: a check of the connection, a sample, the end of its epoch, and that it leaves."""
CAPACITY = 2
"""Number of samples and epoch ends per sender in the queue, beyond which the sender has to wait."""
STEP_SECONDS = 0.1
"""How often the connection of a sender is checked."""


@dataclass(eq=False)
class Sender:
    """A connected sender."""

    name: str
    queue: deque[tuple[str, SampleMessage]] = field(default_factory=deque)
    """Received messages that were not taken yet: samples, and ends of its epochs."""
    num_samples: int = 0
    """Number of samples taken in this epoch."""
    ended: bool = False
    """Whether it has signalled the end of the epoch. Later messages are taken in the next epoch."""
    left: bool = False
    """Whether it has announced that it leaves."""
    lost: str | None = None
    """The reason if nothing more can arrive from it."""


class SampleInbox:
    """The queues of several senders, a few samples each: server threads fill them, and the trainer empties them."""

    def __init__(self, num_sender: int) -> None:
        self.num_sender = num_sender
        self.senders: dict[bytes, Sender] = {}
        self.closed = False
        self.changes = Changes()

    def connect(self, context: Any, ticket: Any) -> Any:
        # The sender keeps this call open, so that each process notices the end of the other.
        return import_flight().GeneratorStream(to_batch(HELLO, None).schema, self.hold_open(context, ticket.ticket))

    def hold_open(self, context: Any, key: bytes) -> Iterator[Any]:
        """Yield one batch, then nothing until one of the processes closes the call."""
        sender = Sender(f"sender {unquote(context.peer().partition(':')[2])}")
        with self.changes.lock:
            self.senders[key] = sender
        try:
            yield to_batch(HELLO, None)
            while not context.is_cancelled() and not self.changes.wait_for(lambda: self.closed, STEP_SECONDS):
                pass
        finally:  # also if Arrow drops the call at the first batch
            with self.changes.lock:
                sender.lost = sender.lost or "the sender has closed the connection, or is dead"
            self.changes.notify_all()

    def put(self, context: Any, descriptor: Any, reader: Any, _: Any) -> None:
        """Add a sample to the queue of its sender as soon as there is space."""
        key = descriptor.command
        try:
            check_schema(reader.schema)
            kind, sample = from_batch(reader.read_chunk().data)
            if kind == SAMPLE:
                describe_tensors(sample)
            elif kind not in (HELLO, END, LEAVE):
                raise ValueError("the message is not a sample")
        except Exception as error:
            with self.changes.lock:
                if key in self.senders:
                    self.senders[key].lost = text_of(error)
            self.changes.notify_all()
            raise
        if kind == HELLO:
            return
        sender = self.senders.get(key)
        if sender is not None and kind == LEAVE:
            sender.left = True
        elif sender is not None:
            # Until then the sender waits, which limits memory here.
            self.changes.wait_for(lambda: len(sender.queue) < CAPACITY or sender.lost or self.closed)
        with self.changes.lock:
            if sender is None or sender.lost or self.closed or context.is_cancelled():
                raise ValueError("the connection is closed")
            if kind != LEAVE:
                sender.queue.append((kind, sample))
        self.changes.notify_all()

    def take(self, seconds: float) -> SampleMessage | None:
        """Return the next sample, or None at the end of the epoch."""
        while (message := self.changes.wait_for(self.next_message, seconds)) is not None:
            kind, sample = message
            if kind == SAMPLE:
                return sample
            if self.end_epoch():
                return None
            # A signal shows that senders are alive as well, so the time limit restarts.
        silent = [sender.name for sender in self.senders.values() if not sender.ended]
        raise TimeoutError(
            f"no sample came for {seconds:g} s; {self.num_ended} of {self.num_sender} senders have "
            f"signalled, and {' and '.join(silent) or 'no other'} is connected"
        )

    def next_message(self) -> tuple[str, SampleMessage] | None:
        """Remove and return a sample or a signal of this epoch, if there is one. Called with the lock held."""
        if self.closed:
            raise RuntimeError("the receiver is closed; create a new one")
        # A copy, because senders are reordered below.
        for key, sender in list(self.senders.items()):
            if sender.ended:
                continue
            if sender.queue:
                kind, sample = sender.queue.popleft()
                self.changes.notify_all()
                if kind == SAMPLE:
                    sender.num_samples += 1
                    self.senders[key] = self.senders.pop(key)  # so that other senders take turns
                sender.ended = kind == END
                return kind, sample
            if sender.left or sender.lost:
                del self.senders[key]
                check_left_between_epochs(sender)
        if all(sender.ended for sender in self.senders.values()):
            # No connected sender can end the epoch. Raise once for each lost one; its signal still counts.
            for sender in self.senders.values():
                if sender.lost and not sender.left:
                    sender.left = True
                    raise PeerError(f"{sender.name} was cut off after it had signalled: {sender.lost}")
        return None

    def end_epoch(self) -> bool:
        """Begin the next epoch and return True if enough senders have signalled."""
        with self.changes.lock:
            if self.num_ended < self.num_sender:
                return False
            for sender in self.senders.values():
                if sender.ended:
                    sender.ended, sender.num_samples = False, 0
            return True

    def close(self) -> None:
        with self.changes.lock:
            self.closed = True
            self.senders.clear()
        self.changes.notify_all()

    @property
    def num_ended(self) -> int:
        return sum(sender.ended for sender in self.senders.values())


def check_left_between_epochs(sender: Sender) -> None:
    """Raise unless a sender that has gone announced it, and had sent no samples of this epoch."""
    if not sender.left:
        raise PeerError(f"{sender.name} was cut off before it signalled: {sender.lost}")
    if sender.num_samples:
        raise PeerError(f"{sender.name} left after {sender.num_samples} samples, before it signalled")


class SamplerReceiver(Closeable):
    """Receives the samples of several senders, under the name that DGL's contrib package used.

    An iteration yields the samples of one epoch, in order for each sender, until `num_sender` senders have signalled;
    the next iteration yields the next epoch. Unlike DGL's, it keeps epochs apart, raises an error for a dead sender,
    and lets senders join at any time. It buffers at most three samples per sender; faster senders have to wait.

    Samples are sent over Arrow Flight: `pip install ".[serve]"`. Nothing is unpickled. As for a `SamplingServer`, the
    token and TLS keep others from sending samples, but not from causing load.

    Args:
        graph: Ignored, for programs that pass it; samples are dicts of tensors for any graph.
        addr: The address to listen on, such as "127.0.0.1:50051" or "[::1]:50051"; port 0 selects a free port. Without
            TLS, addresses other than loopback must be written as "grpc://0.0.0.0:50051"; others on the network can then
            read the token, and read and change the samples.
        num_sender: Number of signals that end an epoch.
        net_type: Must be "socket".
        token: The token that senders must have. The default is the environment variable GRAPHFEED_TOKEN. Without one,
            only loopback addresses are allowed, and every user of this machine may send.
        tls: A certificate chain and a private key, both as PEM.
        timeout: Time limit in seconds for receiving nothing.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The address is in use, or does not belong to this machine.
        ValueError: The address, `net_type`, `num_sender` or a certificate is invalid, or there is no token or no TLS
            although other machines can connect.

    Example:
        >>> import threading, torch
        >>> from graphfeed.distributed import SamplerSender
        >>> receiver = SamplerReceiver(None, "127.0.0.1:0", num_sender=1)
        >>> sent = threading.Thread(target=lambda: SamplerSender({0: receiver.address}).send({"x": torch.ones(1)}, 0))
        >>> sent.start()
        >>> next(iter(receiver))
        {'x': tensor([1.])}
        >>> receiver.close()
    """

    @checked
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
        check_seconds("timeout", timeout)
        host, port = parse_address(check_encryption(addr, "tls=(certificate, key)", has_tls=tls is not None))
        token = choose_token(token, host)
        self.graph = graph
        self.num_sender = num_sender
        self.timeout = timeout
        self.epoch = 0
        # The server must not refer to this object, whose finalizer closes the server.
        inbox = self._inbox = SampleInbox(num_sender)
        server = FlightServer(host, port, token, tls, lambda *_: None, do_get=inbox.connect, do_put=inbox.put)
        self.address = server.address
        """The address it listens on, as "host:port"."""
        self._close = weakref.finalize(self, end_both, inbox, server)

    def __iter__(self) -> Iterator[SampleMessage]:
        """Yield the remaining samples of the epoch.

        Raises:
            PeerError: A sender left or was cut off before it signalled.
            TimeoutError: All connected senders were silent for too long.
        """
        while (sample := self._inbox.take(self.timeout)) is not None:
            yield sample
        self.epoch += 1

    def close(self) -> None:
        """Stop listening, and close all connections. Has no effect if called again."""
        self._close()


def end_both(inbox: SampleInbox, server: FlightServer) -> None:
    # The inbox first, because the server waits for the calls that senders keep open.
    inbox.close()
    server.close()
