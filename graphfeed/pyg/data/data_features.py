"""What PyG's data hold of nodes and edges: features to fetch, and what is left when these are taken out."""

import copy
from collections.abc import Sequence
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

    @property
    def node_keys(self) -> Any:
        """The names of node features as `fetch_feature` takes them."""
        return self.node_names.get(None, self.node_names)

    @property
    def edge_keys(self) -> Any:
        """The names of edge features as `fetch_feature` takes them."""
        return self.edge_names.get(None, [] if None in self.node_names else self.edge_names)


def read_features(data: Any, custom_cls: Any = None) -> DataFeatures:
    """Return the features of a PyG `Data` or `HeteroData`, which share its memory, or those of a pair of stores.

    Mini-batches of a pair of stores are made of `custom_cls`; None: a `Data` or a `HeteroData`. A feature is a dense
    tensor, an array or a `TensorFrame`, and requires no gradient, which would not reach it from a mini-batch.
    """
    data = as_data(data)
    if isinstance(data, StorePair):
        return features_of_stores(data, custom_cls)
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
            domain = domain_of(table, name)
            if domain is not None:
                if is_frame(value):
                    features[domain, owner, name] = FrameFeature(value)
                else:
                    dim = data.__cat_dim__(name, value, table)
                    # PyG counts the dimension of some values from behind.
                    dim = dim % value.ndim if isinstance(dim, int) and hasattr(value, "ndim") else 0
                    rows, dim = as_rows(value, f"{name!r} of {owner!r}" if owner else repr(name), dim)
                    if dim:
                        dims[owner, name] = dim
                    features[domain, owner, name] = TorchBasedFeature(rows)
                (node_names if domain == "node" else edge_names)[owner].append(name)
            # A hole keeps the place of an attribute among the others.
            if domain is not None or name in NOT_FETCHED:
                empty[key][name] = HOLE
    return DataFeatures(BasicFeatureStore(features), node_names, edge_names, template, dims)


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


def features_of_stores(data: StorePair, custom_cls: Any) -> DataFeatures:
    """Return the features of a pair of stores; each mini-batch reads its rows from there."""
    module = import_pyg("torch_geometric.data", "a pair of stores")
    template = (custom_cls or (module.HeteroData if data.typed else module.Data))()
    node_names: dict[str | None, list[str]] = {owner: data.names_of("node", owner) for owner in data.nodes}
    for owner, names in node_names.items():
        if names:
            (template if owner is None else template[owner])["num_nodes"] = HOLE  # filled in, as PyG does
    edge_names = {type_name(owner): data.names_of("edge", owner) for owner in data.edges}
    return DataFeatures(BasicFeatureStore(data.features), node_names, edge_names, template)


def domain_of(table: Any, name: str) -> str | None:
    if name in NOT_FETCHED:
        return None
    if table.is_node_attr(name):
        return "node"
    return "edge" if table.is_edge_attr(name) else None


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
