"""Partitioned graphs: writing, opening and sampling them; and servers that produce mini-batches for other machines.

Users see global ids only, so mini-batches do not depend on how a graph is partitioned. The stages are those of
`graphfeed.datapipes`, as for any other graph. Graphs that one machine stores belong to `graphfeed.storage`.
"""

import importlib
import typing
import warnings

from graphfeed.distributed.cooperative import CooperativeConv, CooperativeConvFunction, JointFetcher, JointSampler
from graphfeed.distributed.graph_part import GraphPart, cut_graph, cut_rows
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition import (
    PartitionReport,
    StoredPart,
    open_part,
    report_partition,
    write_partition,
)
from graphfeed.distributed.partitioned_feature import PartitionedFeature
from graphfeed.distributed.partitioned_graph import PartitionedGraph
from graphfeed.distributed.partitioned_trainable_feature import PartitionedTrainableFeature
from graphfeed.distributed.pyg.dist_data import DistContext, DistRole
from graphfeed.distributed.pyg.dist_loaders import DistLinkNeighborLoader, DistLoader, DistNeighborLoader
from graphfeed.distributed.pyg.dist_neighbor_sampler import DistNeighborSampler
from graphfeed.distributed.pyg.partitioner import Partitioner
from graphfeed.distributed.ranks.membership.heartbeat import RankLostError
from graphfeed.distributed.ranks.membership.rendezvous import RendezvousAddress
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.distributed.servers import (
    RemoteReceivingChannel,
    SamplerReceiver,
    SamplerSender,
    SamplingServer,
    SamplingServers,
)
from graphfeed.interop import WholeGraph, read_graphlearn
from graphfeed.storage.graph import assign_nodes, ldg_memory

if typing.TYPE_CHECKING:
    from graphfeed.distributed.pyg.local_feature_store import LocalFeatureStore as LocalFeatureStore
    from graphfeed.distributed.pyg.local_graph_store import LocalGraphStore as LocalGraphStore
else:

    def __getattr__(name: str) -> typing.Any:
        if name == "MeetingPoint":
            warnings.warn("MeetingPoint is now called RendezvousAddress", DeprecationWarning, stacklevel=2)
            return RendezvousAddress
        # They derive from classes of PyG, so their modules are imported on first use.
        modules = {"LocalFeatureStore": "local_feature_store", "LocalGraphStore": "local_graph_store"}
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"graphfeed.distributed.pyg.{modules[name]}"), name)


__all__ = [
    "CooperativeConv", "CooperativeConvFunction", "DistContext", "DistLinkNeighborLoader", "DistLoader",
    "DistNeighborLoader", "DistNeighborSampler", "DistRole", "GraphPart", "JointFetcher", "JointSampler",
    "LocalFeatureStore", "LocalGraphStore", "PartBook", "PartitionReport", "PartitionedFeature", "PartitionedGraph",
    "PartitionedTrainableFeature", "Partitioner", "Peers", "RankLostError", "RemoteReceivingChannel",
    "RendezvousAddress", "SamplerReceiver", "SamplerSender", "SamplingServer", "SamplingServers", "StoredPart",
    "WholeGraph", "assign_nodes", "cut_graph", "cut_rows", "ldg_memory", "open_part", "read_graphlearn",
    "report_partition", "write_partition",
]  # fmt: skip
