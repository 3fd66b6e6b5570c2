"""Stages that only the loader's rules insert: shards, cuts, prefetch threads, pinning, CUDA streams.

They determine where others run. Workers are in `graphfeed.loader.executors`, data transfer in `loader.transport`.
"""

from graphfeed.loader.stages.decode_features import DecodeFeatures, fetch_codes
from graphfeed.loader.stages.fetch_before_steps import FetchBeforeSteps
from graphfeed.loader.stages.in_windows import ReadAhead
from graphfeed.loader.stages.in_workers import ByIndex, InThreads, InWorkers, UpstreamPlaceholder
from graphfeed.loader.stages.issue_ahead import IssueAhead
from graphfeed.loader.stages.latest_matrices import LatestMatrices
from graphfeed.loader.stages.prefetch import Pin, Prefetch, StreamPrefetch, WithCudaEvent
from graphfeed.loader.stages.sample_together import SampleTogether
from graphfeed.loader.stages.trained_fetcher import ReadTrainedAhead, TrainedFetcher

# fmt: off
__all__ = [
    "ByIndex", "DecodeFeatures", "FetchBeforeSteps", "InThreads", "InWorkers", "IssueAhead", "LatestMatrices", "Pin",
    "Prefetch", "ReadAhead", "ReadTrainedAhead", "SampleTogether", "StreamPrefetch", "TrainedFetcher",
    "UpstreamPlaceholder", "WithCudaEvent", "fetch_codes",
]
# fmt: on
