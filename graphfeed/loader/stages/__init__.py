"""The stages that only the loader's rules insert: shards, cuts, threads that run ahead, pinning, CUDA streams.

Users don't write them; their stages are in `graphfeed.datapipes`. These stages say where others run. The workers
themselves are in `graphfeed.loader.executors`, and what crosses a cut is in `graphfeed.loader.transport`.
"""

from graphfeed.loader.stages.in_threads import InThreads
from graphfeed.loader.stages.in_windows import InWindows
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.pin import Pin
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.stages.sharder import Sharder
from graphfeed.loader.stages.stream_prefetch import StreamPrefetch
from graphfeed.loader.stages.upstream_placeholder import UpstreamPlaceholder
from graphfeed.loader.stages.with_cuda_event import WithCudaEvent

# fmt: off
__all__ = [
    "InThreads", "InWindows", "InWorkers", "Pin", "Prefetch", "Sharder", "StreamPrefetch", "UpstreamPlaceholder",
    "WithCudaEvent",
]
# fmt: on
