"""WHERE AND WHEN: the loader plans a pipeline and runs the plan.

`plan.py` lists the rules in order, and `dataloader.py` runs an epoch. The only stages here are those that rules insert.
"""

from graphfeed.datapipes.pipeline import Observer
from graphfeed.loader.dataloader import DataLoader
from graphfeed.loader.executors.dispatcher import WorkerLostError
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.explain import bytes_text
from graphfeed.loader.fingerprint import Fingerprint, find_difference, take_fingerprint
from graphfeed.loader.plan import RULES, Plan, make_plan
from graphfeed.loader.profile import find_caches
from graphfeed.loader.progress import Progress
from graphfeed.loader.rules import LoaderOptions
from graphfeed.loader.run import RUN_LISTENERS, RunContext, current_run
from graphfeed.loader.runner import Servers
from graphfeed.loader.stages import (
    ByIndex,
    DecodeFeatures,
    FetchBeforeSteps,
    InThreads,
    InWorkers,
    IssueAhead,
    LatestMatrices,
    Pin,
    Prefetch,
    ReadAhead,
    ReadTrainedAhead,
    SampleTogether,
    StreamPrefetch,
    TrainedFetcher,
    UpstreamPlaceholder,
    WithCudaEvent,
)
from graphfeed.loader.task_loaders import loaders
from graphfeed.loader.temporal_data_loader import AddEnds, TemporalDataLoader, add_ends
from graphfeed.loader.warm_up_command import warm_up

# fmt: off
__all__ = [
    "RULES", "RUN_LISTENERS", "AddEnds", "ByIndex", "DataLoader", "DecodeFeatures", "FetchBeforeSteps", "Fingerprint",
    "InThreads", "InWorkers", "IssueAhead", "LatestMatrices", "LoaderOptions", "Observer", "Pin", "Plan", "Prefetch",
    "ProcessExecutor", "Progress", "ReadAhead", "ReadTrainedAhead", "RunContext", "SampleTogether", "Servers",
    "StreamPrefetch", "TemporalDataLoader", "TrainedFetcher", "UpstreamPlaceholder", "WithCudaEvent", "WorkerLostError",
    "add_ends", "bytes_text", "current_run", "find_caches", "find_difference", "loaders", "make_plan",
    "take_fingerprint", "warm_up",
]
# fmt: on
