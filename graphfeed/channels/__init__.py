"""Channels of samples between user-started processes on one machine. The loader does not use them.

Each client connects to a `broker`, a thread of the process that created the channel. Tensors stay in shared memory of
`graphfeed.loader.transport`. The classes that send samples between machines can be imported from here, too.
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
