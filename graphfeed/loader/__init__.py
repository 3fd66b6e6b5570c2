"""WHERE AND WHEN: plans a pipeline and runs it."""

from graphfeed.loader.channels import (
    ChannelBase,
    Closed,
    EndOfEpoch,
    MpChannel,
    PeerError,
    QueueTimeoutError,
    SampleMessage,
    SamplerPool,
    SamplerReceiver,
    SamplerSender,
    ShmChannel,
)
from graphfeed.loader.dataloader import DataLoader
from graphfeed.loader.dispatcher import WorkerLostError
from graphfeed.loader.elsewhere import Elsewhere
from graphfeed.loader.in_threads import InThreads
from graphfeed.loader.in_workers import InWorkers
from graphfeed.loader.on_stream import OnStream
from graphfeed.loader.pin import Pin
from graphfeed.loader.plan import RULES, Plan, make_plan
from graphfeed.loader.prefetch import Prefetch
from graphfeed.loader.prefetcher_iter_data_pipe import PrefetcherIterDataPipe
from graphfeed.loader.process_executor import ProcessExecutor
from graphfeed.loader.recorded import Recorded
from graphfeed.loader.rules import LoaderOptions
from graphfeed.loader.sharder import Sharder

__all__ = [
    "RULES",
    "ChannelBase",
    "Closed",
    "DataLoader",
    "Elsewhere",
    "EndOfEpoch",
    "InThreads",
    "InWorkers",
    "LoaderOptions",
    "MpChannel",
    "OnStream",
    "PeerError",
    "Pin",
    "Plan",
    "Prefetch",
    "PrefetcherIterDataPipe",
    "ProcessExecutor",
    "QueueTimeoutError",
    "Recorded",
    "SampleMessage",
    "SamplerPool",
    "SamplerReceiver",
    "SamplerSender",
    "Sharder",
    "ShmChannel",
    "WorkerLostError",
    "make_plan",
]
