"""PyG: its loaders on this package's pipelines, and mini-batches and sampled subgraphs as its data objects.

This room is optional, and needs `torch_geometric` only when it is used. Nothing here samples or fetches; that is done
by the same stages as for everyone else, in `graphfeed.datapipes`. docs/from-pyg.md says what each argument means.
"""

import typing

from graphfeed.pyg import samplers
from graphfeed.pyg.data.negative_sampling import NegativeSampling
from graphfeed.pyg.data.whole_data import from_pyg, to_pyg
from graphfeed.pyg.loaders.cached_loader import CachedLoader
from graphfeed.pyg.loaders.cluster_data import ClusterData
from graphfeed.pyg.loaders.cluster_loader import ClusterLoader
from graphfeed.pyg.loaders.graph_saint import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    GraphSAINTSampler,
)
from graphfeed.pyg.loaders.hgt_loader import HGTLoader
from graphfeed.pyg.loaders.imbalanced_sampler import ImbalancedSampler
from graphfeed.pyg.loaders.link_loader import LinkLoader
from graphfeed.pyg.loaders.link_neighbor_loader import LinkNeighborLoader
from graphfeed.pyg.loaders.neighbor_loader import NeighborLoader
from graphfeed.pyg.loaders.node_loader import NodeLoader
from graphfeed.pyg.loaders.random_node_loader import RandomNodeLoader
from graphfeed.pyg.loaders.shadow_k_hop_sampler import ShaDowKHopSampler
from graphfeed.pyg.loaders.temporal_data_loader import TemporalDataLoader
from graphfeed.pyg.loaders.zip_loader import ZipLoader
from graphfeed.pyg.stages.draw_edge_ends import DrawEdgeEnds
from graphfeed.pyg.stages.draw_walks import DrawWalks
from graphfeed.pyg.stages.exclude_seed_links import ExcludeSeedLinks
from graphfeed.pyg.stages.fill_data import FillData
from graphfeed.pyg.stages.induce_trees import InduceTrees
from graphfeed.pyg.stages.init_worker import InitWorker
from graphfeed.pyg.stages.items_at import ItemsAt
from graphfeed.pyg.stages.link_seeds import LinkSeeds
from graphfeed.pyg.stages.ordered_item_sampler import OrderedItemSampler
from graphfeed.pyg.stages.sample_with import SampleWith
from graphfeed.pyg.stages.to_pyg_data import ToPyGData
from graphfeed.pyg.stages.to_rooted_batch import ToRootedBatch
from graphfeed.pyg.stages.to_sampler_output import ToSamplerOutput
from graphfeed.pyg.stages.to_temporal_data import ToTemporalData
from graphfeed.pyg.stages.zip_batches import ZipBatches
from graphfeed.storage.graph import PyGLayerData, PyGLayerHeteroData

if typing.TYPE_CHECKING:
    from graphfeed.pyg.samplers import HeteroSamplerOutput, HGTSampler, NeighborSampler, NumNeighbors, SamplerOutput
else:

    def __getattr__(name: str) -> typing.Any:
        if name in samplers.NEED_PYG:
            return getattr(samplers, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CachedLoader", "ClusterData", "ClusterLoader", "DrawEdgeEnds", "DrawWalks", "ExcludeSeedLinks", "FillData",
    "GraphSAINTEdgeSampler", "GraphSAINTNodeSampler", "GraphSAINTRandomWalkSampler", "GraphSAINTSampler", "HGTLoader",
    "HGTSampler", "HeteroSamplerOutput", "ImbalancedSampler", "InduceTrees", "InitWorker", "ItemsAt", "LinkLoader",
    "LinkNeighborLoader", "LinkSeeds", "NegativeSampling", "NeighborLoader", "NeighborSampler", "NodeLoader",
    "NumNeighbors", "OrderedItemSampler", "PyGLayerData", "PyGLayerHeteroData", "RandomNodeLoader", "SampleWith",
    "SamplerOutput", "ShaDowKHopSampler", "TemporalDataLoader", "ToPyGData", "ToRootedBatch", "ToSamplerOutput",
    "ToTemporalData", "ZipBatches", "ZipLoader", "from_pyg", "to_pyg",
]  # fmt: skip
