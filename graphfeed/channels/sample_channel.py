"""Channels of samples between processes, and their base class."""

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
from graphfeed.loader.transport import TIMEOUT_SECONDS
from graphfeed.ops.arguments import checked, parse_bytes
from graphfeed.ops.process import Closeable, current_limits
from graphfeed.storage.memory import decode_tensors, encode_tensors, to_device

UNBOUNDED = 1 << 40
"""Capacity, in messages or bytes, of an unbounded queue, for which no shared memory is reserved."""
SampleMessage = dict[str, torch.Tensor]
"""A sample: tensors by name."""


class ChannelBase(ABC):
    """Base class of channels that carry samples, dicts of tensors, with the names of GraphLearn-for-PyTorch."""

    @abstractmethod
    def send(self, msg: SampleMessage, *args: Any, **kwargs: Any) -> None:
        """Send a sample."""

    @abstractmethod
    def recv(self, *args: Any, **kwargs: Any) -> SampleMessage:
        """Return the next sample."""


class SampleChannel(ChannelBase, Closeable):
    """Bounded queue of samples between processes. Each sample goes to one consumer; producers' samples stay ordered."""

    def __init__(self, capacity: int, limit_bytes: int, num_producers: int = 1) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more messages, but is {capacity}")
        if num_producers < 1:
            raise ValueError(f"num_producers must be 1 or more, but is {num_producers}")
        self.limit_bytes = limit_bytes
        self.pinned = False
        # The state is in a thread of this process, so no lock is shared, and a process may be killed at any time: the
        # others get an error, and nothing is left in the system. Memory that a killed consumer held is freed when its
        # producer ends. A sample costs 0.1 to 0.3 milliseconds and one copy of its bytes, which the consumer reads in
        # place.
        broker = Broker(BoundedQueue(capacity, limit_bytes, num_producers))
        self.address = broker.address
        self._broker: Broker | None = broker
        self._prepare_clients()
        weakref.finalize(self, broker.close)

    def __getstate__(self) -> dict[str, Any]:
        # The address and the settings, for child processes of any start method.
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _broker=None)  # connections are opened on demand
        self._prepare_clients()

    def _prepare_clients(self) -> None:
        # Each thread is a separate producer or consumer: it connects on demand, and leaves when it ends.
        self._of_thread = threading.local()
        self._clients: weakref.WeakSet[ChannelClient] = weakref.WeakSet()

    def put(self, msg: SampleMessage, timeout_seconds: float) -> bool:
        """Send a sample; return False if there was no space for it before the timeout."""
        header, buffers = encode_tensors(msg)
        size = len(header) + sum(buffer.size + 72 for buffer in buffers) + 80
        if size > self.limit_bytes:
            raise RuntimeError(
                f"the message is too large: it has {size} bytes, but the channel only {self.limit_bytes}; give it "
                "more bytes, or send less at a time. Nothing was sent, and the channel can still be used"
            )
        with self._client() as client:
            return client.put(header, buffers, timeout_seconds)

    def get(self, timeout_seconds: float) -> SampleMessage | None:
        """Return the next sample, or None after the timeout. Raises the other errors of `ShmChannel.recv`.

        Each receiving thread gets one `EndOfEpoch` per epoch, however late it joins; its next call continues with the
        next epoch.
        """
        with self._client() as client:
            received = client.get(timeout_seconds)
        if received is None:
            return None
        error, sample = decode_tensors(*received)
        if error is not None:
            raise PeerError(error)
        return to_device(sample, "pinned") if self.pinned else sample

    def send_error(self, error: BaseException) -> None:
        """Make a consumer raise a `PeerError` with the message of an error, after the samples sent before it."""
        text = f"in process {os.getpid()}: {type(error).__name__}: {error}"
        with self._client() as client:
            if not client.put(*encode_tensors({}, head=text), TIMEOUT_SECONDS):
                raise TimeoutError(f"no consumer received this error for {TIMEOUT_SECONDS:g} s: {text}") from error

    def end_epoch(self) -> None:
        """End this producer's epoch. Its further samples wait until the other producers have ended theirs."""
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
        """Return the messages and bytes in the queue, the epoch, the waiting clients, and counts since the start."""
        with self._client() as client:
            statistics: dict[str, int] = json.loads(text_of(client.request(LOOK)[1]))
        return statistics

    def qsize(self) -> int:
        """Return the number of samples in the queue."""
        return self.statistics()["messages"]

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return self.qsize() == 0

    def pin_memory(self) -> None:
        """Make this process receive samples in page-locked memory, if there is a CUDA device."""
        self.pinned = torch.cuda.is_available()

    def close(self) -> None:
        """Leave the channel; in the process that created it, close it for all. No effect if called again."""
        for client in list(self._clients):
            client.close()
        if self._broker is not None and self._broker.process == os.getpid():
            self._broker.close()
            self._broker.thread.join(10)

    @contextmanager
    def _client(self) -> Iterator[ChannelClient]:
        """Yield the connection of this thread. An unexpected error closes it."""
        client: ChannelClient | None = getattr(self._of_thread, "client", None)
        if client is None or client.is_closed:  # such as after a fork
            # Messages that don't fit into the shared memory use separate files.
            least = current_limits().arena_bytes
            limit = self.limit_bytes if self.limit_bytes < UNBOUNDED else least
            client = self._of_thread.client = ChannelClient(self.address, max(least, limit))
            self._clients.add(client)
        try:
            yield client
        except (EndOfEpoch, PeerError):
            raise
        except BaseException:
            # The reply to a pending request would be mistaken for the reply to the next one.
            client.close()
            raise


class MpChannel(SampleChannel):
    """Channel of samples with the name of GraphLearn-for-PyTorch, and the keywords and errors of a queue.

    GraphLearn's class is a queue of `torch.multiprocessing`, which needs two descriptors per tensor. This one needs
    none for samples that fit into its shared memory, and carries only dicts of tensors.

    Args:
        maxsize: Maximum number of samples in the channel; 0 means unbounded.
        num_producers: Number of calls of `end_epoch()` that end an epoch.

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
        """Send a sample. Without a timeout, wait up to ten minutes for space.

        Raises:
            queue.Full: There was no space before the timeout or, with `block=False`, there is none now.
        """
        seconds = seconds_left(block, timeout)
        if not self.put(msg, seconds):
            raise queue.Full(f"the channel was full for {seconds:g} s: its consumers don't receive")

    @checked
    def recv(self, block: bool = True, timeout: float | None = None) -> SampleMessage:
        """Return the next sample. Without a timeout, wait up to ten minutes for it.

        Raises:
            queue.Empty: No sample arrived before the timeout or, with `block=False`, there is none now.
            EndOfEpoch: All producers have ended the epoch, and all its samples were received.
            PeerError: A producer sent an error, or died in the middle of an epoch.
            Closed: The process that created the channel has closed it or has ended.
        """
        seconds = seconds_left(block, timeout)
        sample = self.get(seconds)
        if sample is None:
            raise queue.Empty(f"no message came for {seconds:g} s: its producers don't send")
        return sample


def seconds_left(block: bool, timeout: float | None) -> float:
    if not block:
        return 0.0
    return TIMEOUT_SECONDS if timeout is None else timeout


class QueueTimeoutError(RuntimeError, TimeoutError):
    """A sample could not be sent, or none arrived, before the timeout."""


class ShmChannel(SampleChannel):
    """Bounded channel of samples in shared memory, with the name and signature of GraphLearn-for-PyTorch.

    It handles cases in which GraphLearn's class fails. A message larger than the channel raises an error, and the
    channel stays usable; any other message fits. Tensors may have any dtype, shape and strides, and arrive aligned.
    Every wait has a timeout. A killed process is detected, and leaves no files or memory. Samples that a consumer keeps
    don't block the channel: its bounds apply only to samples that were not yet received.

    Args:
        capacity: Maximum number of samples in the channel.
        shm_size: Maximum number of bytes in the channel: a number, or a string such as "256MB".
        num_producers: Number of calls of `end_epoch()` that end an epoch.

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
        """Send a sample once there is space for it. None or 0 waits up to ten minutes. `kwargs` have no effect.

        Raises:
            QueueTimeoutError: There was no space before the timeout; nothing was sent.
            RuntimeError: The sample is larger than the channel; nothing was sent.
            PeerError: The last consumer died.
            Closed: The process that created the channel has closed it or has ended.
        """
        seconds = timeout_ms / 1000 if timeout_ms else TIMEOUT_SECONDS
        if not self.put(msg, seconds):
            raise QueueTimeoutError(f"the channel was full for {seconds:g} s: its consumers don't receive")

    @checked
    def recv(self, timeout_ms: int | None = None, **kwargs: Any) -> SampleMessage:  # noqa: ARG002
        """Return the next sample. None or 0 waits up to ten minutes. `kwargs` have no effect.

        Raises:
            QueueTimeoutError: No sample arrived before the timeout.
            EndOfEpoch: All producers have ended the epoch, and all its samples were received.
            PeerError: A producer sent an error, or died in the middle of an epoch: then every consumer gets this once.
            Closed: The process that created the channel has closed it or has ended.
        """
        seconds = timeout_ms / 1000 if timeout_ms else TIMEOUT_SECONDS
        sample = self.get(seconds)
        if sample is None:
            raise QueueTimeoutError(f"no message came for {seconds:g} s: its producers don't send")
        return sample
