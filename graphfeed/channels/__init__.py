"""Channels of samples between processes that users start themselves. The loader never uses them.

`ShmChannel` and `MpChannel` carry dicts of tensors between processes of one machine, under the names that
GraphLearn-for-PyTorch gave them; `SamplerPool`, `SamplerSender` and `SamplerReceiver` do the same over TCP and TLS,
also between machines, under DGL's former names. In `sample_channel`, each process has a `channel_client`, which
talks to a `broker`, a thread of the process that made the channel; the broker keeps the account, in a
`bounded_queue_state`, and forwards records, while the tensors stay in the memory that `graphfeed.loader.transport`
shares. Over TCP, the sockets' own buffers are the queue, and `frames` says what goes through; `addresses` and
`certificates` say who may talk to whom, there and in `graphfeed.distributed`. The mailboxes and the pickling from
`graphfeed.loader.transport` are shown here too, for processes that need no queue between them.
`RemoteReceivingChannel`, which reads from sampling servers, is in `graphfeed.distributed`, and found here too.
"""

import importlib
import typing

from graphfeed.channels.channel_client import EndOfEpoch, PeerError
from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.mp_channel import MpChannel
from graphfeed.channels.sample_channel import ChannelBase
from graphfeed.channels.sampler_pool import SamplerPool
from graphfeed.channels.sampler_receiver import SamplerReceiver
from graphfeed.channels.sampler_sender import SamplerSender
from graphfeed.channels.shm_channel import QueueTimeoutError, ShmChannel
from graphfeed.loader.transport.mailbox import Inbox, Outbox, open_mailbox
from graphfeed.loader.transport.pickling import decode, encode
from graphfeed.loader.transport.thread_channel import Closed

__all__ = [
    "ChannelBase",
    "Closed",
    "EndOfEpoch",
    "Inbox",
    "MpChannel",
    "Outbox",
    "PeerError",
    "QueueTimeoutError",
    "SampleMessage",
    "SamplerPool",
    "SamplerReceiver",
    "SamplerSender",
    "ShmChannel",
    "decode",
    "encode",
    "open_mailbox",
]

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        if name == "RemoteReceivingChannel":
            return importlib.import_module("graphfeed.distributed").RemoteReceivingChannel
        raise AttributeError(f"module 'graphfeed.channels' has no attribute {name!r}")
