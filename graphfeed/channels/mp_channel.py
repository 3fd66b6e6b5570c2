"""GraphLearn-for-PyTorch's channel over a queue of Python's multiprocessing."""

import queue

from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.sample_channel import SampleChannel
from graphfeed.loader.transport.mailbox import TIMEOUT_SECONDS

UNBOUNDED_MESSAGES, UNBOUNDED_BYTES = 1 << 31, 1 << 62


class MpChannel(SampleChannel):
    """A channel of samples under GraphLearn-for-PyTorch's name, with the keywords and errors of a queue.

    Theirs is a queue of `torch.multiprocessing`, with two descriptors a tensor; this one has none for what fits its
    shared memory, and carries nothing but dicts of tensors.

    Args:
        maxsize: How many samples are in it at most; 0 is without a bound.
        num_producers: So many `end_epoch()` make an end of the epoch.

    Example:
        >>> import torch
        >>> with MpChannel(maxsize=2) as channel:
        ...     channel.send({"ids": torch.arange(3)})
        ...     channel.recv(timeout=10)
        {'ids': tensor([0, 1, 2])}
    """

    def __init__(self, maxsize: int = 0, *, num_producers: int = 1) -> None:
        super().__init__(maxsize if maxsize > 0 else UNBOUNDED_MESSAGES, UNBOUNDED_BYTES, num_producers)

    def send(self, msg: SampleMessage, block: bool = True, timeout: float | None = None) -> None:
        """Send a sample; without a timeout, for up to ten minutes.

        Raises:
            queue.Full: There was no room in time, or at once with `block=False`.
        """
        seconds = waiting_time(block, timeout)
        if not self.put(msg, seconds):
            raise queue.Full(f"the channel had no room for {seconds:g} s: its consumers don't receive")

    def recv(self, block: bool = True, timeout: float | None = None) -> SampleMessage:
        """Return the next sample; without a timeout, wait for up to ten minutes.

        Raises:
            queue.Empty: Nothing came in time, or is there with `block=False`.
            EndOfEpoch: All producers have ended the epoch, and all of it was received.
            PeerError: A producer sent an error, or died in the middle of an epoch.
            Closed: The process that made the channel closed it, or is dead.
        """
        seconds = waiting_time(block, timeout)
        sample = self.take(seconds)
        if sample is None:
            raise queue.Empty(f"no message came for {seconds:g} s: its producers don't send")
        return sample


def waiting_time(block: bool, timeout: float | None) -> float:
    """Return how many seconds a queue's keywords ask for."""
    if not block:
        return 0.0
    return TIMEOUT_SECONDS if timeout is None else timeout
