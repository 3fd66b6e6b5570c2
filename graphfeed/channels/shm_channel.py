"""GraphLearn-for-PyTorch's shared-memory channel."""

import re

from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.sample_channel import SampleChannel
from graphfeed.loader.transport.mailbox import TIMEOUT_SECONDS

UNITS = {"K": 1 << 10, "KB": 1 << 10, "M": 1 << 20, "MB": 1 << 20, "G": 1 << 30, "GB": 1 << 30}


class QueueTimeoutError(RuntimeError, TimeoutError):
    """Nothing could be sent, or nothing came, in the time given."""


def parse_size(size: int | float | str) -> int:
    """Return a size in bytes; texts have a unit, in powers of two.

    Raises:
        ValueError: A text without one of these units, or a size under 1.

    Example:
        >>> parse_size("256MB"), parse_size("0.5g"), parse_size(1000)
        (268435456, 536870912, 1000)
    """
    found = size
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMG]B?)\s*", size.upper())
        if match is None:
            raise ValueError(f"shm_size must be as '256MB', with a unit of K, M or G, or a number, but is {size!r}")
        size = float(match[1]) * UNITS[match[2]]
    if size < 1:
        raise ValueError(f"shm_size must be 1 byte or more, but is {found!r}")
    return int(size)


class ShmChannel(SampleChannel):
    """A bounded channel of samples in shared memory, under GraphLearn-for-PyTorch's name and signature.

    Where theirs is broken it does better: a message larger than the channel is refused and breaks nothing; other
    messages fit wherever the queue stands; tensors may have any dtype, shape and strides, and arrive aligned; every
    wait has a time limit; a process that is killed is noticed and leaves nothing behind; what a consumer keeps stalls
    nobody. The bounds are of what was sent and not yet received.

    Args:
        capacity: How many samples are in the channel at most.
        shm_size: How many bytes they have together: a number, or a text as "256MB".
        num_producers: So many `end_epoch()` make an end of the epoch.

    Example:
        >>> import torch
        >>> with ShmChannel(capacity=2, shm_size="1MB") as channel:
        ...     channel.send({"ids": torch.arange(3)})
        ...     channel.recv(timeout_ms=10_000), channel.empty()
        ({'ids': tensor([0, 1, 2])}, True)
    """

    def __init__(self, capacity: int = 128, shm_size: int | str = "256MB", *, num_producers: int = 1) -> None:
        super().__init__(capacity, parse_size(shm_size), num_producers)

    def send(self, msg: SampleMessage, timeout_ms: int | None = None) -> None:
        """Send a sample, once there is room for it; None or 0 waits for up to ten minutes.

        Raises:
            QueueTimeoutError: There was no room in time; nothing was sent.
            RuntimeError: The sample is larger than the channel; nothing was sent.
            PeerError: The last consumer died.
            Closed: The process that made the channel closed it, or is dead.
            TypeError: Something else than dense tensors under texts.
        """
        seconds = timeout_ms / 1000 if timeout_ms else TIMEOUT_SECONDS
        if not self.put(msg, seconds):
            raise QueueTimeoutError(f"the channel had no room for {seconds:g} s: its consumers don't receive")

    def recv(self, timeout_ms: int | None = None) -> SampleMessage:
        """Return the next sample; None or 0 waits for up to ten minutes.

        Raises:
            QueueTimeoutError: Nothing came in time.
            EndOfEpoch: All producers have ended the epoch, and all of it was received.
            PeerError: A producer sent an error, or died in the middle of an epoch.
            Closed: The process that made the channel closed it, or is dead.
        """
        seconds = timeout_ms / 1000 if timeout_ms else TIMEOUT_SECONDS
        sample = self.take(seconds)
        if sample is None:
            raise QueueTimeoutError(f"no message came for {seconds:g} s: its producers don't send")
        return sample
