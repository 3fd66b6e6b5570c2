"""Helpers of stages, and of writers of stages, rules and executors: fluent names, traversal, streams, estimates.

Nothing here is a stage or runs one. `graphfeed.loader` rewrites pipelines in order to run them.
"""

from graphfeed.datapipes.pipeline.description import describe_stage
from graphfeed.datapipes.pipeline.fluent import register
from graphfeed.datapipes.pipeline.iteration import torch_shard
from graphfeed.datapipes.pipeline.observer import OBSERVER, Observer, Side
from graphfeed.datapipes.pipeline.seeding import seeded_globals
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, distinct, measure_items
from graphfeed.datapipes.pipeline.streams import assign_streams, keep_streams
from graphfeed.datapipes.pipeline.traits import Placement, Traits
from graphfeed.datapipes.pipeline.traverse import (
    check_source,
    find,
    graphs_before,
    replace,
    seed_types_before,
    traverse,
)

# fmt: off
__all__ = [
    "OBSERVER", "BatchSizeEstimate", "Observer", "Placement", "Side", "Traits", "assign_streams", "check_source",
    "describe_stage", "distinct", "find", "graphs_before", "keep_streams", "measure_items", "register", "replace",
    "seed_types_before", "seeded_globals", "torch_shard", "traverse",
]
# fmt: on
