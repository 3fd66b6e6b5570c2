"""What PyG's data hold of nodes and edges: features to fetch, and what is left when these are taken out."""

import copy
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import brief
from graphfeed.pyg.data.store_data import StorePair
from graphfeed.pyg.data.tables import as_data, check_edge_index, import_pyg, tables_of
from graphfeed.storage import BasicFeatureStore, Feature, FeatureStore, TorchBasedFeature
from graphfeed.storage.graph import type_name

EDGES = "edge_index"
NOT_FETCHED = (EDGES, "num_nodes")
STANDARD = {
    **dict.fromkeys(("x", "feat", "pos", "node_type", "n_id", "tf"), "node"),
    **dict.fromkeys(("edge_attr", "edge_weight", "edge_type", "e_id"), "edge"),
}
"""The names that PyG counts nodes and edges by, so that nothing else has them."""
OF_OTHERS = ("index", "idx", "ptr", "face", "batch", "edge_label", "input_id", "seed_time", "num_sampled")
"""Parts of the names that PyG gives to what has a number of rows of its own, such as seeds."""
FLAT = -1
"""Stands for the dimension of values of one dimension, which a feature holds as rows of one number."""
HOLE = ()
"""Keeps the position of an attribute in a template; each mini-batch fills it, or removes it."""


@dataclass(frozen=True, eq=False)
class DataFeatures:
    """The features that mini-batches get, and the object that they are filled into.

    Types are strings, as in a `FeatureStore`; of a graph without types, None.

    Example:
        >>> from graphfeed import BasicFeatureStore, TorchBasedFeature
        >>> store = BasicFeatureStore({("node", None, "x"): TorchBasedFeature(torch.eye(3))})
        >>> DataFeatures(store, node_names={None: ["x"]}).node_keys
        ['x']
    """

    store: FeatureStore
    node_names: dict[str | None, list[str]] = field(default_factory=dict)
    """The names of node features by type."""
    edge_names: dict[str | None, list[str]] = field(default_factory=dict)
    """The names of edge features by type."""
    template: Any = None
    """A `Data` or `HeteroData` that each mini-batch begins as, without the features; None: an empty one."""
    dims: dict[tuple[str | None, str], int] = field(default_factory=dict)
    """The dimension of nodes or edges, by type and name, where it is not the first; `FLAT` where it is the only one."""
    of_edges: Collection[str] = ()
    """Names that are known to be of edges in data without types, where there are as many nodes as edges."""

    @property
    def node_keys(self) -> Any:
        """The names of node features as `fetch_feature` takes them."""
        return self.node_names.get(None, self.node_names)

    @property
    def edge_keys(self) -> Any:
        """The names of edge features as `fetch_feature` takes them."""
        return self.edge_names.get(None, [] if None in self.node_names else self.edge_names)


def read_features(data: Any, custom_cls: Any = None, of_edges: Collection[str] = ()) -> DataFeatures:
    """Return the features of a PyG `Data` or `HeteroData`, which share its memory, or those of a pair of stores.

    Mini-batches of a pair of stores are made of `custom_cls`; None: a `Data` or a `HeteroData`. A feature is a dense
    tensor, an array or a `TensorFrame`, and requires no gradient, which would not reach it from a mini-batch.
    `of_edges` are names, such as that of weights, that belong to edges even if there are as many nodes.
    """
    data = as_data(data)
    if isinstance(data, StorePair):
        return features_of_stores(data, custom_cls, of_edges)
    # A shallow copy, so that the holes below don't appear in the user's data.
    template = copy.copy(data)
    tables = tables_of(data)
    node_names: dict[str | None, list[str]] = {owner: [] for owner in tables.nodes}
    edge_names: dict[str | None, list[str]] = {type_name(owner): [] for owner in tables.edges}
    features: dict[Any, Any] = {}
    dims: dict[tuple[str | None, str], int] = {}
    empty = tables_of(template).by_type
    for key, table in tables.by_type.items():
        owner = type_name(key)
        check_edge_index(table, owner or "data")
        for name, value in table.items():
            domain = domain_of(data, table, name, owner, of_edges)
            if domain is not None:
                if is_frame(value):
                    features[domain, owner, name] = FrameFeature(value)
                else:
                    dim = dim_of(data, table, name)
                    rows, dim = as_rows(value, f"{name!r} of {owner!r}" if owner else repr(name), dim)
                    if dim:
                        dims[owner, name] = dim
                    features[domain, owner, name] = TorchBasedFeature(rows)
                (node_names if domain == "node" else edge_names)[owner].append(name)
            # Of a `Batch`, where each graph begins among all nodes: a mini-batch has others.
            if name == "ptr" and "batch" in table:
                del empty[key][name]
            # A hole keeps the place of an attribute among the others.
            if domain is not None or name in NOT_FETCHED:
                empty[key][name] = HOLE
    return DataFeatures(BasicFeatureStore(features), node_names, edge_names, template, dims, of_edges)


def contents_of(data: Any) -> dict[Any, Any]:
    """Return something by which a change of the attributes shows while `read_features` of them is kept."""
    data = as_data(data)
    if isinstance(data, StorePair):
        return dict.fromkeys(data.features)
    tables = tables_of(data)
    owners = [None, *tables.by_type] if tables.typed else [None]
    # Features hold the memory of tensors, and the template all else, so nothing new can have the same address.
    return {
        (owner, name): where(value)
        for owner, table in zip(owners, data.stores, strict=True)  # with types, the first is that of the whole graph
        for name, value in table.items()
        if name != EDGES
    }


def where(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
    return id(value)


def features_of_stores(data: StorePair, custom_cls: Any, of_edges: Collection[str]) -> DataFeatures:
    """Return the features of a pair of stores; each mini-batch reads its rows from there."""
    module = import_pyg("torch_geometric.data", "a pair of stores")
    template = (custom_cls or (module.HeteroData if data.typed else module.Data))()
    features = {
        ("edge" if owner is None and name in of_edges else domain, owner, name): feature
        for (domain, owner, name), feature in data.features.items()
    }
    node_names: dict[str | None, list[str]] = {owner: [] for owner in data.nodes}
    edge_names: dict[str | None, list[str]] = {type_name(owner): [] for owner in data.edges}
    for domain, owner, name in features:
        (node_names if domain == "node" else edge_names)[owner].append(name)
    counts = {("node", owner): data.count_nodes(owner) for owner, names in node_names.items() if names}
    for edge_type in data.edges:
        if edge_names[owner := type_name(edge_type)]:
            counts["edge", owner] = len(data.edge_list(edge_type, reverse=False))
    for (domain, owner, name), feature in features.items():
        rows, wanted = feature.count(), counts[domain, owner]
        if rows != wanted:
            of = f" of {owner!r}" if owner else ""
            raise ValueError(
                f"feature {name!r}{of} has {rows} rows, but the graph has {wanted} {domain}s; give each one"
            )
    for owner, names in node_names.items():
        if names:
            (template if owner is None else template[owner])["num_nodes"] = HOLE  # filled in, as PyG does
    return DataFeatures(BasicFeatureStore(features), node_names, edge_names, template, of_edges=of_edges)


def domain_of(data: Any, table: Any, name: str, owner: str | None, of_edges: Collection[str] = ()) -> str | None:
    """Return whether an attribute has a row for each "node" or "edge", as PyG tells; None if it has neither.

    What PyG calls an attribute of nodes or edges, but has another number of rows, is an error; any other one that looks
    like such an attribute is warned of, because it stays whole. `of_edges` is as for `read_features`.
    """
    if name in NOT_FETCHED:
        return None
    domain = "node" if table.is_node_attr(name) else "edge" if table.is_edge_attr(name) else None
    named_edge = name in of_edges or STANDARD.get(name) == "edge"
    if owner is None and named_edge and domain == "node" and table.num_nodes == table.num_edges:
        domain = "edge"
    value, index = table[name], table.get(EDGES)
    is_rows = isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim > 0
    count = value.shape[dim_of(data, table, name)] if is_rows else len(value) if is_frame(value) else 1
    # PyG counts edges by the first attribute that has an edge's name, which need not be the list of edges.
    is_wrong = domain == "edge" and is_rows and index is not None and count != index.shape[1]
    # Without types, an attribute of edges may have as many rows as there are nodes, and the other way around.
    is_wrong |= name in STANDARD and domain != STANDARD[name] and (owner is None or domain is None)
    is_of_graph = count == 1 and not (is_rows and name in STANDARD)
    if (is_wrong or domain is None) and not is_of_graph and not any(part in name for part in OF_OTHERS):
        counts = [f"{table.num_nodes} nodes"] if owner is None or ":" not in owner else []
        counts += [f"{0 if index is None else index.shape[1]} edges"] if owner is None or ":" in owner else []
        text = f"{name!r}{f' of {owner!r}' if owner else ''} has {count} rows, but there are {' and '.join(counts)}"
        if is_wrong:
            raise ValueError(f"{text}; give it a row for each {STANDARD.get(name, domain)}")
        # Of a `Batch`, each graph may have a row.
        if "ptr" not in table or count != len(table["ptr"]) - 1:
            warnings.warn(f"{text}; it is left as it is, as an attribute of the whole graph", stacklevel=2)
    return domain


def dim_of(data: Any, table: Any, name: str) -> int:
    """Return the dimension of an attribute that counts nodes or edges."""
    value = table[name]
    dim = data.__cat_dim__(name, value, table)
    # PyG counts the dimension of some values from behind.
    return dim % value.ndim if isinstance(dim, int) and hasattr(value, "ndim") else 0


def as_rows(value: Any, name: str, dim: int) -> tuple[torch.Tensor, int]:
    """Return a value with one row per node or edge, and the dimension that the rows were."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} has one value for each node or edge, but is {brief(value)}; make it a tensor")
    if value.layout != torch.strided:
        raise TypeError(f"{name} is sparse ({value.layout}), but mini-batches have its rows; give {name}.to_dense()")
    if value.requires_grad:
        raise ValueError(
            f"{name} requires a gradient, which does not reach it through a mini-batch; detach it, or leave it out of "
            "data and take its rows in your loop: values[batch.n_id]"
        )
    plain = value.as_subclass(torch.Tensor).detach()
    if plain.dim() == 1:
        return plain[:, None], FLAT
    return plain.movedim(dim, 0), dim


def as_given(rows: torch.Tensor, dim: int) -> torch.Tensor:
    """Undo `as_rows`."""
    if dim == FLAT:
        return rows.squeeze(1)
    return rows.movedim(0, dim) if dim else rows


class FrameFeature(Feature):
    """Reads rows of a `TensorFrame` of pytorch-frame's as PyG does: `frame[ids]`, in the main process."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def read(self, ids: torch.Tensor | None = None) -> Any:
        return self._frame if ids is None else self._frame[ids.to(self._frame.device, torch.int64)]

    def size(self) -> torch.Size:
        return torch.Size((self._frame.num_cols,))

    def count(self) -> int:
        return int(self._frame.num_rows)

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        del value, ids
        raise TypeError(f"{self} is only read; set another TensorFrame in data, which counts from the next epoch on")

    def __repr__(self) -> str:
        return f"TensorFrame([{self.count()}, {self._frame.num_cols}])"


def join_frames(frames: Sequence[Any]) -> Any:
    return import_pyg("torch_frame", "a TensorFrame").cat(frames, dim=0)


def is_frame(value: Any) -> bool:
    # An older PyG has no such class, and then nothing is one.
    return isinstance(value, getattr(import_pyg("torch_geometric.typing", "a TensorFrame"), "TensorFrame", ()))
