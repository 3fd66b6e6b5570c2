"""WHERE IT LIES: graphs and the subgraphs drawn from them, features, item sets, datasets."""

from graphfeed.storage import datasets
from graphfeed.storage.builtin_dataset import BuiltinDataset
from graphfeed.storage.dataset import Dataset
from graphfeed.storage.disk_based_feature import DiskBasedFeature
from graphfeed.storage.feature import Feature, TorchBasedFeature
from graphfeed.storage.feature_store import BasicFeatureStore, FeatureStore
from graphfeed.storage.from_coo import from_coo
from graphfeed.storage.graph import FusedCSCSamplingGraph, fused_csc_sampling_graph
from graphfeed.storage.item_set import HeteroItemSet, ItemSet
from graphfeed.storage.on_disk_dataset import OnDiskDataset, OnDiskTask
from graphfeed.storage.preprocess import preprocess_ondisk_dataset
from graphfeed.storage.sampled_subgraph import CSCFormatBase, SampledSubgraph
from graphfeed.storage.sampling_graph import SamplingGraph
from graphfeed.storage.task import Task
from graphfeed.storage.torch_based_feature_store import OnDiskFeatureData, TorchBasedFeatureStore

__all__ = [
    "BasicFeatureStore",
    "BuiltinDataset",
    "CSCFormatBase",
    "Dataset",
    "DiskBasedFeature",
    "Feature",
    "FeatureStore",
    "FusedCSCSamplingGraph",
    "HeteroItemSet",
    "ItemSet",
    "OnDiskDataset",
    "OnDiskFeatureData",
    "OnDiskTask",
    "SampledSubgraph",
    "SamplingGraph",
    "Task",
    "TorchBasedFeature",
    "TorchBasedFeatureStore",
    "datasets",
    "from_coo",
    "fused_csc_sampling_graph",
    "preprocess_ondisk_dataset",
]
