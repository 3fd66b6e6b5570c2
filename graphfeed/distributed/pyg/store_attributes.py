"""What names a tensor or a list of edges in the stores, and what the stores need to know of a partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from graphfeed.distributed.partition.part_layout import map_entry
from graphfeed.distributed.partition.part_layout import read_metadata as read_partition_json
from graphfeed.distributed.pyg.partition_pyg_layout import PyGLayout, meta_of
from graphfeed.ops.arguments import brief
from graphfeed.storage.graph import from_type_dict, split_by_type

EdgeType: TypeAlias = tuple[str, str, str]
Group: TypeAlias = Any
"""A node type or an edge type; without types, None for nodes and (None, None) for edges."""
EDGES = (None, None)
"""The group of the edges of a graph without types."""
Maps: TypeAlias = Any
"""The part of each node or edge; by type if there are types."""


class EdgeLayout(Enum):
    """How a list of edges is written."""

    COO = "coo"
    CSC = "csc"
    CSR = "csr"


@dataclass
class LocalTensorAttr:
    """Names a tensor of a `LocalFeatureStore`."""

    group_name: Group = None
    """A node type or an edge type; without types, None for nodes and (None, None) for edges."""
    attr_name: str | None = None
    index: Any = None
    """Which rows; None: all of them."""

    @classmethod
    def cast(cls, *args: Any, **kwargs: Any) -> "LocalTensorAttr":
        """Return what calls of a store name: fields, or an object with these attributes, such as PyG's."""
        attr = cls(*args, **kwargs)
        if len(args) == 1 and not kwargs and not isinstance(args[0], str | None):
            given = args[0]
            fields = [given.group_name, given.attr_name, given.index] if hasattr(given, "attr_name") else given
            attr = cls(**fields) if isinstance(fields, Mapping) else cls(*map(without_status, fields))
        if not isinstance(attr.attr_name, str):
            raise ValueError(f"attr_name must be a string, but is {brief(attr.attr_name)}; name the tensor")
        return attr


def without_status(value: Any) -> Any:
    # PyG says by `UNSET` of an enum that a field was not given.
    return None if getattr(value, "name", None) == "UNSET" else value


@dataclass
class LocalEdgeAttr:
    """Names a list of edges of a `LocalGraphStore`."""

    edge_type: EdgeType | None
    """None without types."""
    layout: Any
    """An `EdgeLayout`, or its value."""
    is_sorted: bool = False
    """Whether edges are sorted by destination."""
    size: tuple[int | None, int | None] | None = None
    """The number of sources and of destinations."""

    def __post_init__(self) -> None:
        self.layout = EdgeLayout(getattr(self.layout, "value", self.layout))

    @classmethod
    def cast(cls, *args: Any, **kwargs: Any) -> "LocalEdgeAttr":
        if len(args) == 1 and not kwargs and hasattr(args[0], "layout"):
            # An object with these attributes, such as PyG's.
            given = args[0]
            return cls(given.edge_type, given.layout, bool(given.is_sorted), given.size)
        return cls(*args, **kwargs)


class PartitionInfo(NamedTuple):
    """What all parts of a partition share."""

    meta: dict[str, Any]
    """What `META.json` says; the same of our own layout."""
    node_parts: Maps
    edge_parts: Maps
    """None where our own layout does not have the parts of edges, which only features of edges need."""
    layout: PyGLayout | None
    """None: the layout is our own."""


def read_info(root: Path) -> PartitionInfo:
    """Return what the files of a partition say of all parts."""
    layout = PyGLayout.find(root)
    if layout is not None:
        return PartitionInfo(layout.meta, by_group(layout.node_maps), by_group(layout.edge_maps), layout)
    metadata = read_partition_json(root)
    shared = {(entry.role, *entry.key): map_entry(root, entry) for entry in metadata.shared}
    node_maps = split_by_type(shared["node_parts",], metadata.num_nodes)
    edge_maps = {key[0]: parts for (role, *key), parts in shared.items() if role == "edge_parts"}
    meta = meta_of(len(metadata.parts), metadata.num_nodes, metadata.edge_type_to_id or ())
    return PartitionInfo(meta, by_group(node_maps), by_group(edge_maps) if edge_maps else None, None)


def by_group(maps: Mapping[str | None, Any]) -> Any:
    """Return values by type as the stores have them: edge types as tuples, and without types the only value."""
    return from_type_dict({group_of(type_name): values for type_name, values in maps.items()})


def group_of(type_name: str | None, *, edges: bool = False) -> Group:
    if type_name is None:
        return EDGES if edges else None
    return tuple(type_name.split(":")) if ":" in type_name else type_name


def type_of(group: Group) -> str | None:
    return None if group in (None, EDGES) else ":".join(group) if isinstance(group, tuple) else group


def domain_of(group: Group) -> str:
    return "edge" if isinstance(group, tuple) else "node"
