"""WHAT: the stages of pipelines, one per file, and the mini-batches that flow through them.

`datapipe.py` and `transform.py` define stages; `pipeline/` has their helpers. A stage does not loop over edges or rows
itself: it calls a graph or a feature (`graphfeed.storage`), or an operation (`graphfeed.ops`).
"""

from graphfeed.datapipes.bufferer import Bufferer
from graphfeed.datapipes.copy_to import CopyTo
from graphfeed.datapipes.datapipe import Datapipe, Shardable, Source, length
from graphfeed.datapipes.feature_fetcher import FeatureFetcher
from graphfeed.datapipes.minibatch import Batch, MiniBatch, move_together
from graphfeed.datapipes.minibatch_transformer import MiniBatchTransformer
from graphfeed.datapipes.negatives.fixed_negatives import FixedNegatives
from graphfeed.datapipes.negatives.listed_pair_sampler import ListedPairSampler
from graphfeed.datapipes.negatives.negative_sampler import NegativeSampler, with_negatives
from graphfeed.datapipes.negatives.pair_negative_sampler import PairNegativeSampler, check_amount
from graphfeed.datapipes.negatives.seed_edges_excluder import SeedEdgesExcluder, exclude_seed_edges
from graphfeed.datapipes.negatives.temporal_negative_sampler import TemporalNegativeSampler
from graphfeed.datapipes.negatives.uniform_negative_sampler import UniformNegativeSampler
from graphfeed.datapipes.pipeline import Placement, find, replace, traverse
from graphfeed.datapipes.pipeline.pipeline_graph import PipelineGraph, to_graph
from graphfeed.datapipes.samplers.budget_sampler import BudgetSampler
from graphfeed.datapipes.samplers.compact_per_layer import CompactPerLayer
from graphfeed.datapipes.samplers.fanout_sampler import FanoutSampler
from graphfeed.datapipes.samplers.in_subgraph_sampler import InSubgraphSampler
from graphfeed.datapipes.samplers.layer_neighbor_sampler import LayerNeighborSampler
from graphfeed.datapipes.samplers.neighbor_sampler import NeighborSampler
from graphfeed.datapipes.samplers.page_rank_sampler import PageRankSampler
from graphfeed.datapipes.samplers.sample_per_layer import SamplePerLayer
from graphfeed.datapipes.samplers.skip_gram_pairs import SkipGramPairs
from graphfeed.datapipes.samplers.subgraph_inducer import SubgraphInducer
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler, check_is_graph, with_nodes
from graphfeed.datapipes.samplers.temporal_layer_neighbor_sampler import TemporalLayerNeighborSampler
from graphfeed.datapipes.samplers.temporal_neighbor_sampler import TemporalNeighborSampler
from graphfeed.datapipes.samplers.temporal_sampler import TemporalSampler
from graphfeed.datapipes.samplers.visit_sampler import VisitSampler
from graphfeed.datapipes.samplers.walk_sampler import WalkSampler
from graphfeed.datapipes.sources.distributed_item_sampler import DistributedItemSampler, find_rank
from graphfeed.datapipes.sources.item_sampler import ItemSampler
from graphfeed.datapipes.sources.items_by_owner import nodes_of_items
from graphfeed.datapipes.sources.iterable_source import IterableSource
from graphfeed.datapipes.sources.minibatcher import ItemNameWarning, minibatcher_default
from graphfeed.datapipes.sources.node_record import NodeRecord, is_node
from graphfeed.datapipes.sources.seeds import spread_to_seeds
from graphfeed.datapipes.sources.time_spans import check_rising
from graphfeed.datapipes.to_matrix import NeighborMatrix, ToMatrix, arranged, place_edges
from graphfeed.datapipes.transform import Transform, apply_stages, describe_place, worker_name

# fmt: off
__all__ = [
    "Batch", "BudgetSampler", "Bufferer", "CompactPerLayer", "CopyTo", "Datapipe", "DistributedItemSampler",
    "FanoutSampler", "FeatureFetcher", "FixedNegatives", "InSubgraphSampler", "ItemNameWarning", "ItemSampler",
    "IterableSource", "LayerNeighborSampler", "ListedPairSampler", "MiniBatch", "MiniBatchTransformer",
    "NegativeSampler", "NeighborMatrix", "NeighborSampler", "NodeRecord", "PageRankSampler", "PairNegativeSampler",
    "PipelineGraph", "Placement", "SamplePerLayer", "SeedEdgesExcluder", "Shardable", "SkipGramPairs", "Source",
    "SubgraphInducer", "SubgraphSampler", "TemporalLayerNeighborSampler", "TemporalNegativeSampler",
    "TemporalNeighborSampler", "TemporalSampler", "ToMatrix", "Transform", "UniformNegativeSampler", "VisitSampler",
    "WalkSampler", "apply_stages", "arranged", "check_amount", "check_is_graph", "check_rising", "describe_place",
    "exclude_seed_edges", "find", "find_rank", "is_node", "length", "minibatcher_default", "move_together",
    "nodes_of_items", "place_edges", "replace", "spread_to_seeds", "to_graph", "traverse", "with_negatives",
    "with_nodes", "worker_name",
]
# fmt: on
