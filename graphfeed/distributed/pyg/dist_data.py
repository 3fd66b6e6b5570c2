"""A partitioned graph and its features, built from the two stores of a part."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from graphfeed.distributed.partitioned_graph import PartitionedGraph
from graphfeed.distributed.pyg.store_attributes import EDGES, domain_of, group_of, type_of
from graphfeed.distributed.ranks.membership.rendezvous import RendezvousAddress
from graphfeed.distributed.ranks.peers import Peers, peers_at, shared_peers
from graphfeed.ops.arguments import checked
from graphfeed.pyg.data import FLAT, DataFeatures, Tables
from graphfeed.storage import BasicFeatureStore, Feature, TorchBasedFeature
from graphfeed.storage.graph import to_type_dict

if TYPE_CHECKING:
    from graphfeed.distributed.pyg.local_feature_store import LocalFeatureStore
    from graphfeed.distributed.pyg.local_graph_store import LocalGraphStore


class DistRole(Enum):
    """The role of a process. There is only one: it stores a part, samples, and trains."""

    WORKER = 1


@checked
@dataclass
class DistContext:
    """The rank of this process, as in `torch_geometric.distributed`.

    Example:
        >>> context = DistContext(rank=0, global_rank=0, world_size=2, global_world_size=2, group_name="sage")
        >>> context.worker_name
        'sage-0'
    """

    rank: int
    """Number of this process, and of the part that it stores."""
    global_rank: int
    """The same as `rank`, because there is one role."""
    world_size: int
    """Number of processes, and of parts."""
    global_world_size: int
    """The same as `world_size`."""
    group_name: str
    """Name of the job. It distinguishes the job from others at the same address, and is part of `worker_name`."""
    role: DistRole = DistRole.WORKER

    @property
    def worker_name(self) -> str:
        """Name of the group and rank of this process."""
        return f"{self.group_name}-{self.rank}"


class DistData:
    """The two stores of a part, connected to those of other ranks; `time_attr` names times of nodes or edges."""

    # The constructor doesn't wait for other ranks. All ranks must create their objects in the same order.
    def __init__(
        self, stores: tuple["LocalFeatureStore", "LocalGraphStore"], peers: Peers, time_attr: str | None = None
    ) -> None:
        self.feature_store, self.graph_store = stores
        for attr in self.graph_store.get_all_edge_attrs():
            group, ids = attr.edge_type or EDGES, self.graph_store.get_edge_id(attr)
            if ids is not None and self.feature_store.get_global_id(group) is None:
                self.feature_store.put_global_id(ids, group)
        self.part = self.graph_store.graph_part(self.feature_store, time_attr)
        self.graph = PartitionedGraph(self.part, peers)
        # From now on, `lookup_features` of the feature store reads from these ranks.
        self.feature_store.set_rpc_router(peers)
        self.features = self.feature_store.partitioned_features(peers)
        self.peers = peers
        columns = self.part.columns
        self.node_time = time_attr if time_attr in columns.node_attributes else None
        self.edge_time = time_attr if self.node_time is None else None

    @property
    def has_edge_ids(self) -> bool:
        # Whether ids are known to all ranks; a store numbers other edges itself.
        attrs = self.graph_store.get_all_edge_attrs()
        return all(self.graph_store.get_edge_id(attr) is not None for attr in attrs)

    @property
    def tables(self) -> Tables:
        # The node counts and edge types, which are enough to parse seeds.
        sizes = to_type_dict(self.graph.num_nodes)
        nodes = {node_type: SimpleNamespace(num_nodes=size) for node_type, size in sizes.items()}
        return Tables(nodes, dict.fromkeys(map(group_of, self.graph.edge_types)))

    def own_nodes(self, node_type: str | None = None) -> torch.Tensor:
        return self.part.book_of(node_type).ids_of(self.part.number)

    def own_edges(self, edge_type: tuple[str, str, str] | None = None) -> torch.Tensor:
        edges: torch.Tensor = self.graph_store.get_edge_index(edge_type=edge_type, layout="coo")
        # An edge belongs to the rank of its destination.
        book = self.part.book_of(edge_type and edge_type[2])
        return edges[:, book.owners_of(edges[1]) == self.part.number]

    def data_features(self, input_type: Any = None) -> DataFeatures:
        """Return all features, with `labels` of the feature store as `y`."""
        features: dict[tuple[str, str | None, str], Feature] = {}
        values_of = {}
        for attr in self.feature_store.get_all_tensor_attrs():
            key = (domain_of(attr.group_name), type_of(attr.group_name), str(attr.attr_name))
            if key in self.features:
                features[key], values_of[key] = self.features[key], self.feature_store.get_tensor(attr)
        labels = self.feature_store.labels
        # Unless they are a dict, the labels belong to the type of the seeds.
        by_type = labels if isinstance(labels, Mapping) else {} if labels is None else {input_type: labels}
        for group, values in by_type.items():
            key = (domain_of(group), type_of(group), "y")
            features[key], values_of[key] = TorchBasedFeature(values if values.dim() > 1 else values[:, None]), values
        names: dict[str, dict[str | None, list[str]]] = {
            "node": {node_type: [] for node_type in to_type_dict(self.graph.num_nodes)},
            "edge": {edge_type: [] for edge_type in self.graph.edge_types} or {None: []},
        }
        for domain, type_name, name in features:
            names[domain][type_name].append(name)
        dims = {key[1:]: FLAT for key, values in values_of.items() if values.dim() == 1}
        return DataFeatures(BasicFeatureStore(features), names["node"], names["edge"], dims=dims)


def check_rank(context: DistContext, graph: "LocalGraphStore") -> None:
    if (context.rank, context.world_size) != (graph.partition_idx, graph.num_partitions):
        raise ValueError(
            f"current_ctx is rank {context.rank} of {context.world_size}, but the stores have part "
            f"{graph.partition_idx} of {graph.num_partitions}; start one rank per part, and give rank i part i"
        )


def find_peers(
    context: DistContext,
    master_addr: str | None,
    master_port: int | str | None,
    timeout: float,
    frozen_timeout: float | None = None,
) -> Peers:
    """Return the ranks of a rendezvous address, or without one, those of the process group."""
    if context.world_size == 1:
        return peers_at(RendezvousAddress("", 0, 0, 1), timeout, frozen_timeout)
    if master_addr is None and master_port is None and distributed.is_initialized():
        return shared_peers(frozen_timeout)
    # Without a process group, ranks connect at the address in the environment, one port above that of the launcher.
    address = os.environ.get("MASTER_ADDR") if master_addr is None else master_addr
    port = master_port
    if port is None and "MASTER_PORT" in os.environ:
        port = int(os.environ["MASTER_PORT"]) + 1
    for name, value in (("master_addr", address), ("master_port", port)):
        if value is None:
            raise ValueError(
                f"{name} is missing, the address of rank 0; pass it, or set {name.upper()} in the environment, or call "
                "torch.distributed.init_process_group first"
            )
    meeting = RendezvousAddress(str(address), int(str(port)), context.rank, context.world_size, context.group_name)
    return peers_at(meeting, timeout, frozen_timeout)
