"""The base class of channels, and the bounded queue between processes that they are."""

import json
import os
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from graphfeed.channels.bounded_queue import BoundedQueue, EndOfEpoch, PeerError
from graphfeed.channels.broker import END_EPOCH, LOOK, Broker, text_of
from graphfeed.channels.channel_client import ChannelClient
from graphfeed.loader.transport import ARENA_BYTES, TIMEOUT_SECONDS
from graphfeed.ops.arguments import checked, parse_bytes
from graphfeed.ops.process import Closeable
from graphfeed.storage.memory import decode_tensors, encode_tensors, move

UNBOUNDED = 1 << 40
"""The capacity and the bytes of a queue without bounds, for which no shared memory is reserved."""
SampleMessage = dict[str, torch.Tensor]
"""How a sample is sent: tensors by name."""


class ChannelBase(ABC):
    """Carries samples, dicts of tensors, from producers to consumers, under GraphLearn-for-PyTorch's names."""

    @abstractmethod
    def send(self, msg: SampleMessage, *args: Any, **kwargs: Any) -> None:
        """Send a sample."""

    @abstractmethod
    def recv(self, *args: Any, **kwargs: Any) -> SampleMessage:
        """Return the next sample."""


class SampleChannel(ChannelBase, Closeable):
    """A bounded queue of samples between processes: those of a producer stay in order, each goes to one consumer."""

    def __init__(self, capacity: int, limit_bytes: int, num_producers: int = 1) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more messages, but is {capacity}")
        if num_producers < 1:
            raise ValueError(f"num_producers must be 1 or more, but is {num_producers}")
        self.limit_bytes = limit_bytes
        self.pinned = False
        # A thread of this process keeps the account, so no lock is shared, and a process may be killed at any moment:
        # the others get an error, and nothing is left in the system. Memory that a killed consumer held is freed when
        # its producer ends. A sample costs 0.1 to 0.3 milliseconds, plus one copy of its bytes, which the consumer
        # reads in place.
        broker = Broker(BoundedQueue(capacity, limit_bytes, num_producers))
        self.address = broker.address
        self._broker: Broker | None = broker
        self._prepare_clients()
        weakref.finalize(self, broker.close)

    def __getstate__(self) -> dict[str, Any]:
        # The address and the settings, for child processes of any start method; samples stay where they are.
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _broker=None)  # a connection is made when it is needed
        self._prepare_clients()

    def _prepare_clients(self) -> None:
        # Every thread is a producer or consumer of its own: it connects when it needs to, and leaves when it ends.
        self._of_thread = threading.local()
        self._clients: weakref.WeakSet[ChannelClient] = weakref.WeakSet()

    def put(self, msg: SampleMessage, timeout_seconds: float) -> bool:
        """Send a sample; return False if there was no room for it in time."""
        header, buffers = encode_tensors(msg)
        size = len(header) + sum(buffer.size + 72 for buffer in buffers) + 80
        if size > self.limit_bytes:
            raise RuntimeError(
                f"the message is too large: it has {size} bytes, the channel holds {self.limit_bytes}; "
                "give it more, or send less at a time; nothing was sent, and the channel goes on"
            )
        with self._client() as client:
            return client.put(header, buffers, timeout_seconds)

    def get(self, timeout_seconds: float) -> SampleMessage | None:
        """Return the next sample, or None if none came in time; other errors are those of `ShmChannel.recv`.

        Every thread that receives gets an `EndOfEpoch` once, however late it comes; the next call goes on with the next
        epoch.
        """
        with self._client() as client:
            received = client.get(timeout_seconds)
        if received is None:
            return None
        error, sample = decode_tensors(*received)
        if error is not None:
            raise PeerError(error)
        return move(sample, "pinned") if self.pinned else sample

    def send_error(self, error: BaseException) -> None:
        """Make a consumer raise a `PeerError` with this error's text, after the samples sent before it."""
        text = f"in process {os.getpid()}: {type(error).__name__}: {error}"
        with self._client() as client:
            if not client.put(*encode_tensors({}, head=text), TIMEOUT_SECONDS):
                raise TimeoutError(f"nobody received the error for {TIMEOUT_SECONDS:g} s: {text}") from error

    def end_epoch(self) -> None:
        """End this producer's epoch; what it sends from now on waits until the other producers end theirs."""
        with self._client() as client:
            client.request(END_EPOCH)

    def __iter__(self) -> Iterator[SampleMessage]:
        """Yield the samples of one epoch."""
        while True:
            try:
                sample = self.recv()
            except EndOfEpoch:
                return
            yield sample

    def statistics(self) -> dict[str, int]:
        """Return messages and bytes in the queue, the epoch, how many peers wait, and counts since the beginning."""
        with self._client() as client:
            statistics: dict[str, int] = json.loads(text_of(client.request(LOOK)[1]))
        return statistics

    def qsize(self) -> int:
        """Return how many samples are in the queue."""
        return self.statistics()["messages"]

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return self.qsize() == 0

    def pin_memory(self) -> None:
        """Make this process receive samples in page-locked memory, if there is a CUDA device."""
        self.pinned = torch.cuda.is_available()

    def close(self) -> None:
        """Leave the channel; in the process that made it, close it for all. Does nothing the second time."""
        for client in list(self._clients):
            client.close()
        if self._broker is not None and self._broker.process == os.getpid():
            self._broker.close()
            self._broker.thread.join(10)

    @contextmanager
    def _client(self) -> Iterator[ChannelClient]:
        """Yield this thread's connection, which an unexpected error closes."""
        client: ChannelClient | None = getattr(self._of_thread, "client", None)
        if client is None or client.is_closed:  # as after a fork
            # What does not fit into the shared memory goes into files of its own.
            limit = self.limit_bytes if self.limit_bytes < UNBOUNDED else ARENA_BYTES
            client = self._of_thread.client = ChannelClient(self.address, max(ARENA_BYTES, limit))
            self._clients.add(client)
        try:
            yield client
        except (EndOfEpoch, PeerError):
            raise
        except BaseException:
            # The reply to an open request would be taken for the reply to the next one.
            client.close()
            raise


class MpChannel(SampleChannel):
    """A channel of samples under GraphLearn-for-PyTorch's name, with the keywords and errors of a queue.

    Theirs is a queue of `torch.multiprocessing`, which takes two descriptors per tensor. This one takes none for
    samples that fit its shared memory, and carries only dicts of tensors.

    Args:
        maxsize: The largest number of samples in the channel; 0 means no bound.
        num_producers: How many calls of `end_epoch()` end an epoch.

    Example:
        >>> import torch
        >>> with MpChannel(maxsize=2) as channel:
        ...     channel.send({"ids": torch.arange(3)})
        ...     channel.recv(timeout=10)
        {'ids': tensor([0, 1, 2])}
    """

    @checked
    def __init__(self, maxsize: int = 0, *, num_producers: int = 1) -> None:
        super().__init__(maxsize if maxsize > 0 else UNBOUNDED, UNBOUNDED, num_producers)

    @checked
    def send(self, msg: SampleMessage, block: bool = True, timeout: float | None = None) -> None:
        """Send a sample; without a timeout, wait up to ten minutes for room.

        Raises:
            queue.Full: There was no room in time, or with `block=False` there is none now.
        """
        seconds = waiting_time(block, timeout)
        if not self.put(msg, seconds):
            raise queue.Full(f"the channel had no room for {seconds:g} s: its consumers don't receive")

    @checked
    def recv(self, block: bool = True, timeout: float | None = None) -> SampleMessage:
        """Return the next sample; without a timeout, wait up to ten minutes for it.

        Raises:
            queue.Empty: Nothing came in time, or with `block=False` there is nothing now.
            EndOfEpoch: All producers have ended the epoch, and all of it was received.
            PeerError: A producer sent an error, or died in the middle of an epoch.
            Closed: The process that made the channel closed it, or is dead.
        """
        seconds = waiting_time(block, timeout)
        sample = self.get(seconds)
        if sample is None:
            raise queue.Empty(f"no message came for {seconds:g} s: its producers don't send")
        return sample


def waiting_time(block: bool, timeout: float | None) -> float:
    if not block:
        return 0.0
    return TIMEOUT_SECONDS if timeout is None else timeout


class QueueTimeoutError(RuntimeError, TimeoutError):
    """Nothing could be sent, or nothing came, in the time given."""


class ShmChannel(SampleChannel):
    """A bounded channel of samples in shared memory, under GraphLearn-for-PyTorch's name and signature.

    It is stricter than theirs where theirs fails. A message larger than the channel is refused, and breaks nothing; any
    other message fits. Tensors may have any dtype, shape and strides, and arrive aligned. Every wait has a time limit.
    A killed process is noticed and leaves nothing behind. What a consumer keeps blocks nobody: the bounds hold for
    samples sent and not yet received.

    Args:
        capacity: The largest number of samples in the channel.
        shm_size: The largest number of bytes in the channel: a number, or a text such as "256MB".
        num_producers: How many calls of `end_epoch()` end an epoch.

    Example:
        >>> import torch
        >>> with ShmChannel(capacity=2, shm_size="1MB") as channel:
        ...     channel.send({"ids": torch.arange(3)})
        ...     channel.recv(timeout_ms=10_000)
        {'ids': tensor([0, 1, 2])}
    """

    @checked
    def __init__(self, capacity: int = 128, shm_size: int | str = "256MB", *, num_producers: int = 1) -> None:
        super().__init__(capacity, parse_bytes("shm_size", shm_size), num_producers)

    @checked
    def send(self, msg: SampleMessage, timeout_ms: int | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Send a sample once there is room for it; None or 0 waits up to ten minutes. `kwargs` have no effect.

        Raises:
            QueueTimeoutError: There was no room in time; nothing was sent.
            RuntimeError: The sample is larger than the channel; nothing was sent.
            PeerError: The last consumer died.
            Closed: The process that made the channel closed it, or is dead.
        """
        seconds = timeout_ms / 1000 if timeout_ms else TIMEOUT_SECONDS
        if not self.put(msg, seconds):
            raise QueueTimeoutError(f"the channel had no room for {seconds:g} s: its consumers don't receive")

    @checked
    def recv(self, timeout_ms: int | None = None, **kwargs: Any) -> SampleMessage:  # noqa: ARG002
        """Return the next sample; None or 0 waits up to ten minutes. `kwargs` have no effect.

        Raises:
            QueueTimeoutError: Nothing came in time.
            EndOfEpoch: All producers have ended the epoch, and all of it was received.
            PeerError: A producer sent an error, or died in the middle of an epoch. Every consumer gets this once.
            Closed: The process that made the channel closed it, or is dead.
        """
        seconds = timeout_ms / 1000 if timeout_ms else TIMEOUT_SECONDS
        sample = self.get(seconds)
        if sample is None:
            raise QueueTimeoutError(f"no message came for {seconds:g} s: its producers don't send")
        return sample
