"""Channels of samples between processes of one machine that users start themselves. The loader never uses them.

A process has a `channel_client`, which talks to a `broker`, a thread of the process that made the channel; tensors stay
in the memory that `graphfeed.loader.transport` shares. What carries samples between machines is found here by the name.
"""

import sys
import typing

from graphfeed.channels.bounded_queue import EndOfEpoch, PeerError
from graphfeed.channels.sample_channel import ChannelBase, MpChannel, QueueTimeoutError, SampleMessage, ShmChannel
from graphfeed.channels.sampler_pool import SamplerPool
from graphfeed.loader.transport import Closed

__all__ = [
    "ChannelBase",
    "Closed",
    "EndOfEpoch",
    "MpChannel",
    "PeerError",
    "QueueTimeoutError",
    "SampleMessage",
    "SamplerPool",
    "ShmChannel",
]

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        if name in {"RemoteReceivingChannel", "SamplerReceiver", "SamplerSender"}:
            return getattr(sys.modules["graphfeed"], name)  # the package knows where each name is found
        raise AttributeError(f"module 'graphfeed.channels' has no attribute {name!r}")
