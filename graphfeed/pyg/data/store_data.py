"""A pair of PyG's `FeatureStore` and `GraphStore`, under the names that PyG's data have."""

from collections.abc import Iterable
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
"""Which layout of a type's edges is read if the store has several; an edge's id is its place in it."""


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

    def __init__(self, owner: "StorePair", kind: Kind, node_names: Iterable[str], edge_names: Iterable[str]) -> None:
        self._owner, self._key = owner, kind
        self._nodes, self._edges = set(node_names), set(edge_names)

    def is_node_attr(self, name: str) -> bool:
        """Tell whether nodes have a feature of that name."""
        return name in self._nodes

    def is_edge_attr(self, name: str) -> bool:
        """Tell whether edges have a feature of that name."""
        return name in self._edges

    def keys(self) -> list[str]:
        """Return the names of all features."""
        return sorted(self._nodes | self._edges)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes or name in self._edges

    def __getitem__(self, name: str) -> torch.Tensor:
        domain = "node" if name in self._nodes else "edge"
        kind = None if self._key is None else type_name(self._key)
        return self._owner.features[domain, kind, name].read()

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self._owner.count_nodes(self._key)

    @property
    def edge_index(self) -> torch.Tensor:
        """Sources and destinations, shape (2, E), in the order of the stored edges."""
        return torch.stack(self.edge_list(reverse=False).ends())

    def edge_list(self, *, reverse: bool) -> EdgeList:
        """Return the edges, with source and destination exchanged if `reverse`."""
        return self._owner.edge_list(self._key, reverse=reverse)


class StorePair:
    """What `StoreData` and `StoreHeteroData` share."""

    def __init__(self, features: Any, graph: Any, edge_attrs: list[Any]) -> None:
        self._graph = graph
        self._edge_attrs: dict[Any, Any] = {}
        for attr in sorted(edge_attrs, key=lambda attr: LAYOUTS.index(attr.layout.value)):
            self._edge_attrs.setdefault(attr.edge_type, attr)
        kinds = dict.fromkeys(attr.edge_type for attr in edge_attrs)  # in the order of the store
        self._edge_attrs = {kind: self._edge_attrs[kind] for kind in kinds}
        self._sizes = [(attr.edge_type, attr.size) for attr in edge_attrs if attr.size is not None]
        self.features: dict[tuple[str, str | None, str], StoreFeature] = {}
        for attr in features.get_all_tensor_attrs():
            self._add(features, attr)

    def _add(self, features: Any, attr: Any) -> None:
        group = getattr(attr, "group_name", None)
        domain = "edge" if isinstance(group, tuple) else "node"
        kind = self.owner_of(group)
        self.features[domain, None if kind is None else type_name(kind), attr.attr_name] = StoreFeature(features, attr)

    def owner_of(self, group: Any) -> Kind:
        """Return the type that a group of features belongs to."""
        raise NotImplementedError

    def names_of(self, domain: str, kind: Kind) -> list[str]:
        """Return the names of the features of a type."""
        wanted = None if kind is None else type_name(kind)
        return [name for own, owner, name in self.features if own == domain and owner == wanted]

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
        return self.features["node", kind, names[0]].count()  # type: ignore[index]

    def edge_list(self, kind: Kind, *, reverse: bool) -> EdgeList:
        """Return the edges of a type; an edge's id is its place in the layout that is read (`LAYOUTS`)."""
        attr = self._edge_attrs[kind]
        row, column = (part.detach().cpu() for part in self._graph.get_edge_index(attr))
        layout = attr.layout.value
        if layout == "coo":
            return EdgeList(column, row) if reverse else EdgeList(row, column)
        # Rows are the columns of the reversed edges.
        grouped = EdgeList.from_columns(column, row) if layout == "csc" else EdgeList.from_columns(row, column)
        if (layout == "csr") == reverse:
            return grouped
        source, destination = grouped.ends()
        return EdgeList(destination, source)


class StoreData(StorePair):
    """A pair of stores whose edges have no type, as a `Data`. Edge features are those of a group that is a tuple."""

    @cached_property
    def _store(self) -> StoreTable:
        names = self.names_of("node", None), self.names_of("edge", None)
        both = set(names[0]) & set(names[1])
        if both:
            raise ValueError(f"feature {min(both)!r} is there for nodes and for edges; rename one of them")
        return StoreTable(self, None, *names)

    @property
    def node_stores(self) -> list[StoreTable]:
        """The one table."""
        return [self._store]

    edge_stores = node_stores

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.count_nodes(None)

    @property
    def edge_index(self) -> torch.Tensor:
        """The edges, shape (2, E)."""
        return self._store.edge_index

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
        if isinstance(kind, tuple):
            return StoreTable(self, kind, (), self.names_of("edge", kind))
        return StoreTable(self, kind, self.names_of("node", kind), ())

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

    def _to_canonical(self, *kind: str) -> tuple[str, ...]:
        """Return an edge type for one that may lack its relation, or that is only a relation."""
        found = [known for known in self._edge_attrs if kind in (known, known[::2], known[1:2])]
        return found[0] if len(found) == 1 else kind
