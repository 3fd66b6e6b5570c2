"""DGL's former receiver of samples, which is a server of Arrow Flight."""

import time
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
"""What a sender puts: nothing, to see whether it may; a sample; the end of its epoch; and that it goes."""
CAPACITY = 2
"""How many samples, or ends of epochs, of a sender wait to be taken before it has to wait itself."""
STEP_SECONDS = 0.1
"""How often it is looked whether a sender is still there."""


@dataclass(eq=False)
class Sender:
    """A sender that is connected."""

    name: str
    queue: deque[tuple[str, SampleMessage]] = field(default_factory=deque)
    """What it has put and nobody has taken: samples, and ends of its epochs."""
    num_samples: int = 0
    """How many samples were taken in this epoch."""
    ended: bool = False
    """It has signalled the end of the epoch; what it puts after that is not taken before the next epoch."""
    left: bool = False
    """It has said that it goes."""
    lost: str | None = None
    """Why nothing more can come from it."""


class SampleInbox:
    """The samples of several senders, a few of each; threads of the server put, and the trainer's takes."""

    def __init__(self, num_sender: int) -> None:
        self.num_sender = num_sender
        self.senders: dict[bytes, Sender] = {}
        self.closed = False
        self.changes = Changes()

    def connect(self, context: Any, ticket: Any) -> Any:
        # A sender holds this call open, so that each side notices the end of the other one's process.
        return import_flight().GeneratorStream(to_batch(HELLO, None).schema, self.hold_open(context, ticket.ticket))

    def hold_open(self, context: Any, key: bytes) -> Iterator[Any]:
        """Yield one batch, and nothing until one of both sides goes."""
        sender = Sender(f"sender {unquote(context.peer().partition(':')[2])}")
        with self.changes.lock:
            self.senders[key] = sender
        try:
            yield to_batch(HELLO, None)
            while not context.is_cancelled() and not self.changes.wait_for(lambda: self.closed, STEP_SECONDS):
                pass
        finally:  # also where Arrow drops the call at the first batch
            with self.changes.lock:
                sender.lost = sender.lost or "the sender has closed the connection, or is dead"
            self.changes.notify_all()

    def put(self, context: Any, descriptor: Any, reader: Any, _: Any) -> None:
        """Add a sample to the queue of its sender, as soon as there is room."""
        key = descriptor.command
        try:
            check_schema(reader.schema)
            kind, sample = from_batch(reader.read_chunk().data)
            if kind == SAMPLE:
                describe_tensors(sample)
            elif kind not in (HELLO, END, LEAVE):
                raise ValueError("what came is no sample")
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
            # The sender waits meanwhile, so that its samples fill no memory.
            self.changes.wait_for(lambda: len(sender.queue) < CAPACITY or sender.lost or self.closed)
        with self.changes.lock:
            if sender is None or sender.lost or self.closed or context.is_cancelled():
                raise ValueError("the connection is closed")
            if kind != LEAVE:
                sender.queue.append((kind, sample))
        self.changes.notify_all()

    def take(self, seconds: float) -> SampleMessage | None:
        """Return the next sample, or None at the end of the epoch."""
        end = time.monotonic() + seconds

        def look() -> tuple[SampleMessage | None] | None:
            nonlocal end
            if self.closed:
                raise RuntimeError("the receiver is closed; make another")
            # A copy, as senders change their places below.
            for key, sender in list(self.senders.items()):
                if sender.ended:
                    continue
                if sender.queue:
                    kind, sample = sender.queue.popleft()
                    self.changes.notify_all()
                    if kind == SAMPLE:
                        sender.num_samples += 1
                        self.senders[key] = self.senders.pop(key)  # it is the turn of others
                        return (sample,)
                    # A signal is a sign of life as well, so the time begins anew.
                    sender.ended = True
                    end = time.monotonic() + seconds
                    if self.num_ended >= self.num_sender:
                        for one in self.senders.values():
                            if one.ended:
                                one.ended, one.num_samples = False, 0
                        return (None,)
                elif sender.left or sender.lost:
                    del self.senders[key]
                    if not sender.left:
                        raise PeerError(f"{sender.name} was cut off before it signalled: {sender.lost}")
                    if sender.num_samples:
                        raise PeerError(f"{sender.name} left after {sender.num_samples} samples, before it signalled")
            if all(sender.ended for sender in self.senders.values()):
                # Nobody is connected who could end the epoch. It is said once of each; its signal counts.
                for sender in self.senders.values():
                    if sender.lost and not sender.left:
                        sender.left = True
                        raise PeerError(f"{sender.name} was cut off after it had signalled: {sender.lost}")
            if time.monotonic() >= end:
                silent = [sender.name for sender in self.senders.values() if not sender.ended]
                raise TimeoutError(
                    f"no sample came for {seconds:g} s; {self.num_ended} of {self.num_sender} senders have "
                    f"signalled, and {' and '.join(silent) or 'no other'} is connected"
                )
            return None

        while (found := self.changes.wait_for(look, end - time.monotonic())) is None:
            pass
        return found[0]

    def close(self) -> None:
        with self.changes.lock:
            self.closed = True
            self.senders.clear()
        self.changes.notify_all()

    @property
    def num_ended(self) -> int:
        return sum(sender.ended for sender in self.senders.values())


class SamplerReceiver(Closeable):
    """Receives the samples of several senders, under the name that DGL's contrib package used.

    An iteration yields the samples of one epoch, in order for each sender, until `num_sender` senders have signalled;
    the next iteration yields the next epoch. Unlike DGL's, it mixes no epochs, raises an error for a dead sender, and
    lets senders join at any time. At most three samples of each are in memory here; who sends faster has to wait.

    Samples come over Arrow Flight: `pip install ".[serve]"`. Nothing is unpickled. As for a `SamplingServer`, the token
    and TLS keep others from sending, and not from being a burden.

    Args:
        graph: Ignored, for programs that pass it; samples come as dicts of tensors, whatever the graph.
        addr: The address to listen on, such as "127.0.0.1:50051" or "[::1]:50051"; port 0 takes a free one. Without
            TLS, other than loopback addresses must be written as "grpc://0.0.0.0:50051"; then anybody on the way can
            read the token, and read and change the samples.
        num_sender: How many signals end an epoch.
        net_type: "socket".
        token: What senders have to know; None takes the environment's GRAPHFEED_TOKEN. Without one, only a loopback
            address can be listened on, and every user of this machine may send.
        tls: A certificate chain and a private key, both as PEM.
        timeout: After how many seconds in which nothing came the receiver gives up.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The address is taken, or not one of this machine.
        ValueError: A malformed address, another net_type, no sender, a certificate that can't be used, or no token or
            no TLS where other machines can call.

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
        # The server must not refer to this object, which ends it when it is dropped.
        inbox = self._inbox = SampleInbox(num_sender)
        server = FlightServer(host, port, token, tls, lambda *_: None, do_get=inbox.connect, do_put=inbox.put)
        self.address = server.address
        """Where it listens, as "host:port"."""
        self._close = weakref.finalize(self, end_both, inbox, server)

    def __iter__(self) -> Iterator[SampleMessage]:
        """Yield the samples of an epoch, or what is left of it.

        Raises:
            PeerError: A sender left or was cut off before it signalled.
            TimeoutError: Those that are connected are silent.
        """
        while (sample := self._inbox.take(self.timeout)) is not None:
            yield sample
        self.epoch += 1

    def close(self) -> None:
        """Stop listening, and close all connections. Does nothing the second time."""
        self._close()


def end_both(inbox: SampleInbox, server: FlightServer) -> None:
    # First, as the server waits for the calls that senders hold open.
    inbox.close()
    server.close()
