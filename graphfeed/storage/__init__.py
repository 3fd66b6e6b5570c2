"""WHERE IT LIES: graphs and the subgraphs drawn from them, features, item sets, datasets."""

from graphfeed.storage import datasets
from graphfeed.storage.builtin_dataset import BuiltinDataset
from graphfeed.storage.cached_feature import (
    CPUCachedFeature,
    bytes_to_number_of_items,
    cpu_cached_feature,
    wrap_with_cached_feature,
)
from graphfeed.storage.compaction import compact_csc_format, unique_and_compact_csc_formats
from graphfeed.storage.dataset import Dataset
from graphfeed.storage.disk_based_feature import DiskBasedFeature
from graphfeed.storage.feature import Feature, Pending, TorchBasedFeature
from graphfeed.storage.feature_cache import CPUFeatureCache
from graphfeed.storage.feature_store import BasicFeatureStore, FeatureKey, FeatureStore
from graphfeed.storage.from_coo import from_coo
from graphfeed.storage.from_dglgraph import from_dglgraph
from graphfeed.storage.gpu_cached_feature import GPUCachedFeature, gpu_cached_feature
from graphfeed.storage.gpu_feature_cache import GPUFeatureCache
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph, fused_csc_sampling_graph
from graphfeed.storage.item_set import HeteroItemSet, ItemSet
from graphfeed.storage.item_set_dict import ItemSetDict
from graphfeed.storage.load_graph import load_from_shared_memory, load_graph
from graphfeed.storage.numpy_save_aligned import numpy_save_aligned
from graphfeed.storage.on_disk_dataset import OnDiskDataset, OnDiskTask
from graphfeed.storage.preprocess import preprocess_ondisk_dataset
from graphfeed.storage.reverse_edges import add_reverse_edges
from graphfeed.storage.sampled_subgraph import (
    CSCFormatBase,
    PyGLayerData,
    PyGLayerHeteroData,
    SampledSubgraph,
    SampledSubgraphImpl,
)
from graphfeed.storage.sampling_graph import SamplingGraph
from graphfeed.storage.task import Task
from graphfeed.storage.temporal_rule import TemporalRule
from graphfeed.storage.torch_based_feature_store import OnDiskFeatureData, TorchBasedFeatureStore
from graphfeed.storage.type_names import (
    CANONICAL_ETYPE_DELIMITER,
    convert_to_hetero,
    etype_str_to_tuple,
    etype_tuple_to_str,
    revert_to_homo,
    seed_type_str_to_ntypes,
)

__all__ = [
    "CANONICAL_ETYPE_DELIMITER",
    "ORIGINAL_EDGE_ID",
    "BasicFeatureStore",
    "BuiltinDataset",
    "CPUCachedFeature",
    "CPUFeatureCache",
    "CSCFormatBase",
    "Dataset",
    "DiskBasedFeature",
    "Feature",
    "FeatureKey",
    "FeatureStore",
    "FusedCSCSamplingGraph",
    "GPUCachedFeature",
    "GPUFeatureCache",
    "HeteroItemSet",
    "ItemSet",
    "ItemSetDict",
    "OnDiskDataset",
    "OnDiskFeatureData",
    "OnDiskTask",
    "Pending",
    "PyGLayerData",
    "PyGLayerHeteroData",
    "SampledSubgraph",
    "SampledSubgraphImpl",
    "SamplingGraph",
    "Task",
    "TemporalRule",
    "TorchBasedFeature",
    "TorchBasedFeatureStore",
    "add_reverse_edges",
    "bytes_to_number_of_items",
    "compact_csc_format",
    "convert_to_hetero",
    "cpu_cached_feature",
    "datasets",
    "etype_str_to_tuple",
    "etype_tuple_to_str",
    "from_coo",
    "from_dglgraph",
    "fused_csc_sampling_graph",
    "gpu_cached_feature",
    "load_from_shared_memory",
    "load_graph",
    "numpy_save_aligned",
    "preprocess_ondisk_dataset",
    "revert_to_homo",
    "seed_type_str_to_ntypes",
    "unique_and_compact_csc_formats",
    "wrap_with_cached_feature",
]
