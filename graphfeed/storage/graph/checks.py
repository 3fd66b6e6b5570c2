"""Checks that arrays form a graph: of shapes and dtypes, and of values in passes over the arrays."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from graphfeed import ops
from graphfeed.ops.arguments import UnknownName, as_tensor, brief, check_vector, nearest
from graphfeed.ops.structure import TYPE_DTYPES, check_start_ends
from graphfeed.storage.graph.type_names import type_numbers

if TYPE_CHECKING:
    from graphfeed.storage.graph.graph_arrays import GraphArrays


ORIGINAL_EDGE_ID = "_ORIGINAL_EDGE_ID"
"""Edge attribute with the row of each edge in the edge list of its type."""
EDGES_AT_ONCE = 1 << 24
"""Number of edge ids processed in one step, which bounds the temporary memory."""


def as_attributes(domain: str, attributes: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: as_tensor(f"{domain}_attributes[{name!r}]", values) for name, values in attributes.items()}


def attribute(attributes: Mapping[str, torch.Tensor], name: str, domain: str) -> torch.Tensor:
    if not isinstance(name, str):
        raise TypeError(f"the name of {domain.lower()} attributes must be a string, but is {brief(name)}")
    if name not in attributes:
        near = nearest(name, attributes) or f"; the graph has {sorted(attributes)!s:.160}"
        raise UnknownName(f"{domain} attribute {name!s:.80} does not exist{near}")
    return attributes[name]


def value_where_missing(domain: str, values: torch.Tensor) -> torch.Tensor | None:
    """Return the default value for types without the attribute, shape (1,); None if all types must have it.

    Without a time, nodes and edges always exist. Edges without a weight or a mask have weight 1 or True.
    """
    if values.dim() != 1:  # rows of features
        return None
    if values.dtype == torch.bool or values.is_floating_point():
        return torch.ones(1, dtype=values.dtype, device="cpu") if domain == "edge" else None
    return torch.tensor([ops.ALWAYS], device="cpu")


def check_attributes(domain: str, attributes: Mapping[str, torch.Tensor], rows: int) -> None:
    for name, values in attributes.items():
        check_attribute_rows(f"{domain}_attributes[{name!r}]", values, rows)


def check_attribute_rows(name: str, values: torch.Tensor, rows: int) -> None:
    """Raise unless an attribute has the given number of rows; `name` begins with "node" or "edge"."""
    count = values.shape[0] if values.dim() else "no dimension"
    if count != rows:
        raise ValueError(f"{name} must have {rows} rows, one for each {name[:4]}, but has {count}")


def count_edge_rows(graph: "GraphArrays", edge_type: str | None) -> int:
    """Return the number of rows that a feature of an edge type needs: the highest edge id plus 1.

    The first call takes a pass over the ids. Returns 0 for an unknown type, and for a graph in files that may not fit
    into memory, where a pass would be slow.
    """
    ids, types = graph.edge_attributes.get(ORIGINAL_EDGE_ID), graph.type_per_edge
    number = None if edge_type is None else (graph.edge_type_to_id or {}).get(edge_type)
    if (number is None) != (types is None) or graph.files_read().reads is not None:
        return 0
    if ids is None and types is None:
        return graph.total_num_edges

    def find_highest() -> tuple[torch.Tensor]:
        highest = -1
        for start in range(0, graph.total_num_edges, EDGES_AT_ONCE):
            part = slice(start, start + EDGES_AT_ONCE)
            found = None if ids is None else ids[part]
            if types is not None and number is not None:
                own = torch.eq(types[part], number).nonzero().squeeze(1)
                # By default, the id of an edge is its position.
                found = own + start if found is None else found[own]
            if found is not None and len(found):
                highest = max(highest, int(found.max()))
        return (torch.tensor([highest], device="cpu"),)

    (highest,) = graph.cached(f"highest edge id of {edge_type}", (ids, types), find_highest, whole=False)
    return int(highest) + 1


def check_shapes(graph: "GraphArrays") -> None:
    """Raise unless dtypes, lengths and the numbers of types are those of a graph; reads no values per edge."""
    check_vector("csc_indptr", graph.csc_indptr)
    check_vector("indices", graph.indices)
    check_start_ends("csc_indptr", graph.csc_indptr, graph.total_num_edges)
    check_type_numbers(graph)
    check_attributes("node", graph.node_attributes, graph.total_num_nodes)
    check_attributes("edge", graph.edge_attributes, graph.total_num_edges)


def check_type_numbers(graph: "GraphArrays") -> None:
    """Raise unless all or none of the type fields are set, and they agree with each other and the number of nodes."""
    num_nodes, num_edges = graph.total_num_nodes, graph.total_num_edges
    names = ["node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id"]
    node_type_offset, type_per_edge, node_type_to_id, edge_type_to_id = given = [vars(graph)[name] for name in names]
    missing = [name for name, value in zip(names, given, strict=True) if value is None]
    if len(missing) == len(names):
        return
    if missing:
        raise ValueError(f"a graph with types needs all of {names}, but {missing} is None")
    for name, ids in (("node_type_to_id", node_type_to_id), ("edge_type_to_id", edge_type_to_id)):
        # Numbers are positions in lists by type, so none may be missing.
        if sorted(ids.values()) != list(range(len(ids))):
            raise ValueError(f"{name} must number its types 0 .. {len(ids) - 1}, but is {brief(dict(ids))}")
    for edge_type in edge_type_to_id:
        parts = edge_type.split(":")
        if len(parts) != 3:
            raise ValueError(f"edge_type_to_id has {edge_type!r}; an edge type is 'source:relation:destination'")
        for part in (parts[0], parts[2]):
            if part not in node_type_to_id:
                raise ValueError(f"Unrecognized node type {part!r} in {edge_type!r}; there are {list(node_type_to_id)}")
    check_vector("type_per_edge", type_per_edge, TYPE_DTYPES)
    if type_per_edge.numel() != num_edges:
        raise ValueError(f"type_per_edge must have {num_edges} values, one per edge, but has {type_per_edge.numel()}")
    check_vector("node_type_offset", node_type_offset)
    offsets = node_type_offset.tolist()
    bounds = (offsets[0], offsets[-1]) if offsets else ()
    if len(offsets) != len(node_type_to_id) + 1 or bounds != (0, num_nodes) or offsets != sorted(offsets):
        raise ValueError(
            f"node_type_offset must have {len(node_type_to_id) + 1} values that rise from 0 to {num_nodes}, "
            f"but is {brief(offsets)}"
        )


def check_types(graph: "GraphArrays") -> None:
    """Raise unless edge types ascend in each column and agree with the types of their endpoints; in passes."""
    if graph.type_per_edge is None:
        return
    assert graph.node_type_to_id is not None
    assert graph.edge_type_to_id is not None
    ops.check_edge_types(graph.csc_indptr, graph.type_per_edge, len(graph.edge_type_to_id))
    if graph.total_num_edges:
        ends = type_numbers(graph.node_type_to_id, graph.edge_type_to_id).ends
        ops.check_endpoints(graph.csc_indptr, graph.indices, graph.type_per_edge, graph.node_type_offset, ends)
