"""PyG's data by type. Only this module depends on how PyG stores them, and it uses public names only."""

from dataclasses import dataclass
from typing import Any

from graphfeed.ops.arguments import brief, kind_of
from graphfeed.ops.process import import_optional, install_hint
from graphfeed.pyg.data.store_data import EdgeType, StorePair, check_index_tensor


@dataclass(frozen=True, eq=False)
class Tables:
    """Mappings from names to values, PyG's stores, of node types and edge types; under None without types."""

    nodes: dict[str | None, Any]
    edges: dict[EdgeType | None, Any]
    owner: Any = None
    """The data, kept alive because the tables refer to it weakly."""

    @property
    def typed(self) -> bool:
        """Whether the data have types."""
        return None not in self.nodes

    @property
    def by_type(self) -> dict[Any, Any]:
        """All tables by type; without types, the single table."""
        return {**self.nodes, **self.edges}

    def count_nodes(self, node_type: str | None = None) -> int:
        """Return the number of nodes, of a type if the data have types."""
        found = self.nodes[node_type].num_nodes
        if found is None:
            name, path = ("data", "data") if node_type is None else (f"node type {node_type!r}", f"data[{node_type!r}]")
            raise ValueError(f"{name} has no num_nodes; set {path}.num_nodes")
        return int(found)

    def edge_type(self, given: Any) -> EdgeType | None:
        """Resolve an edge type given in full, as (source, destination) or as (relation,); None if it is ambiguous.

        As in PyG, (source, destination) means the relation "to" if there are several.
        """
        given = tuple(given)
        found = [known for known in self.edges if known is not None and given in (known, known[::2], known[1:2])]
        # PyG names a relation "to" by default.
        default = (given[0], "to", given[-1])
        return found[0] if len(found) == 1 else default if default in found else None


def import_pyg(module: str, purpose: str) -> Any:
    """Import a module of PyG; the ImportError explains how to install it."""
    return import_optional(module, purpose, install_hint("pyg"))


def as_data(data: Any) -> Any:
    """Return PyG's data unchanged, and a tuple of stores as a `StorePair`."""
    if isinstance(data, StorePair) or is_data(data):
        return data
    if isinstance(data, (tuple, list)) and len(data) == 2:
        features, graph = data
        if hasattr(features, "get_all_tensor_attrs") and hasattr(graph, "get_all_edge_attrs"):
            return StorePair(features, graph)
    raise TypeError(
        "data must be a Data or HeteroData of PyG, or a pair (FeatureStore, GraphStore), but is a "
        f"{type(data).__name__}{' of ' + brief(data) if isinstance(data, (tuple, list)) else ''}"
    )


def tables_of(data: Any) -> Tables:
    """Return the tables of a `Data`, a `HeteroData` or a pair of stores; `Tables` are returned unchanged."""
    if isinstance(data, Tables):
        return data
    if hasattr(type(data), "node_items"):  # ask the class, as an instance may have any attribute
        return Tables(dict(data.node_items()), dict(data.edge_items()), data)
    data = as_data(data)
    if isinstance(data, StorePair):
        return Tables(data.nodes, data.edges)
    (table,) = data.node_stores
    return Tables({None: table}, {None: table}, data)


def is_data(data: Any) -> bool:
    """Return whether data are a `Data` or a `HeteroData`."""
    return hasattr(data, "node_stores") and hasattr(data, "edge_stores")


def check_edge_index(table: Any, owner: str) -> None:
    """Raise unless the edges of a table, if it has any, are an `edge_index` of shape (2, E)."""
    # Edges in a `SparseTensor` are not supported.
    for name in ("adj", "adj_t"):
        if name in table:
            raise ValueError(f"{owner} has {name!r}, but edges are read from edge_index; leave out ToSparseTensor()")
    if table.get("edge_index") is not None:
        check_index_tensor(table["edge_index"], owner)


def check_data(data: Any) -> None:
    # A pair of stores has no attributes to iterate over.
    if not is_data(data):
        raise TypeError(f"data must be a Data or HeteroData of PyG, but is {kind_of(data)}")


def check_untyped(data: Any, loader: str) -> None:
    import_pyg("torch_geometric.data", loader)
    if tables_of(data).typed:
        raise ValueError(f"data has types, but {loader} needs a Data without types; give data.to_homogeneous()")
