"""WHERE IT LIES: graphs and the subgraphs drawn from them, features, item sets, datasets."""

from graphfeed.storage import datasets
from graphfeed.storage.dataset import Dataset
from graphfeed.storage.disk_based_feature import DiskBasedFeature
from graphfeed.storage.feature import Feature, TorchBasedFeature
from graphfeed.storage.feature_store import BasicFeatureStore, FeatureStore
from graphfeed.storage.from_coo import from_coo
from graphfeed.storage.graph import FusedCSCSamplingGraph, fused_csc_sampling_graph
from graphfeed.storage.item_set import HeteroItemSet, ItemSet
from graphfeed.storage.item_set_dict import ItemSetDict
from graphfeed.storage.sampled_subgraph import (
    CSCFormatBase,
    PyGLayerData,
    PyGLayerHeteroData,
    SampledSubgraph,
    SampledSubgraphImpl,
)
from graphfeed.storage.sampling_graph import SamplingGraph
from graphfeed.storage.torch_based_feature_store import OnDiskFeatureData, TorchBasedFeatureStore

__all__ = [
    "BasicFeatureStore",
    "CSCFormatBase",
    "Dataset",
    "DiskBasedFeature",
    "Feature",
    "FeatureStore",
    "FusedCSCSamplingGraph",
    "HeteroItemSet",
    "ItemSet",
    "ItemSetDict",
    "OnDiskFeatureData",
    "PyGLayerData",
    "PyGLayerHeteroData",
    "SampledSubgraph",
    "SampledSubgraphImpl",
    "SamplingGraph",
    "TorchBasedFeature",
    "TorchBasedFeatureStore",
    "datasets",
    "from_coo",
    "fused_csc_sampling_graph",
]
