"""graphfeed feeds mini-batches of large graphs to models.

You chain stages into a pipeline that says what a mini-batch is. The loader decides where and when each stage runs. The
public names are here; what they do is in the folders below, and ARCHITECTURE.md says what belongs to which.

    >>> import torch
    >>> import graphfeed as gf
    >>> graph = gf.from_coo(torch.tensor([[1, 2, 0], [0, 0, 1]]), num_nodes=3)
    >>> pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=2, shuffle=True)
    >>> pipe = pipe.sample_neighbor(graph, fanouts=[5, 5])
    >>> with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
    ...     [minibatch.num_layers() for minibatch in loader]
    [2, 2]

Pipeline: what a mini-batch is. Most stages have a fluent name; `dir(pipe)` lists them.
    Datapipe, Transform, Placement: the base classes of stages, and where a stage may run
    MiniBatch, Key: what flows between stages, and which mini-batch it is
    ItemSampler, DistributedItemSampler, IterableSource: sources, which make mini-batches of items
    NeighborSampler, LayerNeighborSampler, InSubgraphSampler: sample a graph around the seeds
    TemporalNeighborSampler, TemporalLayerNeighborSampler: sample what existed before a seed's time
    SubgraphSampler: the base class of a sampler of your own
    NegativeSampler, UniformNegativeSampler, SeedEdgesExcluder: for link prediction
    FeatureFetcher, CopyTo: read features, and move mini-batches to a device
    MiniBatchTransformer, Bufferer: apply a function to each mini-batch, and hold some back
    find, replace, traverse, to_graph: look at a pipeline and change it

Graph: what is sampled.
    SamplingGraph, FusedCSCSamplingGraph: the interface of graphs, and a graph in memory
    from_coo, fused_csc_sampling_graph, load_graph, add_reverse_edges: make a graph
    SampledSubgraph, CSCFormatBase: the result of one hop of sampling
    SamplingRequest, TemporalQuery: how neighbours are sampled, and at which time

Features: what is known about nodes and edges.
    Feature, TorchBasedFeature, DiskBasedFeature: one feature: the interface, in memory, on disk
    CPUCachedFeature, GPUCachedFeature, cpu_cached_feature, gpu_cached_feature: with a cache in front of it
    FeatureStore, FeatureKey, BasicFeatureStore, TorchBasedFeatureStore: features by key

Data: what to train on.
    ItemSet, HeteroItemSet: seeds, labels and so on, by position
    Dataset, OnDiskDataset, Task, OnDiskTask, preprocess_ondisk_dataset: a graph, its features and its tasks
    datasets: data sets that come with the package

Loader: where and when mini-batches are made.
    DataLoader: runs a pipeline with threads, processes and a GPU
    ProcessExecutor, WorkerLostError: worker processes of a loader
    seed: fixes the randomness of everything that has no seed of its own
    warm_up: compiles all kernels ahead, as for a container image
"""

import difflib
import importlib
import typing

from graphfeed.datapipes import (
    Bufferer,
    CopyTo,
    Datapipe,
    DistributedItemSampler,
    FeatureFetcher,
    InSubgraphSampler,
    ItemSampler,
    IterableSource,
    LayerNeighborSampler,
    MiniBatch,
    MiniBatchTransformer,
    NegativeSampler,
    NeighborSampler,
    Placement,
    SeedEdgesExcluder,
    SubgraphSampler,
    TemporalLayerNeighborSampler,
    TemporalNeighborSampler,
    Transform,
    UniformNegativeSampler,
    find,
    replace,
    to_graph,
    traverse,
)
from graphfeed.loader import DataLoader, ProcessExecutor, WorkerLostError, warm_up
from graphfeed.ops import Key, seed
from graphfeed.ops.process import entry_points
from graphfeed.storage import (
    BasicFeatureStore,
    CPUCachedFeature,
    CSCFormatBase,
    Dataset,
    DiskBasedFeature,
    Feature,
    FeatureKey,
    FeatureStore,
    FusedCSCSamplingGraph,
    GPUCachedFeature,
    HeteroItemSet,
    ItemSet,
    OnDiskDataset,
    OnDiskTask,
    SampledSubgraph,
    SamplingGraph,
    SamplingRequest,
    Task,
    TemporalQuery,
    TorchBasedFeature,
    TorchBasedFeatureStore,
    add_reverse_edges,
    cpu_cached_feature,
    datasets,
    from_coo,
    fused_csc_sampling_graph,
    gpu_cached_feature,
    load_graph,
    preprocess_ondisk_dataset,
)

__version__ = "0.1.0"

__all__ = [
    "BasicFeatureStore",
    "Bufferer",
    "CPUCachedFeature",
    "CSCFormatBase",
    "CopyTo",
    "DataLoader",
    "Datapipe",
    "Dataset",
    "DiskBasedFeature",
    "DistributedItemSampler",
    "Feature",
    "FeatureFetcher",
    "FeatureKey",
    "FeatureStore",
    "FusedCSCSamplingGraph",
    "GPUCachedFeature",
    "HeteroItemSet",
    "InSubgraphSampler",
    "ItemSampler",
    "ItemSet",
    "IterableSource",
    "Key",
    "LayerNeighborSampler",
    "MiniBatch",
    "MiniBatchTransformer",
    "NegativeSampler",
    "NeighborSampler",
    "OnDiskDataset",
    "OnDiskTask",
    "Placement",
    "ProcessExecutor",
    "SampledSubgraph",
    "SamplingGraph",
    "SamplingRequest",
    "SeedEdgesExcluder",
    "SubgraphSampler",
    "Task",
    "TemporalLayerNeighborSampler",
    "TemporalNeighborSampler",
    "TemporalQuery",
    "TorchBasedFeature",
    "TorchBasedFeatureStore",
    "Transform",
    "UniformNegativeSampler",
    "WorkerLostError",
    "__version__",
    "add_reverse_edges",
    "cpu_cached_feature",
    "datasets",
    "find",
    "from_coo",
    "fused_csc_sampling_graph",
    "gpu_cached_feature",
    "load_graph",
    "preprocess_ondisk_dataset",
    "replace",
    "seed",
    "to_graph",
    "traverse",
    "warm_up",
]

# Names that most programs do not need, and those of other libraries: found on first use, and not listed by dir().
_NAMES = {
    "graphfeed.channels": """ChannelBase Closed EndOfEpoch MpChannel PeerError QueueTimeoutError SampleMessage
        SamplerPool ShmChannel""",
    "graphfeed.cuda_report": "cuda_check",
    "graphfeed.datapipes": """BudgetSampler CompactPerLayer FanoutSampler ItemNameWarning PairNegativeSampler
        PipelineGraph SamplePerLayer SubgraphInducer TemporalSampler exclude_seed_edges minibatcher_default
        with_negatives""",
    "graphfeed.distributed": """CooperativeConv CooperativeConvFunction DistContext DistLinkNeighborLoader DistLoader
        DistNeighborLoader DistNeighborSampler DistRole GraphPart HaloPlan LocalFeatureStore
        LocalGraphStore MeetingPoint PartBook PartitionReport PartitionedFeature PartitionedGraph Partitioner Peers
        RankLostError RemoteReceivingChannel SamplerReceiver SamplerSender SamplingServer StoredPart assign_nodes
        cut_graph cut_rows open_part plan_halo read_graphlearn read_graphlearn_caches report_partition
        write_partition""",
    "graphfeed.ingest": """FixedLenFeature LoadedGraphTensors SerializedGraphMetadata SerializedTFRecordInfo
        TFDatasetOptions TFRecordDataLoader load_torch_tensors_from_tf_record read_tfrecords write_tfrecords""",
    "graphfeed.interop.dgl": "from_dglgraph",
    "graphfeed.interop.graphbolt": """BuiltinDataset EndMarker FeatureFetcherStartMarker GBWarning ItemSetDict
        PrefetcherIterDataPipe SampledSubgraphImpl Waiter datapipe_graph_to_adjlist find_dps functional_datapipe
        numpy_save_aligned replace_dp traverse_dps""",
    "graphfeed.interop.networkx": "from_networkx to_networkx",
    "graphfeed.interop.ogb": "read_ogb",
    "graphfeed.interop.scipy": "from_scipy to_scipy",
    "graphfeed.ops": "draw_key expand_indptr index_select indptr_edge_ids isin unique_and_compact",
    "graphfeed.pyg": "PyGLayerData PyGLayerHeteroData ToPyGData from_pyg to_pyg",
    "graphfeed.storage": """CANONICAL_ETYPE_DELIMITER CPUFeatureCache GPUFeatureCache NegativeQuery NodeWeights
        ORIGINAL_EDGE_ID OnDiskFeatureData bytes_to_number_of_items compact_csc_format convert_to_hetero
        etype_str_to_tuple etype_tuple_to_str load_from_shared_memory revert_to_homo seed_type_str_to_ntypes
        unique_and_compact_csc_formats wrap_with_cached_feature""",
}
_FOUND_IN = {name: module for module, names in _NAMES.items() for name in names.split()}

# What optional rooms add to those below them, which know the names on the left alone.
entry_points.ENTRY_POINTS.update(
    converters={
        "as_stage": "graphfeed.interop.torch_pipes:as_stage",
        "compute_blocks": "graphfeed.interop.dgl:compute_blocks",
        "legacy_names": "graphfeed.interop.graphbolt:translate",
        "to_pyg_data": "graphfeed.pyg.data.minibatch_data:make_data",
    },
    executors={"servers": "graphfeed.distributed.servers.remote_executor:RemoteExecutor"},
    rules={"cooperate": "graphfeed.distributed.cooperative.cooperate:cooperate"},
    stages={
        "mark_end": "graphfeed.interop.graphbolt:EndMarker",
        "mark_feature_fetcher_start": "graphfeed.interop.graphbolt:FeatureFetcherStartMarker",
        "prefetch": "graphfeed.interop.graphbolt:PrefetcherIterDataPipe",
        "to_pyg_data": "graphfeed.pyg.stages.to_pyg_data:ToPyGData",
        "wait": "graphfeed.interop.graphbolt:Waiter",
    },
)

if typing.TYPE_CHECKING:
    from graphfeed import channels as channels
    from graphfeed import distributed as distributed
    from graphfeed import ingest as ingest
    from graphfeed import interop as interop
    from graphfeed import pyg as pyg
    from graphfeed.channels import *
    from graphfeed.cuda_report import cuda_check as cuda_check
    from graphfeed.datapipes import *
    from graphfeed.distributed import CooperativeConv as CooperativeConv
    from graphfeed.distributed import CooperativeConvFunction as CooperativeConvFunction
    from graphfeed.distributed import DistContext as DistContext
    from graphfeed.distributed import DistLinkNeighborLoader as DistLinkNeighborLoader
    from graphfeed.distributed import DistLoader as DistLoader
    from graphfeed.distributed import DistNeighborLoader as DistNeighborLoader
    from graphfeed.distributed import DistNeighborSampler as DistNeighborSampler
    from graphfeed.distributed import DistRole as DistRole
    from graphfeed.distributed import GraphPart as GraphPart
    from graphfeed.distributed import HaloPlan as HaloPlan
    from graphfeed.distributed import LocalFeatureStore as LocalFeatureStore
    from graphfeed.distributed import LocalGraphStore as LocalGraphStore
    from graphfeed.distributed import MeetingPoint as MeetingPoint
    from graphfeed.distributed import PartBook as PartBook
    from graphfeed.distributed import PartitionedFeature as PartitionedFeature
    from graphfeed.distributed import PartitionedGraph as PartitionedGraph
    from graphfeed.distributed import Partitioner as Partitioner
    from graphfeed.distributed import PartitionReport as PartitionReport
    from graphfeed.distributed import Peers as Peers
    from graphfeed.distributed import RankLostError as RankLostError
    from graphfeed.distributed import RemoteReceivingChannel as RemoteReceivingChannel
    from graphfeed.distributed import SamplerReceiver as SamplerReceiver
    from graphfeed.distributed import SamplerSender as SamplerSender
    from graphfeed.distributed import SamplingServer as SamplingServer
    from graphfeed.distributed import StoredPart as StoredPart
    from graphfeed.distributed import assign_nodes as assign_nodes
    from graphfeed.distributed import cut_graph as cut_graph
    from graphfeed.distributed import cut_rows as cut_rows
    from graphfeed.distributed import open_part as open_part
    from graphfeed.distributed import plan_halo as plan_halo
    from graphfeed.distributed import read_graphlearn as read_graphlearn
    from graphfeed.distributed import read_graphlearn_caches as read_graphlearn_caches
    from graphfeed.distributed import report_partition as report_partition
    from graphfeed.distributed import write_partition as write_partition
    from graphfeed.ingest import FixedLenFeature as FixedLenFeature
    from graphfeed.ingest import LoadedGraphTensors as LoadedGraphTensors
    from graphfeed.ingest import SerializedGraphMetadata as SerializedGraphMetadata
    from graphfeed.ingest import SerializedTFRecordInfo as SerializedTFRecordInfo
    from graphfeed.ingest import TFDatasetOptions as TFDatasetOptions
    from graphfeed.ingest import TFRecordDataLoader as TFRecordDataLoader
    from graphfeed.ingest import load_torch_tensors_from_tf_record as load_torch_tensors_from_tf_record
    from graphfeed.ingest.tfrecord.tfrecord_reader import read_tfrecords as read_tfrecords
    from graphfeed.ingest.tfrecord.tfrecord_writer import write_tfrecords as write_tfrecords
    from graphfeed.interop.dgl import *
    from graphfeed.interop.graphbolt import *
    from graphfeed.interop.networkx import *
    from graphfeed.interop.ogb import *
    from graphfeed.interop.scipy import *
    from graphfeed.ops import draw_key as draw_key
    from graphfeed.ops import expand_indptr as expand_indptr
    from graphfeed.ops import index_select as index_select
    from graphfeed.ops import indptr_edge_ids as indptr_edge_ids
    from graphfeed.ops import isin as isin
    from graphfeed.ops import unique_and_compact as unique_and_compact
    from graphfeed.pyg import PyGLayerData as PyGLayerData
    from graphfeed.pyg import PyGLayerHeteroData as PyGLayerHeteroData
    from graphfeed.pyg import ToPyGData as ToPyGData
    from graphfeed.pyg import from_pyg as from_pyg
    from graphfeed.pyg import to_pyg as to_pyg
    from graphfeed.storage import *
else:
    # Hidden from type checkers: they would take any name for one that is there.
    def __getattr__(name: str) -> typing.Any:
        if name in _FOUND_IN:
            return getattr(importlib.import_module(_FOUND_IN[name]), name)
        if name in ("channels", "distributed", "ingest", "interop", "pyg"):
            return importlib.import_module(f"graphfeed.{name}")
        if name.startswith("_"):  # asked for by `inspect` and its like, which try many and read no text
            raise AttributeError(f"module 'graphfeed' has no attribute {name!r}")
        graphbolt = importlib.import_module("graphfeed.interop.graphbolt")
        replaced = graphbolt.REPLACED | graphbolt.FORMER
        near = difflib.get_close_matches(name, [*__all__, *_FOUND_IN])
        hint = f"; {replaced[name]}" if name in replaced else f"; did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(f"module 'graphfeed' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return __all__
