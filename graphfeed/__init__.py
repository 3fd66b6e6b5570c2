"""graphfeed feeds mini-batches of large graphs to models.

A pipeline of stages says what a mini-batch is; the loader decides where and when it is made.
"""

from graphfeed.datapipes import (
    CopyTo,
    Datapipe,
    FeatureFetcher,
    ItemSampler,
    IterableSource,
    MiniBatch,
    MiniBatchTransformer,
    NeighborSampler,
    Process,
    Transform,
    find,
    minibatcher_default,
    replace,
    traverse,
)
from graphfeed.loader import DataLoader
from graphfeed.ops import Key, expand_indptr
from graphfeed.storage import (
    BasicFeatureStore,
    CSCFormatBase,
    Dataset,
    DiskBasedFeature,
    Feature,
    FeatureStore,
    FusedCSCSamplingGraph,
    HeteroItemSet,
    ItemSet,
    OnDiskFeatureData,
    SampledSubgraph,
    SamplingGraph,
    TorchBasedFeature,
    TorchBasedFeatureStore,
    datasets,
    from_coo,
    fused_csc_sampling_graph,
)

__version__ = "0.1.0"

__all__ = [
    "BasicFeatureStore",
    "CSCFormatBase",
    "CopyTo",
    "DataLoader",
    "Datapipe",
    "Dataset",
    "DiskBasedFeature",
    "Feature",
    "FeatureFetcher",
    "FeatureStore",
    "FusedCSCSamplingGraph",
    "HeteroItemSet",
    "ItemSampler",
    "ItemSet",
    "IterableSource",
    "Key",
    "MiniBatch",
    "MiniBatchTransformer",
    "NeighborSampler",
    "OnDiskFeatureData",
    "Process",
    "SampledSubgraph",
    "SamplingGraph",
    "TorchBasedFeature",
    "TorchBasedFeatureStore",
    "Transform",
    "__version__",
    "datasets",
    "expand_indptr",
    "find",
    "from_coo",
    "fused_csc_sampling_graph",
    "minibatcher_default",
    "replace",
    "traverse",
]
