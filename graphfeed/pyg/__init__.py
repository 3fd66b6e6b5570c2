"""PyG's loaders, built on this package's pipelines, and sampled subgraphs as PyG's data objects.

The package imports `torch_geometric` only when it is used. The stages in `graphfeed.datapipes` sample and fetch.
docs/from-pyg.md describes the arguments.
"""

import typing

from graphfeed.pyg import samplers
from graphfeed.pyg.data import tables
from graphfeed.pyg.data.read_input import NegativeSampling
from graphfeed.pyg.data.whole_data import from_pyg, to_pyg
from graphfeed.pyg.loaders.cluster import ClusterData, ClusterLoader
from graphfeed.pyg.loaders.graph_saint import (
    DrawEdgeEnds,
    DrawWalks,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    GraphSAINTSampler,
    SplitByType,
)
from graphfeed.pyg.loaders.hgt_loader import HGTLoader
from graphfeed.pyg.loaders.imbalanced_sampler import ImbalancedSampler
from graphfeed.pyg.loaders.link_loader import LinkLoader
from graphfeed.pyg.loaders.link_neighbor_loader import LinkNeighborLoader
from graphfeed.pyg.loaders.listed_link_loader import EndsOfPairs, ListedLinkLoader
from graphfeed.pyg.loaders.neighbor_loader import NeighborLoader
from graphfeed.pyg.loaders.node_loader import NodeLoader
from graphfeed.pyg.loaders.pyg_loader import InitWorker
from graphfeed.pyg.loaders.random_node_loader import RandomNodeLoader
from graphfeed.pyg.loaders.shadow_k_hop_sampler import InduceTrees, ShaDowKHopSampler
from graphfeed.pyg.loaders.temporal_data_loader import TemporalDataLoader, ToTemporalData
from graphfeed.pyg.loaders.walk_loaders import MetaPath2VecLoader, Node2VecLoader, ToWindows
from graphfeed.pyg.loaders.zip_loader import ItemsAt, ZipBatches, ZipLoader
from graphfeed.pyg.stages.fill_data import FillData, ToPyGData, ToRootedBatch
from graphfeed.pyg.stages.ordered_item_sampler import OrderedItemSampler
from graphfeed.pyg.stages.sample_with import SampleWith
from graphfeed.pyg.stages.sampler_output import JoinedNeighborSampler, JoinedTemporalSampler, ToSamplerOutput
from graphfeed.pyg.stages.seed_links import ExcludeSeedLinks, LinkSeeds
from graphfeed.storage.graph import PyGLayerData, PyGLayerHeteroData

if typing.TYPE_CHECKING:
    from graphfeed.pyg.samplers import HeteroSamplerOutput, HGTSampler, NeighborSampler, NumNeighbors, SamplerOutput

    CachedLoader: typing.Any
else:

    def __getattr__(name: str) -> typing.Any:
        if name in samplers.NEED_PYG:
            return getattr(samplers, name)
        if name == "CachedLoader":  # PyG's class, which accepts these loaders
            return tables.import_pyg("torch_geometric.loader", name).CachedLoader
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CachedLoader", "ClusterData", "ClusterLoader", "DrawEdgeEnds", "DrawWalks", "EndsOfPairs", "ExcludeSeedLinks",
    "FillData", "GraphSAINTEdgeSampler", "GraphSAINTNodeSampler", "GraphSAINTRandomWalkSampler", "GraphSAINTSampler",
    "HGTLoader", "HGTSampler", "HeteroSamplerOutput", "ImbalancedSampler", "InduceTrees", "InitWorker", "ItemsAt",
    "JoinedNeighborSampler", "JoinedTemporalSampler", "LinkLoader", "LinkNeighborLoader", "LinkSeeds",
    "ListedLinkLoader", "MetaPath2VecLoader", "NegativeSampling", "NeighborLoader", "NeighborSampler", "Node2VecLoader",
    "NodeLoader", "NumNeighbors", "OrderedItemSampler", "PyGLayerData", "PyGLayerHeteroData", "RandomNodeLoader",
    "SampleWith", "SamplerOutput", "ShaDowKHopSampler", "SplitByType", "TemporalDataLoader", "ToPyGData",
    "ToRootedBatch", "ToSamplerOutput", "ToTemporalData", "ToWindows", "ZipBatches", "ZipLoader", "from_pyg", "to_pyg",
]  # fmt: skip
