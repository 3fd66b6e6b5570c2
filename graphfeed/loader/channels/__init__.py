"""Between processes of one machine: messages through memory that both see."""

from graphfeed.loader.channel import Closed
from graphfeed.loader.channels.codec import SampleMessage
from graphfeed.loader.channels.line import EndOfEpoch, PeerError
from graphfeed.loader.channels.mailbox import Inbox, Outbox, open_mailbox
from graphfeed.loader.channels.mp_channel import MpChannel
from graphfeed.loader.channels.pickling import decode, encode
from graphfeed.loader.channels.sample_channel import ChannelBase
from graphfeed.loader.channels.sampler_pool import SamplerPool
from graphfeed.loader.channels.sampler_receiver import SamplerReceiver
from graphfeed.loader.channels.sampler_sender import SamplerSender
from graphfeed.loader.channels.shm_channel import QueueTimeoutError, ShmChannel

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
