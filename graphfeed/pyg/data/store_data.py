"""A pair of PyG's `FeatureStore` and `GraphStore`, under the names that PyG's data have."""

from functools import cached_property
from typing import Any, TypeAlias

import torch

from graphfeed.ops.arguments import brief
from graphfeed.pyg.data.edge_list import EdgeList
from graphfeed.pyg.data.store_feature import StoreFeature
from graphfeed.storage.graph.type_names import type_name

Kind: TypeAlias = str | tuple[str, str, str] | None
"""A node type, an edge type, or None where there are no types."""

LAYOUTS = ("csc", "coo", "csr")
"""Which layout of a type's edges is read if the store has several; an edge's id is its position in it."""


def as_data(data: Any) -> Any:
    """Return data of PyG's as they are, and a pair of stores under the names that data have.

    Raises:
        TypeError: `data` is neither.
        ValueError: The stores have no edges, or types for some of them only.
    """
    if hasattr(data, "node_stores") and hasattr(data, "edge_stores"):
        return data
    if isinstance(data, (tuple, list)) and len(data) == 2:
        features, graph = data
        if hasattr(features, "get_all_tensor_attrs") and hasattr(graph, "get_all_edge_attrs"):
            attrs = list(graph.get_all_edge_attrs())
            if not attrs:
                raise ValueError("the graph store has no edges; put some with put_edge_index()")
            typed = sum(attr.edge_type is not None for attr in attrs)
            if 0 < typed < len(attrs):
                raise ValueError("the graph store has edges with and without a type; give all of them one, or none")
            return (StoreHeteroData if typed else StoreData)(features, graph, attrs)
    raise TypeError(
        "data must be a Data or HeteroData of PyG, or a pair (FeatureStore, GraphStore), but is a "
        f"{type(data).__name__}{' of ' + brief(data) if isinstance(data, (tuple, list)) else ''}"
    )


class StoreTable:
    """What the stores have of a node type, of an edge type, or of a graph without types; read when it is asked for."""

    def __init__(self, owner: "StorePair", kind: Kind) -> None:
        self._owner, self._kind = owner, kind
        domains = ("node", "edge") if kind is None else ("edge",) if isinstance(kind, tuple) else ("node",)
        self._names = {domain: owner.names_of(domain, kind) for domain in domains}
        both = set(self._names.get("node", ())) & set(self._names.get("edge", ()))
        if both:
            raise ValueError(f"feature {min(both)!r} is there for nodes and for edges; rename one of them")

    def is_node_attr(self, name: str) -> bool:
        """Tell whether nodes have a feature of that name."""
        return name in self._names.get("node", ())

    def is_edge_attr(self, name: str) -> bool:
        """Tell whether edges have a feature of that name."""
        return name in self._names.get("edge", ())

    def keys(self) -> list[str]:
        """Return the names of all features."""
        return sorted(name for names in self._names.values() for name in names)

    def __contains__(self, name: str) -> bool:
        return self.is_node_attr(name) or self.is_edge_attr(name)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._owner.features["node" if self.is_node_attr(name) else "edge", type_name(self._kind), name].read()

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self._owner.count_nodes(self._kind)

    @property
    def edge_index(self) -> torch.Tensor:
        """Sources and destinations, shape (2, E), in the order of the stored edges."""
        return torch.stack(self.edge_list(reverse=False).ends())

    def edge_list(self, *, reverse: bool) -> EdgeList:
        """Return the edges, with source and destination exchanged if `reverse`."""
        return self._owner.edge_list(self._kind, reverse=reverse)


class StorePair:
    """What `StoreData` and `StoreHeteroData` share."""

    def __init__(self, features: Any, graph: Any, edge_attrs: list[Any]) -> None:
        self._graph = graph
        # Of each type the layout that is read, the types in the order of the store.
        self._edge_attrs: dict[Any, Any] = dict.fromkeys(attr.edge_type for attr in edge_attrs)
        for attr in sorted(edge_attrs, key=lambda attr: LAYOUTS.index(attr.layout.value), reverse=True):
            self._edge_attrs[attr.edge_type] = attr
        self._sizes = [(attr.edge_type, attr.size) for attr in edge_attrs if attr.size is not None]
        self.features: dict[tuple[str, str | None, str], StoreFeature] = {}
        for attr in features.get_all_tensor_attrs():
            group = getattr(attr, "group_name", None)
            domain = "edge" if isinstance(group, tuple) else "node"
            self.features[domain, type_name(self.owner_of(group)), attr.attr_name] = StoreFeature(features, attr)

    def owner_of(self, group: Any) -> Kind:
        """Return the type that a group of features belongs to."""
        raise NotImplementedError

    def names_of(self, domain: str, kind: Kind) -> list[str]:
        """Return the names of the features of a type."""
        return [name for of, owner, name in self.features if (of, owner) == (domain, type_name(kind))]

    def count_nodes(self, kind: Kind) -> int:
        """Return the number of nodes of a type: what the edges' sizes say, or else its first feature."""
        sizes = [
            count
            for edge_type, size in self._sizes
            for end, count in zip((None, None) if edge_type is None else edge_type[::2], size, strict=True)
            if end == kind
        ]
        if sizes:
            return int(max(sizes))
        names = self.names_of("node", kind)
        if not names:
            owner = "the graph" if kind is None else f"node type {kind!r}"
            raise ValueError(f"{owner} has neither a feature nor a size; put its edges with size=(..., ...)")
        return self.features["node", type_name(kind), names[0]].count()

    def edge_list(self, kind: Kind, *, reverse: bool) -> EdgeList:
        """Return the edges of a type; an edge's id is its position in the layout that is read (`LAYOUTS`)."""
        attr = self._edge_attrs[kind]
        row, column = (part.detach().cpu() for part in self._graph.get_edge_index(attr))
        layout = attr.layout.value
        if layout == "coo":
            return EdgeList(column, row) if reverse else EdgeList(row, column)
        # Rows are the columns of the reversed edges.
        grouped = EdgeList(row, indptr=column) if layout == "csc" else EdgeList(column, indptr=row)
        return grouped if (layout == "csr") == reverse else EdgeList(*grouped.ends()[::-1])


class StoreData(StorePair):
    """A pair of stores whose edges have no type, as a `Data`. Edge features are those of a group that is a tuple."""

    @cached_property
    def node_stores(self) -> list[StoreTable]:
        """The one table."""
        return [StoreTable(self, None)]

    @property
    def edge_stores(self) -> list[StoreTable]:
        """The same table."""
        return self.node_stores

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.count_nodes(None)

    @property
    def edge_index(self) -> torch.Tensor:
        """The edges, shape (2, E)."""
        return self.node_stores[0].edge_index

    def owner_of(self, group: Any) -> Kind:
        """Return None; groups that are texts are types, which the edges don't have.

        Raises:
            ValueError: The group is a node type.
        """
        if isinstance(group, str):
            raise ValueError(f"the feature store has the node type {group!r}, but the edges have no types")
        return None


class StoreHeteroData(StorePair):
    """A pair of stores whose edges have types, as a `HeteroData`."""

    @property
    def edge_types(self) -> list[tuple[str, str, str]]:
        """The edge types."""
        return list(self._edge_attrs)

    @cached_property
    def node_types(self) -> list[str]:
        """The node types: those with features, then those that only edges name."""
        of_features = [kind for domain, kind, _ in self.features if domain == "node" and kind is not None]
        return list(dict.fromkeys([*of_features, *(end for kind in self._edge_attrs for end in kind[::2])]))

    @property
    def node_stores(self) -> list[StoreTable]:
        """A table for each node type."""
        return [self[kind] for kind in self.node_types]

    @property
    def edge_stores(self) -> list[StoreTable]:
        """A table for each edge type."""
        return [self[kind] for kind in self.edge_types]

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all types."""
        return sum(map(self.count_nodes, self.node_types))

    def __getitem__(self, kind: Any) -> StoreTable:
        return StoreTable(self, kind)

    def owner_of(self, group: Any) -> Kind:
        """Return the node type or the edge type.

        Raises:
            ValueError: The group is neither.
        """
        if isinstance(group, str) or group in self._edge_attrs:
            return group  # type: ignore[no-any-return]
        raise ValueError(
            f"the feature store has the group {brief(group)}, which is neither a node type nor one of the edge types "
            f"{list(self._edge_attrs)}"
        )
