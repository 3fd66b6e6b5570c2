"""PyG: its loaders on this package's pipelines, and mini-batches and sampled subgraphs as its data objects.

This room is optional, and needs `torch_geometric` only when it is used. Nothing here samples or fetches; that is done
by the same stages as for everyone else, in `graphfeed.datapipes`. docs/from-pyg.md says what each argument means.
"""

import importlib
import typing

from graphfeed.pyg.cached_loader import CachedLoader
from graphfeed.pyg.cluster_data import ClusterData
from graphfeed.pyg.cluster_loader import ClusterLoader
from graphfeed.pyg.draw_edge_ends import DrawEdgeEnds
from graphfeed.pyg.draw_walks import DrawWalks
from graphfeed.pyg.exclude_seed_links import ExcludeSeedLinks
from graphfeed.pyg.fill_data import FillData
from graphfeed.pyg.graph_saint import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    GraphSAINTSampler,
)
from graphfeed.pyg.hgt_loader import HGTLoader
from graphfeed.pyg.imbalanced_sampler import ImbalancedSampler
from graphfeed.pyg.induce_trees import InduceTrees
from graphfeed.pyg.init_worker import InitWorker
from graphfeed.pyg.items_at import ItemsAt
from graphfeed.pyg.layer_data import PyGLayerData, PyGLayerHeteroData
from graphfeed.pyg.link_loader import LinkLoader
from graphfeed.pyg.link_neighbor_loader import LinkNeighborLoader
from graphfeed.pyg.link_seeds import LinkSeeds
from graphfeed.pyg.negative_sampling import NegativeSampling
from graphfeed.pyg.neighbor_loader import NeighborLoader
from graphfeed.pyg.node_loader import NodeLoader
from graphfeed.pyg.ordered_item_sampler import OrderedItemSampler
from graphfeed.pyg.random_node_loader import RandomNodeLoader
from graphfeed.pyg.sample_with import SampleWith
from graphfeed.pyg.shadow_k_hop_sampler import ShaDowKHopSampler
from graphfeed.pyg.take_parts import TakeParts
from graphfeed.pyg.temporal_data_loader import TemporalDataLoader
from graphfeed.pyg.to_pyg_data import ToPyGData
from graphfeed.pyg.to_rooted_batch import ToRootedBatch
from graphfeed.pyg.to_sampler_output import ToSamplerOutput
from graphfeed.pyg.to_temporal_data import ToTemporalData
from graphfeed.pyg.transform_output import TransformOutput
from graphfeed.pyg.whole_data import from_pyg, to_pyg
from graphfeed.pyg.zip_batches import ZipBatches
from graphfeed.pyg.zip_loader import ZipLoader

if typing.TYPE_CHECKING:
    from graphfeed.pyg.hgt_sampler import HGTSampler as HGTSampler
    from graphfeed.pyg.neighbor_sampler import NeighborSampler as NeighborSampler

    HeteroSamplerOutput: typing.Any
    NumNeighbors: typing.Any
    SamplerOutput: typing.Any
else:
    # These derive from PyG's classes, or are PyG's own.
    _FOUND_IN = {
        "HGTSampler": "graphfeed.pyg.hgt_sampler",
        "HeteroSamplerOutput": "torch_geometric.sampler",
        "NeighborSampler": "graphfeed.pyg.neighbor_sampler",
        "NumNeighbors": "torch_geometric.sampler",
        "SamplerOutput": "torch_geometric.sampler",
    }

    def __getattr__(name: str) -> typing.Any:
        if name in _FOUND_IN:
            importlib.import_module("graphfeed.pyg.to_sampler_output").import_pyg("torch_geometric.sampler", name)
            return getattr(importlib.import_module(_FOUND_IN[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CachedLoader",
    "ClusterData",
    "ClusterLoader",
    "DrawEdgeEnds",
    "DrawWalks",
    "ExcludeSeedLinks",
    "FillData",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "GraphSAINTSampler",
    "HGTLoader",
    "HGTSampler",
    "HeteroSamplerOutput",
    "ImbalancedSampler",
    "InduceTrees",
    "InitWorker",
    "ItemsAt",
    "LinkLoader",
    "LinkNeighborLoader",
    "LinkSeeds",
    "NegativeSampling",
    "NeighborLoader",
    "NeighborSampler",
    "NodeLoader",
    "NumNeighbors",
    "OrderedItemSampler",
    "PyGLayerData",
    "PyGLayerHeteroData",
    "RandomNodeLoader",
    "SampleWith",
    "SamplerOutput",
    "ShaDowKHopSampler",
    "TakeParts",
    "TemporalDataLoader",
    "ToPyGData",
    "ToRootedBatch",
    "ToSamplerOutput",
    "ToTemporalData",
    "TransformOutput",
    "ZipBatches",
    "ZipLoader",
    "from_pyg",
    "to_pyg",
]
