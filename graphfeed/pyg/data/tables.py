"""PyG's data taken apart by type: the one place that knows how PyG stores them, by its public names only."""

from typing import Any, NamedTuple, TypeAlias

from graphfeed.ops.optional import import_optional

EdgeType: TypeAlias = tuple[str, str, str]


class Tables(NamedTuple):
    """What PyG calls stores: mappings from names to values, of nodes and of edges, by type.

    Data without types have one table for both, under None.
    """

    nodes: dict[str | None, Any]
    edges: dict[EdgeType | None, Any]

    @property
    def by_type(self) -> dict[Any, Any]:
        """Both; without types, the one table."""
        return {**self.nodes, **self.edges}


def import_pyg(module: str, purpose: str) -> Any:
    """Import a module of PyG, or raise an ImportError that says how to install it."""
    return import_optional(module, purpose, "pip install 'graphfeed[pyg]'")


def is_typed(data: Any) -> bool:
    """Tell whether data have node types and edge types, as a `HeteroData` has."""
    return hasattr(type(data), "node_types")  # of the class: an instance may have any attribute


def tables_of(data: Any) -> Tables:
    """Return the tables of a `Data`, a `HeteroData` or a pair of stores (`as_data`)."""
    if is_typed(data):
        return Tables({kind: data[kind] for kind in data.node_types}, {kind: data[kind] for kind in data.edge_types})
    (table,) = data.node_stores
    return Tables({None: table}, {None: table})


def edge_type_of(data: Any, given: Any) -> EdgeType | None:
    """Return the edge type of data that is given in full, as (source, destination) or as (relation,); None if unclear.

    As in PyG, (source, destination) means the relation "to" where there are several.
    """
    given = tuple(given)
    found = [kind for kind in data.edge_types if given in (kind, kind[::2], kind[1:2])]
    default = (given[0], "to", given[-1])
    return found[0] if len(found) == 1 else default if default in found else None


def count_nodes(data: Any, kind: str | None = None) -> int:
    """Return the number of nodes, of a type if there are types."""
    found = (data if kind is None else data[kind]).num_nodes
    if found is None:
        name = "data" if kind is None else f"node type {kind!r}"
        raise ValueError(f"{name} has no num_nodes; set {'data' if kind is None else f'data[{kind!r}]'}.num_nodes")
    return int(found)


def check_data(data: Any, loader: str | None = None) -> None:
    """Raise unless data are a `Data` or a `HeteroData`; with the name of a loader, unless they have no types.

    Raises:
        TypeError: They are something else, such as a pair of stores, which has no attributes to go through.
        ValueError: They have types.
    """
    if not hasattr(data, "node_stores") or not hasattr(data, "edge_stores"):
        raise TypeError(f"data must be a Data or HeteroData of PyG, but is a {type(data).__name__}")
    if loader is not None and is_typed(data):
        raise ValueError(f"data has types, but {loader} needs a Data without; give data.to_homogeneous()")
