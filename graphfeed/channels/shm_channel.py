"""GraphLearn-for-PyTorch's shared-memory channel."""

from typing import Any

from graphfeed.channels.sample_channel import SampleChannel, SampleMessage
from graphfeed.loader.transport import TIMEOUT_SECONDS
from graphfeed.ops.arguments import checked, parse_bytes


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
        ...     channel.recv(timeout_ms=10_000), channel.empty()
        ({'ids': tensor([0, 1, 2])}, True)
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
            TypeError: The sample is not a dict of dense tensors by name.
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
            PeerError: A producer sent an error, or died in the middle of an epoch.
            Closed: The process that made the channel closed it, or is dead.
        """
        seconds = timeout_ms / 1000 if timeout_ms else TIMEOUT_SECONDS
        sample = self.get(seconds)
        if sample is None:
            raise QueueTimeoutError(f"no message came for {seconds:g} s: its producers don't send")
        return sample
