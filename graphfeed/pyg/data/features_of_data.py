"""Node and edge features of PyG's data, and the template that remains without them."""

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
"""Names that PyG reserves for node and edge attributes, so that no other attribute has them."""
OF_OTHERS = ("index", "idx", "ptr", "face", "batch", "edge_label", "input_id", "seed_time", "num_sampled")
"""Parts of names that PyG gives to attributes with another number of rows, such as attributes of seeds."""
FLAT = -1
"""Dimension that stands for one-dimensional values, which a feature stores as rows of one number."""
HOLE = ()
"""Placeholder that keeps the position of an attribute in a template; each mini-batch fills or removes it."""


@dataclass(frozen=True, eq=False)
class DataFeatures:
    """The features to fetch for each mini-batch, and the template to fill them into.

    Types are strings, as in a `FeatureStore`, or None in a graph without types.

    Example:
        >>> from graphfeed import BasicFeatureStore, TorchBasedFeature
        >>> store = BasicFeatureStore({("node", None, "x"): TorchBasedFeature(torch.eye(3))})
        >>> DataFeatures(store, node_names={None: ["x"]}).node_keys
        ['x']
    """

    store: FeatureStore
    node_names: dict[str | None, list[str]] = field(default_factory=dict)
    """Names of the node features by type."""
    edge_names: dict[str | None, list[str]] = field(default_factory=dict)
    """Names of the edge features by type."""
    template: Any = None
    """A `Data` or `HeteroData` without the features, which each mini-batch copies; None: an empty one."""
    dims: dict[tuple[str | None, str], int] = field(default_factory=dict)
    """Dimension that counts nodes or edges, by type and name, if it isn't the first; `FLAT` if it is the only one."""
    of_edges: Collection[str] = ()
    """Names of edge attributes in data without types that have as many nodes as edges."""

    @property
    def node_keys(self) -> Any:
        """Names of the node features, in the form that `fetch_feature` expects."""
        return self.node_names.get(None, self.node_names)

    @property
    def edge_keys(self) -> Any:
        """Names of the edge features, in the form that `fetch_feature` expects; None if there are none."""
        return self.edge_names.get(None, self.edge_names) if any(self.edge_names.values()) else None


def features_of_data(data: Any, custom_cls: Any = None, of_edges: Collection[str] = ()) -> DataFeatures:
    """Return the features of a PyG `Data` or `HeteroData`, sharing its memory, or those of a pair of stores.

    Mini-batches of a pair of stores are instances of `custom_cls`; None: a `Data` or a `HeteroData`. A feature is a
    dense tensor, an array, a `TensorFrame` or a `TrainableFeature`. Tensors must not require a gradient, as none would
    flow back to them. Attributes named in `of_edges`, such as weights, belong to edges even if there are as many nodes.
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
                if is_trained(value):
                    features[domain, owner, name] = value
                elif is_frame(value):
                    features[domain, owner, name] = FrameFeature(value)
                else:
                    dim = dim_of(data, table, name)
                    rows, dim = as_rows(value, f"{name!r} of {owner!r}" if owner else repr(name), dim)
                    if dim:
                        dims[owner, name] = dim
                    features[domain, owner, name] = TorchBasedFeature(rows)
                (node_names if domain == "node" else edge_names)[owner].append(name)
            # In a `Batch`, `ptr` is the offset of each graph, which does not apply to a mini-batch.
            if name == "ptr" and "batch" in table:
                del empty[key][name]
            # A hole keeps the position of an attribute among the others.
            if domain is not None or name in NOT_FETCHED:
                empty[key][name] = HOLE
    return DataFeatures(BasicFeatureStore(features), node_names, edge_names, template, dims, of_edges)


def contents_of(data: Any) -> dict[Any, Any]:
    """Return a fingerprint of the attributes, which changes if one is replaced while its features are kept."""
    data = as_data(data)
    if isinstance(data, StorePair):
        return dict.fromkeys(data.features)
    tables = tables_of(data)
    owners = [None, *tables.by_type] if tables.typed else [None]
    # The features and the template keep all values alive, so a new value can't have the same address.
    return {
        (owner, name): where(value)
        for owner, table in zip(owners, data.stores, strict=True)  # with types, the first store is of the whole graph
        for name, value in table.items()
        if name != EDGES
    }


def where(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
    return id(value)


def features_of_stores(data: StorePair, custom_cls: Any, of_edges: Collection[str]) -> DataFeatures:
    """Return the features of a pair of stores, from which each mini-batch reads its rows."""
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
                f"feature {name!r}{of} has {rows} rows, but the graph has {wanted} {domain}s; give one row for each"
            )
    for owner, names in node_names.items():
        if names:
            (template if owner is None else template[owner])["num_nodes"] = HOLE  # mini-batches set it, as in PyG
    return DataFeatures(BasicFeatureStore(features), node_names, edge_names, template, of_edges=of_edges)


def is_trained(value: Any) -> bool:
    return isinstance(value, Feature) and value.is_trained


def domain_of(data: Any, table: Any, name: str, owner: str | None, of_edges: Collection[str] = ()) -> str | None:
    """Return "node" or "edge" if an attribute has a row for each, following PyG's classification, or else None.

    An attribute that PyG assigns to nodes or edges, but has another number of rows, is an error. Any other attribute
    that looks like one is kept whole, with a warning. For `of_edges` see `features_of_data`.
    """
    if name in NOT_FETCHED:
        return None
    if is_trained(table[name]):
        of_edge = name in of_edges or STANDARD.get(name) == "edge" or (owner is not None and ":" in owner)
        return "edge" if of_edge else "node"
    domain = "node" if table.is_node_attr(name) else "edge" if table.is_edge_attr(name) else None
    named_edge = name in of_edges or STANDARD.get(name) == "edge"
    if owner is None and named_edge and domain == "node" and table.num_nodes == table.num_edges:
        domain = "edge"
    value, index = table[name], table.get(EDGES)
    is_rows = isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim > 0
    count = value.shape[dim_of(data, table, name)] if is_rows else len(value) if is_frame(value) else 1
    # PyG counts edges by the first attribute with an edge's name, which need not be `edge_index`.
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
        # In a `Batch`, an attribute may have a row for each graph.
        if "ptr" not in table or count != len(table["ptr"]) - 1:
            warnings.warn(f"{text}; it is kept unchanged, as an attribute of the whole graph", stacklevel=2)
    return domain


def dim_of(data: Any, table: Any, name: str) -> int:
    """Return the dimension of an attribute that runs over nodes or edges."""
    value = table[name]
    dim = data.__cat_dim__(name, value, table)
    # PyG's dimension may be negative.
    return dim % value.ndim if isinstance(dim, int) and hasattr(value, "ndim") else 0


def as_rows(value: Any, name: str, dim: int) -> tuple[torch.Tensor, int]:
    """Return a value with one row per node or edge, and the dimension that the rows had."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} has one value for each node or edge, but is {brief(value)}; make it a tensor")
    if value.layout != torch.strided:
        raise TypeError(f"{name} is sparse ({value.layout}), but mini-batches need its rows; give {name}.to_dense()")
    if value.requires_grad:
        raise ValueError(
            f"{name} requires a gradient, which does not flow back to it through a mini-batch; detach it, or make it a "
            "graphfeed.TrainableFeature"
        )
    plain = value.as_subclass(torch.Tensor).detach()
    if plain.dim() == 1:
        return plain[:, None], FLAT
    return plain.movedim(dim, 0), dim


def as_given(rows: torch.Tensor, dim: int) -> torch.Tensor:
    """Invert `as_rows`."""
    if dim == FLAT:
        return rows.squeeze(1)
    return rows.movedim(0, dim) if dim else rows


class FrameFeature(Feature):
    """Reads rows of a pytorch-frame `TensorFrame` as PyG does: `frame[ids]`, in the main process."""

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
        raise TypeError(f"{self} is read-only; set another TensorFrame in data, which is used from the next epoch")

    def __repr__(self) -> str:
        return f"TensorFrame([{self.count()}, {self._frame.num_cols}])"


def join_frames(frames: Sequence[Any]) -> Any:
    return import_pyg("torch_frame", "a TensorFrame").cat(frames, dim=0)


def is_frame(value: Any) -> bool:
    # An older PyG has no such class.
    return isinstance(value, getattr(import_pyg("torch_geometric.typing", "a TensorFrame"), "TensorFrame", ()))
