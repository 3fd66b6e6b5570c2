"""The public names and their modules, read by type checkers and `graphfeed/__init__.py`.

Names above `__version__` are imported by `import graphfeed` and listed by `dir(graphfeed)`, those below on first use.
"""

# fmt: off

# Pipeline: stages that build mini-batches. Most have a fluent name; `dir(pipe)` lists them.
# - the base classes of stages, and where a stage may run
from graphfeed.datapipes import Datapipe as Datapipe, Transform as Transform, Placement as Placement
# - the data passed between stages, and its key
from graphfeed.datapipes import MiniBatch as MiniBatch
from graphfeed.ops import Key as Key
# - sources, which build mini-batches of items
from graphfeed.datapipes import ItemSampler as ItemSampler, DistributedItemSampler as DistributedItemSampler
from graphfeed.datapipes import IterableSource as IterableSource
# - sample a graph around the seeds
from graphfeed.datapipes import NeighborSampler as NeighborSampler, LayerNeighborSampler as LayerNeighborSampler
from graphfeed.datapipes import InSubgraphSampler as InSubgraphSampler
# - temporal sampling, limited by the timestamps of the seeds
from graphfeed.datapipes import TemporalNeighborSampler as TemporalNeighborSampler
from graphfeed.datapipes import TemporalLayerNeighborSampler as TemporalLayerNeighborSampler
# - the base class of user-defined samplers
from graphfeed.datapipes import SubgraphSampler as SubgraphSampler
# - for link prediction
from graphfeed.datapipes import NegativeSampler as NegativeSampler, UniformNegativeSampler as UniformNegativeSampler
from graphfeed.datapipes import SeedEdgesExcluder as SeedEdgesExcluder
# - read features, and move mini-batches to a device
from graphfeed.datapipes import FeatureFetcher as FeatureFetcher, CopyTo as CopyTo
# - apply a function to each mini-batch, or buffer some
from graphfeed.datapipes import MiniBatchTransformer as MiniBatchTransformer, Bufferer as Bufferer
# - look at a pipeline and change it
from graphfeed.datapipes import find as find, replace as replace, traverse as traverse, to_graph as to_graph

# Graph: graphs that can be sampled.
# - the interface of graphs, and a graph in memory
from graphfeed.storage import SamplingGraph as SamplingGraph, FusedCSCSamplingGraph as FusedCSCSamplingGraph
# - create a graph
from graphfeed.storage import from_coo as from_coo, fused_csc_sampling_graph as fused_csc_sampling_graph
from graphfeed.storage import load_graph as load_graph, add_reverse_edges as add_reverse_edges
# - the result of one hop of sampling
from graphfeed.storage import SampledSubgraph as SampledSubgraph, CSCFormatBase as CSCFormatBase
# - options of neighbour sampling
from graphfeed.storage import SamplingRequest as SamplingRequest

# Features: data of nodes and edges.
# - one feature: the interface, in memory, on disk
from graphfeed.storage import Feature as Feature, TorchBasedFeature as TorchBasedFeature
from graphfeed.storage import DiskBasedFeature as DiskBasedFeature
# - with a cache
from graphfeed.storage import CPUCachedFeature as CPUCachedFeature, GPUCachedFeature as GPUCachedFeature
from graphfeed.storage import cpu_cached_feature as cpu_cached_feature, gpu_cached_feature as gpu_cached_feature
# - features by key
from graphfeed.storage import FeatureStore as FeatureStore, FeatureKey as FeatureKey
from graphfeed.storage import BasicFeatureStore as BasicFeatureStore, TorchBasedFeatureStore as TorchBasedFeatureStore

# Data: training data.
# - seeds, labels and so on, by position
from graphfeed.storage import ItemSet as ItemSet, HeteroItemSet as HeteroItemSet
# - a graph, its features and its tasks
from graphfeed.storage import Dataset as Dataset, OnDiskDataset as OnDiskDataset, Task as Task, OnDiskTask as OnDiskTask
from graphfeed.storage import preprocess_ondisk_dataset as preprocess_ondisk_dataset
# - data sets that come with the package
from graphfeed.storage import datasets as datasets

# Loader: where and when mini-batches are built.
# - runs a pipeline with threads, processes and a GPU
from graphfeed.loader import DataLoader as DataLoader
# - the training, validation and test loaders of a task
from graphfeed.loader import loaders as loaders
# - worker processes of a loader
from graphfeed.loader import ProcessExecutor as ProcessExecutor, WorkerLostError as WorkerLostError
# - the random seed of everything without its own seed
from graphfeed.ops import seed as seed
# - compile all kernels in advance, for example for a container image
from graphfeed.loader import warm_up as warm_up

__version__: str

# Optional packages, and names that few programs need or that come from other libraries.
from graphfeed import channels as channels, distributed as distributed, ingest as ingest, interop as interop, pyg as pyg
from graphfeed.channels import ChannelBase as ChannelBase, Closed as Closed, EndOfEpoch as EndOfEpoch
from graphfeed.channels import MpChannel as MpChannel, PeerError as PeerError, QueueTimeoutError as QueueTimeoutError
from graphfeed.channels import SampleMessage as SampleMessage, SamplerPool as SamplerPool, ShmChannel as ShmChannel
from graphfeed.cuda_report import cuda_check as cuda_check
from graphfeed.datapipes import BudgetSampler as BudgetSampler, CompactPerLayer as CompactPerLayer
from graphfeed.datapipes import FanoutSampler as FanoutSampler, ItemNameWarning as ItemNameWarning
from graphfeed.datapipes import ListedPairSampler as ListedPairSampler, PageRankSampler as PageRankSampler
from graphfeed.datapipes import PairNegativeSampler as PairNegativeSampler, PipelineGraph as PipelineGraph
from graphfeed.datapipes import SamplePerLayer as SamplePerLayer, SkipGramPairs as SkipGramPairs
from graphfeed.datapipes import SubgraphInducer as SubgraphInducer, TemporalNegativeSampler as TemporalNegativeSampler
from graphfeed.datapipes import TemporalSampler as TemporalSampler, ToMatrix as ToMatrix, VisitSampler as VisitSampler
from graphfeed.datapipes import WalkSampler as WalkSampler, exclude_seed_edges as exclude_seed_edges
from graphfeed.datapipes import minibatcher_default as minibatcher_default, with_negatives as with_negatives
from graphfeed.distributed import CooperativeConv as CooperativeConv, CooperativeConvFunction as CooperativeConvFunction
from graphfeed.distributed import DistContext as DistContext, DistLinkNeighborLoader as DistLinkNeighborLoader
from graphfeed.distributed import DistLoader as DistLoader, DistNeighborLoader as DistNeighborLoader
from graphfeed.distributed import DistNeighborSampler as DistNeighborSampler, DistRole as DistRole
from graphfeed.distributed import GraphPart as GraphPart, LocalFeatureStore as LocalFeatureStore
from graphfeed.distributed import LocalGraphStore as LocalGraphStore, PartBook as PartBook
from graphfeed.distributed import PartitionReport as PartitionReport, PartitionedFeature as PartitionedFeature
from graphfeed.distributed import PartitionedGraph as PartitionedGraph, Partitioner as Partitioner, Peers as Peers
from graphfeed.distributed import RankLostError as RankLostError, RemoteReceivingChannel as RemoteReceivingChannel
from graphfeed.distributed import RendezvousAddress as RendezvousAddress
from graphfeed.distributed import SamplerReceiver as SamplerReceiver, SamplerSender as SamplerSender
from graphfeed.distributed import SamplingServer as SamplingServer, SamplingServers as SamplingServers
from graphfeed.distributed import StoredPart as StoredPart
from graphfeed.distributed import assign_nodes as assign_nodes, cut_graph as cut_graph, cut_rows as cut_rows
from graphfeed.distributed import open_part as open_part, read_graphlearn as read_graphlearn
from graphfeed.distributed import report_partition as report_partition
from graphfeed.distributed import write_partition as write_partition
from graphfeed.ingest import FixedLenFeature as FixedLenFeature, LoadedGraphTensors as LoadedGraphTensors
from graphfeed.ingest import SerializedGraphMetadata as SerializedGraphMetadata
from graphfeed.ingest import SerializedTFRecordInfo as SerializedTFRecordInfo, TFDatasetOptions as TFDatasetOptions
from graphfeed.ingest import TFRecordDataLoader as TFRecordDataLoader
from graphfeed.ingest import load_torch_tensors_from_tf_record as load_torch_tensors_from_tf_record
from graphfeed.ingest import read_tfrecords as read_tfrecords, write_tfrecords as write_tfrecords
from graphfeed.interop.dgl import from_dglgraph as from_dglgraph
from graphfeed.interop.graphbolt import BuiltinDataset as BuiltinDataset, EndMarker as EndMarker
from graphfeed.interop.graphbolt import FeatureFetcherStartMarker as FeatureFetcherStartMarker, GBWarning as GBWarning
from graphfeed.interop.graphbolt import ItemSetDict as ItemSetDict, PrefetcherIterDataPipe as PrefetcherIterDataPipe
from graphfeed.interop.graphbolt import SampledSubgraphImpl as SampledSubgraphImpl, Waiter as Waiter
from graphfeed.interop.graphbolt import datapipe_graph_to_adjlist as datapipe_graph_to_adjlist, find_dps as find_dps
from graphfeed.interop.graphbolt import functional_datapipe as functional_datapipe
from graphfeed.interop.graphbolt import numpy_save_aligned as numpy_save_aligned, replace_dp as replace_dp
from graphfeed.interop.graphbolt import traverse_dps as traverse_dps
from graphfeed.interop.ogb import read_ogb as read_ogb
from graphfeed.ops import draw_key as draw_key, expand_indptr as expand_indptr, index_select as index_select
from graphfeed.ops import indptr_edge_ids as indptr_edge_ids, isin as isin, unique_and_compact as unique_and_compact
from graphfeed.pyg import PyGLayerData as PyGLayerData, PyGLayerHeteroData as PyGLayerHeteroData, ToPyGData as ToPyGData
from graphfeed.pyg import from_pyg as from_pyg, to_pyg as to_pyg
from graphfeed.storage import CANONICAL_ETYPE_DELIMITER as CANONICAL_ETYPE_DELIMITER, CPUFeatureCache as CPUFeatureCache
from graphfeed.storage import EncodedFeature as EncodedFeature, GPUFeatureCache as GPUFeatureCache
from graphfeed.storage import NegativeQuery as NegativeQuery
from graphfeed.storage import NodeWeights as NodeWeights, ORIGINAL_EDGE_ID as ORIGINAL_EDGE_ID
from graphfeed.storage import OnDiskFeatureData as OnDiskFeatureData, Seeds as Seeds, TemporalQuery as TemporalQuery
from graphfeed.storage import TrainableFeature as TrainableFeature
from graphfeed.storage import bytes_to_number_of_items as bytes_to_number_of_items
from graphfeed.storage import compact_csc_format as compact_csc_format, convert_to_hetero as convert_to_hetero
from graphfeed.storage import etype_str_to_tuple as etype_str_to_tuple, etype_tuple_to_str as etype_tuple_to_str
from graphfeed.storage import load_from_shared_memory as load_from_shared_memory, revert_to_homo as revert_to_homo
from graphfeed.storage import seed_type_str_to_ntypes as seed_type_str_to_ntypes
from graphfeed.storage import unique_and_compact_csc_formats as unique_and_compact_csc_formats
from graphfeed.storage import wrap_with_cached_feature as wrap_with_cached_feature

_FOUND_IN: dict[str, str]
