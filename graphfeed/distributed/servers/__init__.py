"""Servers for other machines, and their clients, over Arrow Flight (`graphfeed.distributed.wire`).

`SamplingServer` produces the mini-batches of a pipeline, for loaders (`SamplingServers`) and for programs without the
pipeline (`RemoteReceivingChannel`). `SamplerSender` and `SamplerReceiver` transfer arbitrary samples, under names that
DGL once used. Channels between processes of one machine are in `graphfeed.channels`.
"""

from graphfeed.distributed.servers.remote_executor import SamplingServers
from graphfeed.distributed.servers.remote_receiving_channel import RemoteReceivingChannel
from graphfeed.distributed.servers.sampler_receiver import SamplerReceiver
from graphfeed.distributed.servers.sampler_sender import SamplerSender
from graphfeed.distributed.servers.sampling_server import SamplingServer

__all__ = ["RemoteReceivingChannel", "SamplerReceiver", "SamplerSender", "SamplingServer", "SamplingServers"]
