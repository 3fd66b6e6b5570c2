"""Names of groups in the stores, and the data that all parts of a partition share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from graphfeed.distributed.partition.part_layout import map_entry
from graphfeed.distributed.partition.part_layout import read_metadata as read_partition_json
from graphfeed.distributed.pyg.partition_pyg_layout import PyGLayout, meta_of
from graphfeed.storage.graph import from_type_dict, split_by_type

EdgeType: TypeAlias = tuple[str, str, str]
Group: TypeAlias = Any
"""A node type or an edge type; without types, None for nodes and (None, None) for edges."""
EDGES = (None, None)
"""The group of the edges of a graph without types."""
Maps: TypeAlias = Any
"""The part of each node or edge; by type if there are types."""


class PartitionInfo(NamedTuple):
    """The data that all parts of a partition share."""

    meta: dict[str, Any]
    """Content of `META.json`; for graphfeed's layout, the equivalent."""
    node_parts: Maps
    edge_parts: Maps
    """None if a partition in graphfeed's layout lacks the parts of edges, which only features of edges need."""
    layout: PyGLayout | None
    """None for graphfeed's layout."""


def read_info(root: Path) -> PartitionInfo:
    """Read the files of a partition that all parts share."""
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
    """Convert a dict by type to the form of the stores: edge types as tuples, and without types the only value."""
    return from_type_dict({group_of(type_name): values for type_name, values in maps.items()})


def group_of(type_name: str | None, *, edges: bool = False) -> Group:
    if type_name is None:
        return EDGES if edges else None
    return tuple(type_name.split(":")) if ":" in type_name else type_name


def type_of(group: Group) -> str | None:
    return None if group in (None, EDGES) else ":".join(group) if isinstance(group, tuple) else group


def domain_of(group: Group) -> str:
    return "edge" if isinstance(group, tuple) else "node"
