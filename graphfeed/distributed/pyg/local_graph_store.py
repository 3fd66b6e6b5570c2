"""The edges of one part, with the interface of `torch_geometric.distributed`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition.reader import open_part
from graphfeed.distributed.pyg.local_feature_store import PYG, LocalFeatureStore
from graphfeed.distributed.pyg.partition_pyg_layout import EDGE_TIME, TIME
from graphfeed.distributed.pyg.store_attributes import EdgeType, Maps, group_of, read_info, type_of
from graphfeed.ops import ALWAYS
from graphfeed.ops.arguments import check_length, checked
from graphfeed.pyg.data import StoreEdges, as_time_column, check_index_tensor, fill_missing, make_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, edge_lists, ends_of, from_type_dict, to_type_dict

Key = tuple[EdgeType | None, str]


class LocalGraphStore(PYG.GraphStore):  # type: ignore[misc]
    """The edges of one part, as in `torch_geometric.distributed`.

    Edges have an edge type, None without types, and a layout. The ids of edges and of their endpoints are global; with
    types, they count within their type. This is a `torch_geometric.data.GraphStore`.

    Example:
        >>> store = LocalGraphStore.from_data(torch.arange(3), torch.tensor([[0, 2, 1], [1, 1, 0]]), num_nodes=3)
        >>> store.get_edge_index(edge_type=None, layout="coo").tolist()
        [[1, 0, 2], [0, 1, 1]]
    """

    def __init__(self) -> None:
        super().__init__()
        self._edge_index: dict[Key, torch.Tensor] = {}
        self._edge_attr: dict[Key, Any] = {}
        self._edge_id: dict[Key, torch.Tensor] = {}
        self._order: dict[Key, torch.Tensor] = {}
        self._opened: GraphPart | None = None
        self._parts: dict[str | None, GraphPart] = {}
        self.num_partitions = 1
        self.partition_idx = 0
        self.node_pb: Maps = None
        """The part of each node, by node type if there are types."""
        self.edge_pb: Maps = None
        """The part of each edge, by edge type if there are types."""
        self.meta: dict[str, Any] = {}
        self.is_sorted: bool | None = None
        """Whether edges are sorted by destination."""

    def get_partition_ids_from_nids(self, ids: torch.Tensor, node_type: str | None = None) -> torch.Tensor:
        """Return the part of each node, int64, by node id; with types, ids count within the type."""
        return parts_by_type(self.node_pb, ids, node_type)

    def get_partition_ids_from_eids(self, eids: torch.Tensor, edge_type: EdgeType | None = None) -> torch.Tensor:
        """Return the part of each edge, int64, by edge id; with types, ids count within the type."""
        return parts_by_type(self.edge_pb, eids, edge_type)

    def put_edge_id(self, edge_id: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
        """Set the global ids of the edges of an `edge_type` and a `layout`."""
        self._load()
        self._edge_id[edge_key(PYG.EdgeAttr.cast(*args, **kwargs))] = edge_id
        return True

    def get_edge_id(self, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        """Return the global ids of the edges of an `edge_type` and a `layout`; None if they were not set."""
        self._load(forget=False)
        return self._edge_id.get(edge_key(PYG.EdgeAttr.cast(*args, **kwargs)))

    def remove_edge_id(self, *args: Any, **kwargs: Any) -> bool:
        """Remove the global ids of the edges of an `edge_type` and a `layout`, and return whether there were any."""
        self._load()
        return self._edge_id.pop(edge_key(PYG.EdgeAttr.cast(*args, **kwargs)), None) is not None

    def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> bool:
        if edge_attr.layout.value == "coo":
            check_index_tensor(edge_index, type_of(edge_attr.edge_type) or "the graph")
        self._load()
        key = edge_key(edge_attr)
        self._edge_index[key], self._edge_attr[key] = edge_index, edge_attr
        return True

    def _get_edge_index(self, edge_attr: Any) -> Any:
        self._load(forget=False)
        return self._edge_index.get(edge_key(edge_attr))

    def _remove_edge_index(self, edge_attr: Any) -> bool:
        self._load()
        key = edge_key(edge_attr)
        self._edge_attr.pop(key, None)
        self._order.pop(key, None)
        return self._edge_index.pop(key, None) is not None

    def get_all_edge_attrs(self) -> list[Any]:
        """Return the attributes of all edges in the store."""
        self._load(forget=False)
        return list(self._edge_attr.values())

    @property
    def is_hetero(self) -> bool:
        """Whether the graph has types."""
        if "is_hetero" in self.meta:
            return bool(self.meta["is_hetero"])
        return any(edge_type is not None for edge_type, _ in self._edge_index)

    def graph_part(self, features: LocalFeatureStore | None = None, time_attr: str | None = None) -> GraphPart:
        """Return the in-edges of the nodes that the part owns, for a `PartitionedGraph`.

        Edges to nodes of other parts are left out. The in-edges of a node are in the order of their ids, so that
        mini-batches are those of the whole graph.

        Args:
            features: The store with the timestamps.
            time_attr: The name of integer timestamps: of nodes, with those of all nodes in each part, or of edges.
                Types without it exist at all times.

        Raises:
            ValueError: No edges, unknown parts of nodes, no such timestamps, or they are both of nodes and of edges.
        """
        if time_attr not in self._parts:
            self._parts[time_attr] = self._opened or self._make_part(features, time_attr)
        return self._parts[time_attr]

    def _make_part(self, features: LocalFeatureStore | None, time_attr: str | None) -> GraphPart:
        """Build the result of `graph_part` from lists of edges."""
        books = self._books()
        sizes = {node_type: book.num_ids for node_type, book in books.items()}
        lists, ids, positions = {}, {}, {}
        for key, index in self._edge_index.items():
            name, all_ids = type_of(key[0]), self._edge_id.get(key)
            if all_ids is None:  # numbers that no other part uses
                all_ids = torch.arange(index.shape[1], device="cpu") * self.num_partitions + self.partition_idx
            order = self._order.get(key, all_ids).argsort(stable=True)
            # Keep only edges to nodes that the part owns, in the order of the whole graph.
            own = order[books[ends_of(name)[1]].owners_of(index[1][order]) == self.partition_idx]
            lists[name], ids[name], positions[name] = StoreEdges(*index[:, own]), all_ids[own], own
        counts = {name: len(own) for name, own in ids.items()}
        nodes: dict[str, Any] = {}
        edges: dict[str, Any] = {ORIGINAL_EDGE_ID: ids}
        if time_attr is not None:
            assert features is not None
            of_nodes = stored_node_times(features, time_attr, sizes)
            of_edges = times_of_edges(features, time_attr, ids, positions, or_edge_time=not of_nodes)
            if of_nodes and of_edges:
                raise ValueError(f"nodes and edges both have time_attr {time_attr!r}; rename one of them")
            if not of_nodes and not of_edges:
                raise ValueError(f"time_attr is {time_attr!r}, but neither nodes nor edges have it")
            if of_nodes:
                nodes[time_attr] = fill_missing(time_attr, of_nodes, sizes, ALWAYS)
            else:
                edges[time_attr] = fill_missing(time_attr, of_edges, counts, ALWAYS)
        graph = make_graph(lists, sizes, nodes, edges)
        # The number of edges in the whole graph is only known from `edge_pb`; else, the part's own edges are counted.
        if self.edge_pb is not None:
            counts |= {type_of(edge_type): len(parts) for edge_type, parts in to_type_dict(self.edge_pb).items()}
        owners = torch.cat([book.owners_of(torch.arange(book.num_ids, device="cpu")) for book in books.values()])
        book = PartBook.from_assignment(owners, self.num_partitions)
        return GraphPart(graph, book, self.partition_idx, from_type_dict(counts))

    def _books(self) -> dict[str | None, PartBook]:
        """Return the partition books of the nodes of each type of the whole graph."""
        if not self._edge_index:
            raise ValueError("the graph store has no edges; call put_edge_index, or create it by from_data")
        if any(layout != "coo" for _, layout in self._edge_index):
            raise ValueError(f"edges must have the layout 'coo' to be sampled, but are {list(self._edge_index)}")
        if self.node_pb is not None:
            by_type = to_type_dict(self.node_pb)
            return {name: PartBook.from_assignment(parts, self.num_partitions) for name, parts in by_type.items()}
        if self.num_partitions > 1:
            raise ValueError("the parts of nodes are unknown; set node_pb")
        sizes: dict[str | None, int] = {}
        for (edge_type, _), attr in self._edge_attr.items():
            for node_type, size in zip(ends_of(type_of(edge_type)), attr.size or (None, None), strict=True):
                if size is None:
                    raise ValueError(f"size of the edges of {edge_type} is unknown; pass it to put_edge_index")
                sizes[node_type] = max(sizes.get(node_type, 0), size)
        return {node_type: PartBook.from_bounds([0, size]) for node_type, size in sizes.items()}

    def _load(self, *, forget: bool = True) -> None:
        """List the edges of a part opened from graphfeed's layout; before a change, drop everything derived."""
        if self._opened is not None and not self._edge_index:
            graph = self._opened.columns
            sizes, ids = to_type_dict(graph.num_nodes), self._opened.edge_ids()
            for type_name, edges in edge_lists(graph).items():
                edge_type: Any = group_of(type_name)
                size = tuple(sizes[end] for end in ends_of(type_name))
                attr = PYG.EdgeAttr(edge_type, "coo", True, size)
                key = edge_key(attr)
                self._edge_index[key], self._edge_attr[key] = torch.stack([edges.sources, edges.destinations]), attr
                self._edge_id[key] = ids[edges.positions]
        # After a change, parts are built again, from the lists.
        if forget:
            self._opened = None
            self._parts.clear()

    @classmethod
    @checked
    def from_data(
        cls, edge_id: torch.Tensor | None, edge_index: torch.Tensor, num_nodes: int, is_sorted: bool = False
    ) -> "LocalGraphStore":
        """Return a store with edges of a graph without types.

        Args:
            edge_id: The global id of each edge, shape (E,). Without ids, mini-batches have no `e_id`.
            edge_index: Sources and destinations, shape (2, E).
            num_nodes: Number of nodes of the whole graph.
            is_sorted: Whether the edges are sorted by destination; if not, they are sorted by destination and source.
        """
        return cls._from_lists({None: edge_id}, {None: edge_index}, {None: num_nodes}, is_sorted)

    @classmethod
    @checked
    def from_hetero_data(
        cls,
        edge_id_dict: Mapping[EdgeType, torch.Tensor],
        edge_index_dict: Mapping[EdgeType, torch.Tensor],
        num_nodes_dict: Mapping[str, int],
        is_sorted: bool = False,
    ) -> "LocalGraphStore":
        """Return a store for a graph with types: like `from_data`, by edge type, with sizes by node type."""
        return cls._from_lists(edge_id_dict, edge_index_dict, num_nodes_dict, is_sorted)

    @classmethod
    def _from_lists(cls, ids: Any, indexes: Any, num_nodes: Any, is_sorted: bool) -> "LocalGraphStore":
        store = cls()
        store.meta, store.is_sorted = {"is_hetero": None not in indexes}, True
        for edge_type, edge_index in indexes.items():
            attr = PYG.EdgeAttr(edge_type, "coo", True, tuple(num_nodes[end] for end in ends_of(type_of(edge_type))))
            check_index_tensor(edge_index, type_of(edge_type) or "the graph")
            if ids.get(edge_type) is not None:
                check_length("edge_id", ids[edge_type], edge_index.shape[1], "edge")
            order: Any = slice(None)
            if not is_sorted:
                order = torch.from_numpy(np.lexsort((edge_index[0].numpy(), edge_index[1].numpy())))
            store.put_edge_index(edge_index[:, order], attr)
            if ids.get(edge_type) is not None:
                store.put_edge_id(ids[edge_type][order], attr)
        return store

    @classmethod
    @checked
    def from_partition(cls, root: str | os.PathLike[str], pid: int) -> "LocalGraphStore":
        """Read the edges of a part from files; see `LocalFeatureStore.from_partition`.

        Raises:
            ValueError: The part doesn't exist, or the files have unexpected content.
        """
        info = read_info(Path(root))
        store = cls()
        store.num_partitions, store.partition_idx, store.meta = info.meta["num_parts"], pid, info.meta
        store.node_pb, store.edge_pb, store.is_sorted = info.node_parts, info.edge_parts, True
        if info.layout is None:
            store._opened = open_part(root, pid).graph
        else:
            for type_name, edges in info.layout.read_edges(pid).items():
                attr = PYG.EdgeAttr(group_of(type_name), "coo", True, edges.size)
                store.put_edge_index(edges.ends, attr)
                store.put_edge_id(edges.ids, attr)
                if edges.order is not None:
                    store._order[edge_key(attr)] = edges.order
        return store


def edge_key(attr: Any) -> Key:
    return attr.edge_type, attr.layout.value


def parts_by_type(maps: Maps, ids: torch.Tensor, group: Any) -> torch.Tensor:
    if maps is None:
        raise ValueError("the parts are unknown; set node_pb and edge_pb, or create the store by from_partition")
    parts = maps[group] if isinstance(maps, Mapping) else maps
    return parts[ids].to(torch.int64)  # type: ignore[no-any-return]


def stored_node_times(features: LocalFeatureStore, name: str, sizes: Mapping[Any, int]) -> dict[Any, torch.Tensor]:
    tensors = tensors_named(features, name)
    times = {node_type: as_time_column(name, tensors[node_type]) for node_type in sizes if node_type in tensors}
    for node_type, values in times.items():
        if len(values) != sizes[node_type]:
            raise ValueError(
                f"{name!r} of {node_type!r} must have the timestamps of all {sizes[node_type]} nodes, not {len(values)}"
            )
    return times


def times_of_edges(
    features: LocalFeatureStore,
    name: str,
    ids: Mapping[Any, torch.Tensor],
    positions: Mapping[Any, torch.Tensor],
    *,
    or_edge_time: bool,
) -> dict[Any, torch.Tensor]:
    """Return the timestamps of edges by type, for the types that have any."""
    # "time" may also mean "edge_time", the name of edges' timestamps in files.
    tensors = tensors_named(features, EDGE_TIME) if or_edge_time and name == TIME else {}
    tensors |= tensors_named(features, name)
    times = {}
    for edge_type, own in ids.items():
        group = group_of(edge_type, edges=True)
        if group in tensors:
            # By edge id, or if the edges have none, by position among all edges of the store.
            rows = positions[edge_type] if features.get_global_id(group) is None else features.rows_of(group, own)
            times[edge_type] = as_time_column(name, tensors[group])[rows]
    return times


def tensors_named(features: LocalFeatureStore, name: str) -> dict[Any, torch.Tensor]:
    attrs = (attr for attr in features.get_all_tensor_attrs() if attr.attr_name == name)
    return {attr.group_name: features.get_tensor(attr) for attr in attrs}
