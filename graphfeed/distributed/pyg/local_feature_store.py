"""The features of one part, with the interface of `torch_geometric.distributed`."""

import os
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition.reader import open_part
from graphfeed.distributed.partitioned_feature import PartitionedFeature, served_name
from graphfeed.distributed.pyg.partition_pyg_layout import EDGE_TIME, TIME
from graphfeed.distributed.pyg.store_attributes import EDGES, Group, Maps, domain_of, group_of, read_info, type_of
from graphfeed.distributed.ranks.peers import Peers, shared_peers
from graphfeed.ops.arguments import brief, checked
from graphfeed.pyg.data import import_pyg
from graphfeed.storage import BasicFeatureStore, Feature, TorchBasedFeature

PYG: Any = import_pyg("torch_geometric.data", "a LocalFeatureStore or LocalGraphStore")
UNSET = PYG.TensorAttr().index
"""PyG's value of an attribute that is not set."""


@dataclass
class LocalTensorAttr(PYG.TensorAttr):  # type: ignore[misc]
    """Identifies a tensor of a `LocalFeatureStore`; without an index, all of its rows."""

    group_name: Group = None
    index: Any = None

    @classmethod
    def cast(cls, *args: Any, **kwargs: Any) -> "LocalTensorAttr":
        given = super().cast(*args, **kwargs)
        # Attributes that are not set in an object of PyG get the defaults of this class.
        return cls(**{name: value for name, value in vars(given or cls()).items() if value is not UNSET})

    def is_set(self, key: str) -> bool:
        """Return whether an attribute is set; PyG's method fails for an index that is an array."""
        return isinstance(self.attr_name, str) if key == "attr_name" else getattr(self, key) is not UNSET


class LocalFeatureStore(PYG.FeatureStore):  # type: ignore[misc]
    """The features of the nodes and edges of one part, as in `torch_geometric.distributed`.

    A tensor has a group and a name. The group is a node type or an edge type; without types, None for nodes and (None,
    None) for edges. Each group has the global ids of its rows, which count within its type. This is a
    `torch_geometric.data.FeatureStore`.

    `lookup_features` reads from the ranks of a loader that uses the store, or of a `Peers` (`set_rpc_router`), or else
    of the process group. With a single part, it needs no other ranks.

    Example:
        >>> store = LocalFeatureStore.from_data(torch.tensor([4, 2]), x=torch.tensor([[4.0], [2.0]]))
        >>> store.get_tensor_from_global_id(group_name=None, attr_name="x", index=torch.tensor([2, 2])).tolist()
        [[2.0], [2.0]]
    """

    def __init__(self) -> None:
        super().__init__(LocalTensorAttr)
        self._feat: dict[tuple[Group, str], torch.Tensor] = {}
        self._global_id: dict[Group, torch.Tensor] = {}
        self._sorted: dict[Group, Any] = {}
        self._remote: dict[Peers, BasicFeatureStore] = {}
        self.num_partitions = 1
        self.partition_idx = 0
        self.node_feat_pb: Maps = None
        """The part of each node, by node type if there are types."""
        self.edge_feat_pb: Maps = None
        """The part of each edge, by edge type if there are types."""
        self.labels: Any = None
        """The labels of all nodes or edges of the seeds' type; or a dict by type."""
        self.meta: dict[str, Any] | None = None
        self.rpc_router: Peers | None = None

    __hash__ = object.__hash__  # PyG's class compares by identity, but has no hash

    def put_global_id(self, global_id: torch.Tensor, group_name: Group) -> bool:
        """Set the global ids of the rows of a group."""
        self._global_id[group_name] = global_id
        self._sorted.pop(group_name, None)
        self._remote.clear()
        return True

    def get_global_id(self, group_name: Group) -> torch.Tensor | None:
        """Return the global ids of the rows of a group; None if they were not set."""
        return self._global_id.get(group_name)

    def remove_global_id(self, group_name: Group) -> bool:
        """Remove the global ids of a group, and return whether there were any."""
        self._sorted.pop(group_name, None)
        self._remote.clear()
        return self._global_id.pop(group_name, None) is not None

    def _put_tensor(self, tensor: torch.Tensor, attr: LocalTensorAttr) -> bool:
        if attr.index is not None:
            raise ValueError(f"index must be left out, because tensors are set whole, but is {brief(attr.index)}")
        self._feat[attr.group_name, attr.attr_name] = tensor
        self._remote.clear()
        return True

    def _get_tensor(self, attr: LocalTensorAttr) -> torch.Tensor:
        tensor = self._feat.get((attr.group_name, attr.attr_name))
        if tensor is None:
            raise KeyError(f"there is no tensor {attr.attr_name!r} of {attr.group_name!r}, only {list(self._feat)}")
        return tensor if attr.index is None else tensor[attr.index]

    def _remove_tensor(self, attr: LocalTensorAttr) -> bool:
        self._remote.clear()
        return self._feat.pop((attr.group_name, attr.attr_name), None) is not None

    def _get_tensor_size(self, attr: LocalTensorAttr) -> tuple[int, ...]:
        return tuple(self._get_tensor(attr).shape)

    def get_tensor_from_global_id(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the rows of a tensor at the global ids in `index`.

        Raises:
            IndexError: This part has no row with such an id.
            ValueError: There is no `index`, or the group has no global ids.
        """
        attr = LocalTensorAttr.cast(*args, **kwargs)
        if attr.index is None:
            raise ValueError("index must be global ids, but is None; get_tensor returns whole tensors")
        rows: torch.Tensor = self.get_tensor(attr.group_name, attr.attr_name, self.rows_of(attr.group_name, attr.index))
        return rows

    def get_all_tensor_attrs(self) -> list[LocalTensorAttr]:
        """Return the attributes of all tensors in the store."""
        return [LocalTensorAttr(*key) for key in self._feat]

    def has_edge_attr(self) -> bool:
        """Return whether there is a tensor `edge_attr`."""
        return any(name == "edge_attr" for _, name in self._feat)

    def set_rpc_router(self, rpc_router: Peers | None) -> None:
        """Connect the store to other ranks, so that each can read the features of the others.

        Args:
            rpc_router: The ranks. All of them must call this, in the same order.

        Raises:
            ValueError: `rpc_router` is None, or the number of ranks differs from that of the parts.
        """
        if rpc_router is None:
            raise ValueError("rpc_router must be graphfeed.distributed.Peers, but is None")
        self.rpc_router = rpc_router
        self.partitioned_features(rpc_router)

    @checked
    def lookup_features(
        self, index: torch.Tensor, is_node_feat: bool = True, input_type: Group = None
    ) -> torch.futures.Future[torch.Tensor]:
        """Return a future of the rows of `x` of nodes, or `edge_attr` of edges, from any ranks, in order of `index`.

        Args:
            index: Global ids, shape (N,); with types, within their type.
            is_node_feat: Whether to read `x` of nodes rather than `edge_attr` of edges.
            input_type: The node type or edge type, if there are types.

        Raises:
            KeyError: There is no such tensor.
            RuntimeError: From the future: no rank has an id, or a rank was lost.
        """
        group = input_type if is_node_feat or input_type is not None else EDGES
        domain, name = ("node", "x") if is_node_feat else ("edge", "edge_attr")
        shape = self.get_tensor(group, name).shape[1:]
        feature = self.partitioned_features(self.rpc_router)[domain, type_of(group), name]
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

        def read() -> None:
            try:
                future.set_result(feature.read(index).view(-1, *shape))
            except Exception as error:
                future.set_exception(error)  # type: ignore[arg-type]  # torch's own types are wrong here

        # Reading may wait for another rank.
        Thread(target=read, name="graphfeed-lookup").start()
        return future

    def rows_of(self, group: Group, ids: torch.Tensor) -> torch.Tensor:
        """Return the positions of the rows with the given global ids."""
        if group not in self._global_id:
            raise ValueError(f"{group!r} has no global ids; call put_global_id first")
        if group not in self._sorted:
            self._sorted[group] = self._global_id[group].sort(stable=True)
        values, order = self._sorted[group]
        positions = torch.searchsorted(values, ids)
        known = positions < values.numel()
        # Ids above the largest one here have no position to compare.
        known[known.clone()] = values[positions[known]] == ids[known]
        if not bool(known.all()):
            raise IndexError(f"part {self.partition_idx} has no row of {group!r} with id {int(ids[~known][0])}")
        rows: torch.Tensor = order[positions]
        return rows

    def partitioned_features(self, peers: Peers | None = None) -> BasicFeatureStore:
        """Return features that read by global id from all ranks; one-dimensional tensors become columns.

        Tensors of edges without global ids are left out.

        Args:
            peers: The ranks, which must have the same tensors. Default: those of the default process group.

        Raises:
            ValueError: The number of parts differs from that of the ranks, or rows of this part's ids are missing.
        """
        peers = (Peers() if self.num_partitions == 1 else shared_peers()) if peers is None else peers
        if peers not in self._remote:
            features = {}
            for (group, name), tensor in self._feat.items():
                domain = domain_of(group)
                if domain == "node" or group in self._global_id:
                    features[domain, type_of(group), name] = self._feature(group, name, tensor, peers)
            self._remote[peers] = BasicFeatureStore(features)
        return self._remote[peers]

    def _feature(self, group: Group, name: str, tensor: torch.Tensor, peers: Peers) -> Feature:
        """Return a feature that reads a tensor by global id."""
        rows = tensor if tensor.dim() > 1 else tensor[:, None]
        maps = self.edge_feat_pb if isinstance(group, tuple) else self.node_feat_pb
        parts = maps[group] if isinstance(maps, dict) else maps
        if parts is None and self.num_partitions > 1:
            raise ValueError(f"the parts of {group!r} are unknown; set node_feat_pb and edge_feat_pb")
        ids = self._global_id.get(group)
        if parts is not None and len(rows) == len(parts) and (name == TIME or ids is None or len(ids) != len(rows)):
            return TorchBasedFeature(rows)  # every part has the timestamps of all nodes
        if parts is None:
            book = PartBook.from_bounds([0, len(rows)])
        else:
            book = PartBook.from_assignment(parts, self.num_partitions)
        owned = book.ids_of(self.partition_idx)
        if ids is None or not torch.equal(ids, owned):
            # Owners have only the rows of their own ids, in order of these.
            rows = rows[self.rows_of(group, owned)]
        return PartitionedFeature(rows, book, peers, served_name(domain_of(group), type_of(group), name))

    @classmethod
    @checked
    def from_data(
        cls,
        node_id: torch.Tensor,
        x: torch.Tensor | None = None,
        y: torch.Tensor | None = None,
        edge_id: torch.Tensor | None = None,
        edge_attr: torch.Tensor | None = None,
    ) -> "LocalFeatureStore":
        """Return a store with features `x` and labels `y` of nodes with global ids, in a graph without types.

        Likewise, edges with the global ids `edge_id` have the features `edge_attr`.

        Raises:
            ValueError: `edge_attr` is given without `edge_id`.
        """
        return cls.from_hetero_data(
            {None: node_id},
            {} if x is None else {None: x},
            {} if y is None else {None: y},
            {} if edge_id is None else {EDGES: edge_id},
            {} if edge_attr is None else {EDGES: edge_attr},
        )

    @classmethod
    @checked
    def from_hetero_data(
        cls,
        node_id_dict: dict[Any, torch.Tensor],
        x_dict: dict[Any, torch.Tensor] | None = None,
        y_dict: dict[Any, torch.Tensor] | None = None,
        edge_id_dict: dict[Any, torch.Tensor] | None = None,
        edge_attr_dict: dict[Any, torch.Tensor] | None = None,
    ) -> "LocalFeatureStore":
        """Return a store for a graph with types: like `from_data`, by node type, or by edge type as a tuple."""
        store = cls()
        for group, ids in [*node_id_dict.items(), *(edge_id_dict or {}).items()]:
            store.put_global_id(ids, group)
        for name, by_type in (("x", x_dict), ("y", y_dict), ("edge_attr", edge_attr_dict)):
            for group, values in (by_type or {}).items():
                if name == "edge_attr" and group not in store._global_id:
                    raise ValueError(f"edge_id needs to be given together with edge_attr; there is none of {group!r}")
                store.put_tensor(values, group, name)
        return store

    @classmethod
    @checked
    def from_partition(cls, root: str | os.PathLike[str], pid: int) -> "LocalFeatureStore":
        """Read the features of a part from files written by `Partitioner`, here or in PyG, or by `write_partition`.

        Only tensors are unpickled.

        Raises:
            ValueError: The part doesn't exist, or the files have unexpected content.
        """
        info = read_info(Path(root))
        store = cls()
        store.num_partitions, store.partition_idx, store.meta = info.meta["num_parts"], pid, info.meta
        store.node_feat_pb, store.edge_feat_pb = info.node_parts, info.edge_parts
        if info.layout is None:
            part = open_part(root, pid)
            for key, book in part.books.items():
                group = group_of(key.type, edges=key.domain == "edge")
                store.put_global_id(book.ids_of(pid), group)
                store.put_tensor(part.features[key].read(), group, key.name)
            return store
        for domain, by_type in info.layout.read_features(pid).items():
            for type_name, file in by_type.items():
                group = group_of(type_name, edges=domain == "edge")
                ids = file.get("id", file.get("global_id"))
                if ids is not None:
                    store.put_global_id(ids, group)
                times = {name: file[name] for name in (TIME, EDGE_TIME) if name in file}
                for name, values in {**file.get("feats", {}), **times}.items():
                    if isinstance(values, torch.Tensor):
                        store.put_tensor(values, group, name)
        return store
