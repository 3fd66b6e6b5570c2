"""What every channel of samples offers, and the queue that all of them are."""

import json
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import torch

from graphfeed.channels.codec import SampleMessage, pack_tensors, unpack_tensors
from graphfeed.channels.exchange import Exchange
from graphfeed.channels.hub import LOOK, Hub
from graphfeed.channels.line import EndOfEpoch, Line, PeerError, Receiver, Sender, text_of
from graphfeed.loader.transport.arena import ARENA_BYTES
from graphfeed.loader.transport.mailbox import TIMEOUT_SECONDS

MESSAGE, ERROR = b"m", b"e"


class ChannelBase(ABC):
    """Carries samples, dicts of tensors, from producers to consumers.

    The name and the two methods are GraphLearn-for-PyTorch's.
    """

    @abstractmethod
    def send(self, msg: SampleMessage, *args: Any, **kwargs: Any) -> None:
        """Send a sample."""

    @abstractmethod
    def recv(self, *args: Any, **kwargs: Any) -> SampleMessage:
        """Return the next sample."""


class Lines:
    """A process's connections to a channel: each thread has its own, which goes with it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.of_thread = threading.local()
        self.all: weakref.WeakSet[Line] = weakref.WeakSet()


class SampleChannel(ChannelBase):
    """A queue of samples between any number of processes of one machine, bounded in messages and in bytes.

    Samples of one producer come in order, each to one consumer; each thread of a process is one. The bytes are written
    once, in memory that the consumer reads where it lies; the tensors received view it and may be kept, which stalls
    nobody. A small thread of the process that makes the channel keeps the account, so that no lock is shared: a process
    may be killed at any moment, the others are told, and nothing is left in the system. What a killed consumer held
    is used again when its producer ends. It pickles to child processes of any start method. Linux only. Costs 0.1 to
    0.3 milliseconds a sample, beside one copy of its bytes.

    Args:
        capacity: How many samples are in the queue at most, sent and not yet received.
        limit_bytes: How many bytes they have together.
        num_producers: So many `end_epoch()` make an end of the epoch.
    """

    def __init__(self, capacity: int, limit_bytes: int, num_producers: int = 1) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more messages, but is {capacity}")
        if num_producers < 1:
            raise ValueError(f"num_producers must be 1 or more, but is {num_producers}")
        self.limit_bytes = limit_bytes
        self.pinned = False
        hub = Hub(Exchange(capacity, limit_bytes, num_producers))
        self.address = hub.address
        self._hub: Hub | None = hub
        self._lines = Lines()
        weakref.finalize(self, hub.close)

    def __getstate__(self) -> dict[str, Any]:
        """Return where the channel is; what is in it stays there."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the address; the connections are made when they are needed."""
        self.__dict__.update(state, _hub=None, _lines=Lines())

    def put(self, msg: SampleMessage, timeout_seconds: float) -> bool:
        """Send a sample; return False where there was no room for it in time."""
        header, buffers = pack_tensors(msg)
        size = len(header) + sum(buffer.size + 72 for buffer in buffers) + 80
        if size > self.limit_bytes:
            raise RuntimeError(
                f"the message is too large: it has {size} bytes, the channel holds {self.limit_bytes}; "
                "give it more, or send less at a time; nothing was sent, and the channel goes on"
            )
        with self._line(Sender) as line:
            sent: bool = line.send(MESSAGE + header, buffers, timeout_seconds)
        return sent

    def take(self, timeout_seconds: float) -> SampleMessage | None:
        """Return the next sample, or None where none came in time.

        Raises:
            EndOfEpoch: All producers have ended the epoch, and all of it was received. Every thread that receives is
                told once, however late it comes; the next call goes on with the next epoch.
            PeerError: A producer sent an error, or died in the middle of an epoch; told once to every consumer.
            Closed: The process that made the channel closed it, or is dead.
        """
        with self._line(Receiver) as line:
            received = line.receive(timeout_seconds)
        if received is None:
            return None
        header, buffers = received
        if header[:1] == ERROR:
            raise PeerError(header[1:].decode(errors="replace"))
        sample = unpack_tensors(header[1:], buffers)
        return {name: value.pin_memory() for name, value in sample.items()} if self.pinned else sample

    def send_error(self, error: BaseException) -> None:
        """Let a consumer raise a `PeerError` with this error's text, after what was sent before it."""
        text = f"in process {os.getpid()}: {type(error).__name__}: {error}"
        with self._line(Sender) as line:
            if not line.send(ERROR + text.encode(), [], TIMEOUT_SECONDS):
                raise TimeoutError(f"nobody received the error for {TIMEOUT_SECONDS:g} s: {text}") from error

    def end_epoch(self) -> None:
        """Say that this producer sends no more in this epoch; what it sends from now on waits for the others' ends."""
        with self._line(Sender) as line:
            line.end()

    def __iter__(self) -> Iterator[SampleMessage]:
        """Yield the samples of one epoch."""
        while True:
            try:
                sample = self.recv()
            except EndOfEpoch:
                return
            yield sample

    def statistics(self) -> dict[str, int]:
        """Return messages and bytes in the queue, the epoch, who waits, and counts since the beginning."""
        with self._line(Line) as line:
            found: dict[str, int] = json.loads(text_of(line.ask(LOOK)[1]))
        return found

    def qsize(self) -> int:
        """Return how many samples are in the queue."""
        return self.statistics()["messages"]

    def empty(self) -> bool:
        """Tell whether there is none."""
        return self.qsize() == 0

    def pin_memory(self) -> None:
        """Let this process receive samples in page-locked memory, where there is a CUDA device; else do nothing."""
        self.pinned = torch.cuda.is_available()

    def close(self) -> None:
        """Leave the channel; in the process that made it, end it for all. Does nothing the second time."""
        for line in list(self._lines.all):
            line.close()
        self._lines = Lines()
        if self._hub is not None and self._hub.process == os.getpid():
            self._hub.close()
            self._hub.thread.join(10)

    def __enter__(self) -> Self:
        """Return the channel, which closes at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the channel."""
        self.close()

    @contextmanager
    def _line(self, kind: Any) -> Iterator[Any]:
        """Lend this thread's connection of a kind."""
        if self._lines.process != os.getpid():
            self._lines = Lines()
        own = vars(self._lines.of_thread)
        name = kind.__name__
        if name not in own:
            own[name] = Sender(self.address, self.arena_bytes()) if kind is Sender else kind(self.address)
            self._lines.all.add(own[name])
        try:
            yield own[name]
        except (EndOfEpoch, PeerError):
            raise
        except BaseException:
            # A question may be open, whose answer would be taken for that of the next one.
            own.pop(name).close()
            raise

    def arena_bytes(self) -> int:
        """Return how much memory a producer shares at most; what is beyond goes in files of its own."""
        return max(ARENA_BYTES, self.limit_bytes) if self.limit_bytes < 1 << 40 else ARENA_BYTES
