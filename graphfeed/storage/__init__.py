"""WHERE DATA IS STORED: graphs, features, item sets and data sets in memory, in shared memory or on disk.

Stages read these objects and never change them. The kernels that sample and gather arrays are in `graphfeed.ops`; the
loader, `graphfeed.loader`, decides where and when they run.
"""

from graphfeed.storage import datasets
from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet, Task
from graphfeed.storage.datasets.on_disk_dataset import Dataset, OnDiskDataset, OnDiskTask
from graphfeed.storage.datasets.preprocess import preprocess_ondisk_dataset
from graphfeed.storage.features.cached_feature import CPUCachedFeature, cpu_cached_feature, wrap_with_cached_feature
from graphfeed.storage.features.disk_based_feature import DiskBasedFeature
from graphfeed.storage.features.encoded_feature import EncodedFeature
from graphfeed.storage.features.feature import DeferredRead, Feature, TorchBasedFeature
from graphfeed.storage.features.feature_cache import CPUFeatureCache, bytes_to_number_of_items
from graphfeed.storage.features.feature_store import BasicFeatureStore, FeatureKey, FeatureStore
from graphfeed.storage.features.gpu_cached_feature import GPUCachedFeature, GPUFeatureCache, gpu_cached_feature
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData, TorchBasedFeatureStore
from graphfeed.storage.features.trainable_feature import TrainableFeature
from graphfeed.storage.graph import (
    CANONICAL_ETYPE_DELIMITER,
    ORIGINAL_EDGE_ID,
    CSCFormatBase,
    FusedCSCSamplingGraph,
    NegativeQuery,
    NodeWeights,
    SampledSubgraph,
    SamplingGraph,
    SamplingRequest,
    Seeds,
    TemporalQuery,
    add_reverse_edges,
    compact_csc_format,
    convert_to_hetero,
    etype_str_to_tuple,
    etype_tuple_to_str,
    from_coo,
    fused_csc_sampling_graph,
    load_from_shared_memory,
    load_graph,
    revert_to_homo,
    seed_type_str_to_ntypes,
    unique_and_compact_csc_formats,
)

__all__ = [
    "CANONICAL_ETYPE_DELIMITER", "ORIGINAL_EDGE_ID", "BasicFeatureStore", "CPUCachedFeature", "CPUFeatureCache",
    "CSCFormatBase", "Dataset", "DeferredRead", "DiskBasedFeature", "EncodedFeature", "Feature", "FeatureKey",
    "FeatureStore", "FusedCSCSamplingGraph", "GPUCachedFeature", "GPUFeatureCache", "HeteroItemSet", "ItemSet",
    "NegativeQuery", "NodeWeights", "OnDiskDataset", "OnDiskFeatureData", "OnDiskTask", "SampledSubgraph",
    "SamplingGraph", "SamplingRequest", "Seeds", "Task", "TemporalQuery", "TorchBasedFeature", "TorchBasedFeatureStore",
    "TrainableFeature", "add_reverse_edges", "bytes_to_number_of_items", "compact_csc_format", "convert_to_hetero",
    "cpu_cached_feature", "datasets", "etype_str_to_tuple", "etype_tuple_to_str", "from_coo",
    "fused_csc_sampling_graph", "gpu_cached_feature", "load_from_shared_memory", "load_graph",
    "preprocess_ondisk_dataset", "revert_to_homo", "seed_type_str_to_ntypes", "unique_and_compact_csc_formats",
    "wrap_with_cached_feature",
]  # fmt: skip
