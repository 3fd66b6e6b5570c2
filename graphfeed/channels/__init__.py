"""Channels of samples between processes of one machine that users start themselves. The loader never uses them.

`ShmChannel` and `MpChannel` carry dicts of tensors under the names that GraphLearn-for-PyTorch gave them, and
`SamplerPool` starts processes under DGL's former name. In `sample_channel`, each process has a `channel_client`, which
talks to a `broker`, a thread of the process that made the channel; the broker keeps the account, in a
`bounded_queue_state`, and forwards records, while the tensors stay in the memory that `graphfeed.loader.transport`
shares. What carries samples between machines, `SamplerSender`, `SamplerReceiver` and `RemoteReceivingChannel`, is found
here by the name.
"""

import sys
import typing

from graphfeed.channels.channel_client import EndOfEpoch, PeerError
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
