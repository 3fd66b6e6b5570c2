"""The stages that only the loader's rules insert: shards, cuts, threads that run ahead, pinning, CUDA streams.

They say where others run. The workers are in `graphfeed.loader.executors`, what crosses a cut in `transport`.
"""

from graphfeed.loader.stages.in_windows import InWindows
from graphfeed.loader.stages.in_workers import ByIndex, InThreads, InWorkers, UpstreamPlaceholder
from graphfeed.loader.stages.prefetch import Pin, Prefetch, StreamPrefetch, WithCudaEvent

# fmt: off
__all__ = [
    "ByIndex", "InThreads", "InWindows", "InWorkers", "Pin", "Prefetch", "StreamPrefetch", "UpstreamPlaceholder",
    "WithCudaEvent",
]
# fmt: on
