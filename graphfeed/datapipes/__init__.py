"""WHAT: the stages that a pipeline is written with, one per file, and the mini-batch that flows through them.

`datapipe.py` says what a stage is, `transform.py` what most stages are. Stages that only the loader inserts are in
`graphfeed.loader.stages`; what merely supports stages is in `graphfeed.datapipes.pipeline`. A stage does not loop over
edges or rows itself: it calls a graph or a feature (`graphfeed.storage`), or an operation (`graphfeed.ops`).
"""

from graphfeed.datapipes.budget_sampler import BudgetSampler
from graphfeed.datapipes.bufferer import Bufferer
from graphfeed.datapipes.compact_per_layer import CompactPerLayer
from graphfeed.datapipes.copy_to import CopyTo
from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.distributed_item_sampler import DistributedItemSampler
from graphfeed.datapipes.fanout_sampler import FanoutSampler
from graphfeed.datapipes.feature_fetcher import FeatureFetcher
from graphfeed.datapipes.in_subgraph_sampler import InSubgraphSampler
from graphfeed.datapipes.item_sampler import ItemSampler
from graphfeed.datapipes.iterable_source import IterableSource
from graphfeed.datapipes.layer_neighbor_sampler import LayerNeighborSampler
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.minibatch_transformer import MiniBatchTransformer
from graphfeed.datapipes.minibatcher import ItemNameWarning, minibatcher_default
from graphfeed.datapipes.negative_sampler import NegativeSampler, with_negatives
from graphfeed.datapipes.neighbor_sampler import NeighborSampler
from graphfeed.datapipes.pair_negative_sampler import PairNegativeSampler
from graphfeed.datapipes.pipeline.pipeline_graph import (
    PipelineGraph,
    to_graph,
)
from graphfeed.datapipes.pipeline.placement import Placement
from graphfeed.datapipes.pipeline.traverse import find, replace, traverse
from graphfeed.datapipes.sample_per_layer import SamplePerLayer
from graphfeed.datapipes.seed_edges_excluder import SeedEdgesExcluder, exclude_seed_edges
from graphfeed.datapipes.subgraph_inducer import SubgraphInducer
from graphfeed.datapipes.subgraph_sampler import SubgraphSampler
from graphfeed.datapipes.temporal_layer_neighbor_sampler import TemporalLayerNeighborSampler
from graphfeed.datapipes.temporal_neighbor_sampler import TemporalNeighborSampler
from graphfeed.datapipes.temporal_sampler import TemporalSampler
from graphfeed.datapipes.transform import Transform
from graphfeed.datapipes.uniform_negative_sampler import UniformNegativeSampler

# fmt: off
__all__ = [
    "BudgetSampler", "Bufferer", "CompactPerLayer", "CopyTo", "Datapipe", "DistributedItemSampler", "FanoutSampler",
    "FeatureFetcher",
    "InSubgraphSampler", "ItemNameWarning", "ItemSampler", "IterableSource", "LayerNeighborSampler", "MiniBatch",
    "MiniBatchTransformer", "NegativeSampler", "NeighborSampler", "PairNegativeSampler", "PipelineGraph", "Placement",
    "SamplePerLayer", "SeedEdgesExcluder", "SubgraphInducer", "SubgraphSampler", "TemporalLayerNeighborSampler",
    "TemporalNeighborSampler", "TemporalSampler", "Transform", "UniformNegativeSampler", "exclude_seed_edges", "find",
    "minibatcher_default", "replace", "to_graph", "traverse", "with_negatives",
]
# fmt: on
