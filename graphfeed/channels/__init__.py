"""Channels that carry samples between processes of your own, on one machine.

They have the names of GraphLearn-for-PyTorch and DGL. This room is optional: the loader does not use it. How the
loader's own mini-batches travel between its threads and processes is in `graphfeed.loader.transport`.
"""

from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.line import EndOfEpoch, PeerError
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
