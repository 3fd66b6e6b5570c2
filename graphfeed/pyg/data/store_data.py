"""A pair of PyG's `FeatureStore` and `GraphStore`, with the same tables of nodes and edges as PyG's data."""

import copy
from typing import Any, NamedTuple, Self, TypeAlias

import torch

from graphfeed.ops.arguments import as_tensor, brief
from graphfeed.ops.structure import expand_indptr
from graphfeed.storage import Feature
from graphfeed.storage.features import StoreKey
from graphfeed.storage.graph import type_name


class StoreEdges(NamedTuple):
    """Edges in their stored order; the id of an edge is its position.

    Example:
        >>> [part.tolist() for part in StoreEdges(torch.tensor([1, 2, 0]), indptr=torch.tensor([0, 2, 2, 3])).ends()]
        [[1, 2, 0], [0, 0, 2]]
    """

    source: torch.Tensor
    destination: torch.Tensor | None = None
    indptr: torch.Tensor | None = None
    """Offsets of the edges of each destination, if edges are grouped by it; `destination` may then be None."""

    @classmethod
    def from_index(cls, index: Any, *, reverse: bool = False) -> Self:
        """Return the edges of an `edge_index`, shape (2, E), reversed if `reverse`.

        A PyG `EdgeIndex` that is sorted by destination is not sorted again. If it isn't sorted, it is a ValueError.
        """
        ends = plain_index(index)
        source, destination = ends[int(reverse)], ends[int(not reverse)]
        if not is_edge_index(index) or not (index.is_sorted_by_row if reverse else index.is_sorted_by_col):
            return cls(source, destination)
        # PyG doesn't verify the sort order of an EdgeIndex, and wrong pointers would move edges to other nodes.
        if bool((destination[1:] < destination[:-1]).any()):
            raise ValueError(
                f"edge_index claims to be sorted by {'row' if reverse else 'col'}, but is not; give the EdgeIndex "
                "without sort_order, or sort it with sort_by()"
            )
        return cls(source, destination, index.get_indptr().cpu())

    def ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sources and destinations."""
        if self.destination is not None:
            return self.source, self.destination
        assert self.indptr is not None
        return self.source, expand_indptr(self.indptr, dtype=torch.int64, output_size=len(self.source))

    def __len__(self) -> int:
        return len(self.source)


def plain_index(index: Any) -> torch.Tensor:
    plain: torch.Tensor = index.as_tensor() if is_edge_index(index) else index.as_subclass(torch.Tensor)
    return plain.detach().cpu()


def is_edge_index(index: Any) -> bool:
    return hasattr(index, "get_indptr") and hasattr(index, "as_tensor")


def check_index_tensor(index: Any, owner: str) -> None:
    """Raise unless an `edge_index` is a tensor of ids, shape (2, E); `owner` is the edge type, or "data"."""
    wanted = f"edge_index of {owner} must be a tensor of ids, shape (2, E)"
    if not isinstance(index, torch.Tensor) or index.layout != torch.strided:
        raise TypeError(f"{wanted}, but is {brief(index)}; give torch.stack([sources, destinations])")
    if index.dim() != 2 or len(index) != 2:
        raise ValueError(
            f"{wanted}, but has shape {tuple(index.shape)}; if it has a row for each edge, transpose it with "
            ".t().contiguous()"
        )
    # Without edges, any dtype is allowed: torch.empty(2, 0) is float32.
    if index.numel() and (index.is_floating_point() or index.is_complex() or index.dtype == torch.bool):
        raise TypeError(f"{wanted}, but is {index.dtype}; convert it with .long()")


class StoreFeature(Feature):
    """Reads rows of a PyG `FeatureStore` with `get_tensor`, so that only the requested rows are in memory."""

    def __init__(self, store: Any, attr: Any) -> None:
        self._store, self._attr = store, copy.copy(attr)
        if not self._attr.is_set("group_name"):
            self._attr.group_name = None  # PyG's `Data` leaves it unset, but its `get_tensor` requires it

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        attr = copy.copy(self._attr)
        attr.index = None if ids is None else ids.to(torch.int64)
        rows = self._store.get_tensor(attr, convert_type=True)
        if rows is None:
            raise KeyError(f"{self} is not in the feature store")
        rows = as_tensor(str(self), rows)
        if ids is not None and len(rows) != len(ids):
            raise ValueError(f"{self} has {len(rows)} rows for {len(ids)} ids; get_tensor must return one for each id")
        return rows

    def size(self) -> torch.Size:
        return self._shape()[1:]

    def count(self) -> int:
        return self._shape()[0]

    def _shape(self) -> torch.Size:
        attr = copy.copy(self._attr)
        attr.index = None
        size = self._store.get_tensor_size(attr)
        if size is None:
            raise ValueError(f"the feature store has no size of {self}; get_tensor_size must return it")
        return torch.Size(size)

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        del value, ids
        raise TypeError(f"{self} is read-only here; call update_tensor() of the feature store")

    def __repr__(self) -> str:
        group = getattr(self._attr, "group_name", None)
        owner = f" of {brief(group)}" if isinstance(group, (str, tuple)) else ""
        return f"feature {self._attr.attr_name!r}{owner} in {type(self._store).__name__}"


EdgeType: TypeAlias = tuple[str, str, str]
AnyType: TypeAlias = str | EdgeType | None
"""A node type, an edge type, or None without types."""

LAYOUTS = ("csc", "coo", "csr")
"""Order of preference if the store has several layouts of a type's edges. An edge's id is its position there."""


def end_types(edge_type: EdgeType | None) -> tuple[str | None, str | None]:
    return (None, None) if edge_type is None else (edge_type[0], edge_type[2])


class StorePair:
    """A pair of PyG's `FeatureStore` and `GraphStore`."""

    def __init__(self, features: Any, graph: Any) -> None:
        attrs = list(graph.get_all_edge_attrs())
        if not attrs:
            raise ValueError("the graph store has no edges; put some with put_edge_index()")
        self.typed = attrs[0].edge_type is not None
        if any((attr.edge_type is not None) != self.typed for attr in attrs):
            raise ValueError("the graph store has edges with and without a type; give all of them one, or none")
        self._graph = graph
        # For each edge type, in the order of the store, the layout to read.
        self._edge_attrs: dict[Any, Any] = dict.fromkeys(attr.edge_type for attr in attrs)
        # Later layouts of a type replace earlier ones, so the preferred one comes last.
        for attr in sorted(attrs, key=lambda attr: LAYOUTS.index(attr.layout.value), reverse=True):
            self._edge_attrs[attr.edge_type] = attr
        self._sizes = [(attr.edge_type, attr.size) for attr in attrs if attr.size is not None]
        self.features: dict[StoreKey, StoreFeature] = {}
        node_types = []
        untyped_groups = set()
        for attr in features.get_all_tensor_attrs():
            group = getattr(attr, "group_name", None)
            if not self.typed and not isinstance(group, tuple):
                untyped_groups.add(group)
            elif self.typed and not isinstance(group, str) and group not in self._edge_attrs:
                raise ValueError(
                    f"the feature store has the group {brief(group)}, which is neither a node type nor one of the edge "
                    f"types {list(self._edge_attrs)}"
                )
            feature = StoreFeature(features, attr)
            # Without edge types, a group that is a tuple has edge features; the group of the nodes may have some, too.
            of_edges = isinstance(group, tuple) or (not self.typed and self._has_row_for_each_edge(feature, attr))
            domain = "edge" if of_edges else "node"
            of_type = type_name(group) if self.typed else None
            self.features[domain, of_type, attr.attr_name] = feature
            node_types += [of_type] if domain == "node" else []
        if len(untyped_groups) > 1:
            raise ValueError(
                f"the feature store has the groups {sorted(map(str, untyped_groups))} of nodes, but the edges have no "
                "types; give all features of nodes one group name"
            )
        node_types += [end for of_type in self._edge_attrs for end in of_type[::2]] if self.typed else [None]
        self.nodes: dict[str | None, StoreTable] = {
            of_type: StoreTable(self, of_type) for of_type in dict.fromkeys(node_types)
        }
        self.edges: dict[EdgeType | None, StoreTable] = {
            of_type: StoreTable(self, of_type) if self.typed else self.nodes[None] for of_type in self._edge_attrs
        }

    def _has_row_for_each_edge(self, feature: StoreFeature, attr: Any) -> bool:
        # Without types, nodes and edges may share a group; the name and the number of rows tell them apart.
        if "edge" not in attr.attr_name or not self._sizes:
            return False
        return feature.count() == len(self.edge_list(None, reverse=False))

    def names_of(self, domain: str, of_type: AnyType) -> list[str]:
        return [name for of, owner, name in self.features if (of, owner) == (domain, type_name(of_type))]

    def count_nodes(self, of_type: AnyType) -> int:
        """Return the number of nodes of a type, from the sizes of the edges or else from its first feature."""
        sizes = [
            count
            for edge_type, size in self._sizes
            for end, count in zip(end_types(edge_type), size, strict=True)
            if end == of_type
        ]
        if sizes:
            return int(max(sizes))
        names = self.names_of("node", of_type)
        if not names:
            owner = "the graph" if of_type is None else f"node type {of_type!r}"
            raise ValueError(f"{owner} has neither a feature nor a size; put its edges with size=(..., ...)")
        return self.features["node", type_name(of_type), names[0]].count()

    def edge_list(self, of_type: AnyType, *, reverse: bool) -> StoreEdges:
        """Return the edges of a type; an edge's id is its position in the preferred layout (`LAYOUTS`)."""
        attr = self._edge_attrs[of_type]
        index, layout = self._graph.get_edge_index(attr), attr.layout.value
        # PyG's stores return a pair of tensors; one of them is an indptr unless the layout is COO.
        if not isinstance(index, (tuple, list)) or [isinstance(part, torch.Tensor) for part in index] != [True, True]:
            check_index_tensor(index, type_name(of_type) or "the graph store")
        row, column = (part.detach().cpu() for part in index)
        if layout == "coo":
            return StoreEdges(column, row) if reverse else StoreEdges(row, column)
        # CSR has the columns of the reversed edges.
        grouped = StoreEdges(row, indptr=column) if layout == "csc" else StoreEdges(column, indptr=row)
        return grouped if (layout == "csr") == reverse else StoreEdges(*grouped.ends()[::-1])


class StoreTable:
    """The values that a `StorePair` has of a node type, an edge type or an untyped graph, read on access."""

    def __init__(self, owner: StorePair, of_type: AnyType) -> None:
        self._owner, self._kind = owner, of_type
        self._names = {domain: set(owner.names_of(domain, of_type)) for domain in ("node", "edge")}
        both = self._names["node"] & self._names["edge"]
        if both:
            raise ValueError(f"feature {min(both)!r} exists for nodes and for edges; rename one of them")

    def is_node_attr(self, name: str) -> bool:
        return name in self._names["node"]

    def is_edge_attr(self, name: str) -> bool:
        return name in self._names["edge"]

    def keys(self) -> list[str]:
        return sorted(self._names["node"] | self._names["edge"])

    def __contains__(self, name: str) -> bool:
        return self.is_node_attr(name) or self.is_edge_attr(name)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._owner.features["node" if self.is_node_attr(name) else "edge", type_name(self._kind), name].read()

    @property
    def num_nodes(self) -> int:
        return self._owner.count_nodes(self._kind)

    def edge_list(self, *, reverse: bool) -> StoreEdges:
        return self._owner.edge_list(self._kind, reverse=reverse)
