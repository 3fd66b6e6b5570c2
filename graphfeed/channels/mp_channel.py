"""The channel that GraphLearn-for-PyTorch builds on a queue of multiprocessing."""

import queue

from graphfeed.channels.sample_channel import UNBOUNDED, SampleChannel, SampleMessage
from graphfeed.loader.transport import TIMEOUT_SECONDS
from graphfeed.ops.arguments import checked


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
