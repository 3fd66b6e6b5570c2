"""What PyG's data hold of nodes and edges: features to fetch, and what is left when these are taken out."""

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import brief
from graphfeed.pyg.data.minibatch_data import HOMOGENEOUS
from graphfeed.pyg.data.store_data import StoreHeteroData, StorePair, as_data
from graphfeed.pyg.stages.to_sampler_output import import_pyg
from graphfeed.storage import BasicFeatureStore, FeatureStore, TorchBasedFeature
from graphfeed.storage.graph.type_names import type_name

EDGES = "edge_index"
NOT_FETCHED = (EDGES, "num_nodes")
FLAT = -1
"""Stands for the dimension of values of one dimension, which a feature holds as rows of one number."""


@dataclass(frozen=True, eq=False)
class DataFeatures:
    """The features that mini-batches get, and the object that they are filled into.

    Example:
        >>> from graphfeed import BasicFeatureStore, TorchBasedFeature
        >>> store = BasicFeatureStore({("node", None, "x"): TorchBasedFeature(torch.eye(3))})
        >>> DataFeatures(store, node_names={"": ["x"]}).typed
        False
    """

    store: FeatureStore
    node_names: dict[str, list[str]] = field(default_factory=dict)
    """The names of node features by type; of a graph without types, by ""."""
    edge_names: dict[str, list[str]] = field(default_factory=dict)
    """The names of edge features by type."""
    template: Any = None
    """A `Data` or `HeteroData` that each mini-batch begins as, without the features; None: an empty one."""
    dims: dict[tuple[str, str], int] = field(default_factory=dict)
    """The dimension of nodes or edges, by type and name, where it is not the first; `FLAT` where it is the only one."""

    @property
    def typed(self) -> bool:
        """Whether the graph has types."""
        return HOMOGENEOUS not in self.node_names

    def keys(self, names: dict[str, list[str]]) -> Any:
        """Return names as `fetch_feature` takes them."""
        return names if self.typed else names.get(HOMOGENEOUS, [])


def read_features(data: Any, custom_cls: Any = None) -> DataFeatures:
    """Return the features of a PyG `Data` or `HeteroData`, which share its memory, or those of a pair of stores.

    Args:
        data: The data, or a pair of stores.
        custom_cls: What mini-batches of a pair of stores are made of; None: a `Data` or a `HeteroData`.

    Raises:
        TypeError: A feature is neither a dense tensor nor an array.
        ValueError: A feature requires a gradient, which does not reach it from a mini-batch.
    """
    data = as_data(data)
    if isinstance(data, StorePair):
        return features_of_stores(data, custom_cls)
    template = copy.copy(data)
    features: dict[Any, Any] = {}
    dims: dict[tuple[str, str], int] = {}
    typed = not hasattr(data, "_store")
    kinds = kinds_of(data, typed=typed)
    node_names: dict[str, list[str]] = {kind: [] for kind in kinds[0]}
    edge_names: dict[str, list[str]] = {kind: [] for kind in kinds[1]}
    for own, empty in zip(stores_of(data), stores_of(template), strict=True):
        kind = HOMOGENEOUS if own._key is None else type_name(own._key)
        for name, value in own.items():
            domain = domain_of(own, name)
            if domain is None:
                continue
            place = kind or "", name
            rows, dim = as_rows(value, f"{name!r} of {kind!r}" if kind else repr(name), dim_of(own, name, value))
            if dim:
                dims[place] = dim
            features[domain, kind or None, name] = TorchBasedFeature(rows)
            (node_names if domain == "node" else edge_names)[kind].append(name)
            empty._mapping[name] = None  # keeps its place among the attributes
        for name in NOT_FETCHED:
            if name in own:
                empty._mapping[name] = None
    return DataFeatures(BasicFeatureStore(features), node_names, edge_names, template, dims)


def contents_of(data: Any) -> dict[Any, Any]:
    """Return something by which a change of the attributes shows while `read_features` of them is kept."""
    if isinstance(data, StorePair):
        return dict.fromkeys(data.features)
    stores = [*stores_of(data), *([data._global_store] if hasattr(data, "_global_store") else [])]
    values = {(store._key, name): value for store in stores for name, value in store.items() if name != EDGES}
    # Features hold the memory of tensors, and the template all else, so nothing new can lie in the same place.
    return {place: where(value) for place, value in values.items()}


def where(value: Any) -> Any:
    """Return where a value lies, and how it is read."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
    return id(value)


def features_of_stores(data: StorePair, custom_cls: Any) -> DataFeatures:
    """Return the features of a pair of stores; each mini-batch reads its rows from there."""
    module = import_pyg("torch_geometric.data", "a pair of stores")
    typed = isinstance(data, StoreHeteroData)
    make = custom_cls or (module.HeteroData if typed else module.Data)
    template = make()
    kinds = kinds_of(data, typed=typed)
    node_names = {kind: data.names_of("node", kind or None) for kind in kinds[0]}
    edge_names = {kind: data.names_of("edge", kind or None) for kind in kinds[1]}
    for kind, names in node_names.items():
        if names:
            (template[kind] if typed else template._store)._mapping["num_nodes"] = None  # filled in, as PyG does
    return DataFeatures(BasicFeatureStore(data.features), node_names, edge_names, template)


def stores_of(data: Any) -> list[Any]:
    """Return PyG's stores of nodes and edges; without types they are one. What belongs to a whole graph is in none."""
    return [*data.node_stores, *data.edge_stores] if hasattr(data, "_global_store") else [data._store]


def kinds_of(data: Any, *, typed: bool) -> tuple[list[str], list[str]]:
    """Return the node types and the edge types."""
    if not typed:
        return [HOMOGENEOUS], [HOMOGENEOUS]
    return list(data.node_types), [type_name(kind) for kind in data.edge_types]


def domain_of(store: Any, name: str) -> str | None:
    """Tell whether a value of one of PyG's stores belongs to nodes or to edges; None if to neither."""
    if name in NOT_FETCHED:
        return None
    if name in ("adj", "adj_t"):
        raise TypeError(f"data has {name!r}, but edges are read from edge_index; leave out ToSparseTensor()")
    if store.is_node_attr(name):
        return "node"
    return "edge" if store.is_edge_attr(name) else None


def dim_of(store: Any, name: str, value: Any) -> int:
    """Return the dimension of a value in which nodes or edges are counted."""
    dim = store._parent().__cat_dim__(name, value, store)
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
    """Return rows that were read in the shape that the data have."""
    if dim == FLAT:
        return rows.squeeze(1)
    return rows.movedim(0, dim) if dim else rows
