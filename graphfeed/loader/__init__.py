"""WHERE AND WHEN: the loader plans a pipeline and runs the plan.

`plan.py` lists the rules in order, `rules.py` has them, `dataloader.py` runs an epoch. What a stage computes is not
decided here, but in `graphfeed.datapipes`; the only stages here are those that rules insert.
"""

from graphfeed.datapipes.pipeline.observer import Observer
from graphfeed.loader.dataloader import DataLoader
from graphfeed.loader.executors.dispatcher import WorkerLostError
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.plan import RULES, Plan, make_plan
from graphfeed.loader.rules import LoaderOptions
from graphfeed.loader.run import RunContext, current_run
from graphfeed.loader.stages.in_threads import InThreads
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.pin import Pin
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.stages.sharder import Sharder
from graphfeed.loader.stages.stream_prefetch import StreamPrefetch
from graphfeed.loader.stages.upstream_placeholder import UpstreamPlaceholder
from graphfeed.loader.stages.with_cuda_event import WithCudaEvent
from graphfeed.loader.warm_up_command import warm_up

__all__ = [
    "RULES",
    "DataLoader",
    "InThreads",
    "InWorkers",
    "LoaderOptions",
    "Observer",
    "Pin",
    "Plan",
    "Prefetch",
    "ProcessExecutor",
    "RunContext",
    "Sharder",
    "StreamPrefetch",
    "UpstreamPlaceholder",
    "WithCudaEvent",
    "WorkerLostError",
    "current_run",
    "make_plan",
    "warm_up",
]
