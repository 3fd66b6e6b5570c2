"""Make a graph from edge lists."""

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex, TypeAlias

import torch

from graphfeed import ops
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.storage.graph.fused_csc_sampling_graph import (
    FusedCSCSamplingGraph,
    fused_csc_sampling_graph,
)
from graphfeed.storage.graph.one_hop import ORIGINAL_EDGE_ID

Edges: TypeAlias = torch.Tensor | Sequence[torch.Tensor]


def split_edges(name: str, edges: Edges) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sources and destinations from a pair of tensors, or from one of shape (2, E)."""
    if len(edges) != 2:
        shape = tuple(edges.shape) if isinstance(edges, torch.Tensor) else f"{len(edges)} parts"
        raise ValueError(f"{name} must be (sources, destinations) or a tensor of shape (2, E), but has {shape}")
    return edges[0], edges[1]


def from_coo(
    edges: Edges | Mapping[str, Edges],
    num_nodes: int | Mapping[str, int],
    *,
    node_attributes: Mapping[str, Any] | None = None,
    edge_attributes: Mapping[str, Any] | None = None,
    sort_by: str | None = None,
) -> FusedCSCSamplingGraph:
    """Make a graph from edge lists. The id of each edge is its row in the list, or in the list of its edge type.

    Edge attributes are sorted together with the edges. This takes a counting sort and, while it runs, 16 bytes per edge
    on top of the graph.

    Args:
        edges: (sources, destinations), or a tensor of shape (2, E), int32 or int64. With types, a dict of these by
            "source:relation:destination", where the ids of each node type begin at 0.
        num_nodes: The number of nodes; with types, by node type, in the order that the types will have.
        node_attributes: Tensors by name; with types, by name and node type, with all types.
        edge_attributes: Tensors in the order of the edge list, by name; with types, by name and edge type.
        sort_by: An edge attribute of integers, such as a time, by which the in-edges of each node are sorted, with
            types inside each edge type; equal values stay in the order of the list. Temporal sampling by this attribute
            then needs no index, which saves 16 bytes per edge and a sort at the first mini-batch. It takes a sort of
            each column here, and changes which edges are sampled. By default, in-edges are in the order of the list.

    Raises:
        KeyError: An attribute that lacks a type, or no attribute of the name in `sort_by`.
        TypeError: Values to sort by that are not integers.
        ValueError: An id that its node type doesn't have, lengths that don't match, or an unknown type.

    Example:
        >>> from_coo({"user:likes:item": ([0, 1], [2, 2])}, {"user": 2, "item": 3})
        FusedCSCSamplingGraph(num_nodes=5, num_edges=2, node_types=['user', 'item'], edge_types=1)
        >>> from_coo(([0, 1], [0, 0]), 2, edge_attributes={"time": torch.tensor([9, 4])}, sort_by="time").indices
        tensor([1, 0])
    """
    if sort_by is not None and sort_by not in (edge_attributes or {}):
        raise KeyError(f"sort_by is {sort_by!r}, but edge_attributes has {list(edge_attributes or {})}; add it there")
    if isinstance(edges, Mapping) != isinstance(num_nodes, Mapping):
        raise TypeError("edges and num_nodes must both be dicts by type, or neither; one is and the other isn't")
    if isinstance(edges, Mapping):
        assert isinstance(num_nodes, Mapping)
        return from_typed_coo(edges, num_nodes, node_attributes or {}, edge_attributes or {}, sort_by)
    assert not isinstance(num_nodes, Mapping)
    num_nodes = check_count("num_nodes", num_nodes)
    sources, destinations = (torch.as_tensor(part) for part in split_edges("edges", edges))
    columns = ops.coo_to_csc(sources, destinations, num_nodes)
    if sort_by is not None:
        assert edge_attributes is not None
        columns = sort_columns(columns, pick_rows(sort_by, edge_attributes[sort_by], columns.order))
    attributes = {name: pick_rows(name, values, columns.order) for name, values in (edge_attributes or {}).items()}
    attributes.setdefault(ORIGINAL_EDGE_ID, columns.order)
    return fused_csc_sampling_graph(
        columns.indptr, columns.indices, node_attributes=node_attributes, edge_attributes=attributes
    )


def check_count(name: str, count: SupportsIndex) -> int:
    """Return a number of nodes as an int, or raise if it is not one."""
    if not hasattr(count, "__index__"):
        raise TypeError(f"{name} must be an int, but is a {type(count).__name__}")
    if index(count) < 0:
        raise ValueError(f"{name} must be 0 or more, but is {index(count)}")
    return index(count)


def stack(name: str, by_type: Mapping[str, torch.Tensor], rows: Mapping[str, int]) -> torch.Tensor:
    """Return an attribute of all types, type after type."""
    if set(by_type) != set(rows):
        raise KeyError(f"{name} must have the types {list(rows)}, but has {list(by_type)}")
    for kind, count in rows.items():
        if len(by_type[kind]) != count:
            raise ValueError(f"{name}[{kind!r}] must have {count} rows, but has {len(by_type[kind])}")
    return torch.cat([by_type[kind] for kind in rows])


def pick_rows(name: str, values: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return an edge attribute in the graph's order."""
    if len(values) != order.numel():
        raise ValueError(
            f"edge_attributes[{name!r}] must have {order.numel()} rows, one per edge, but has {len(values)}"
        )
    return ops.gather_rows(values, order)


def sort_columns(columns: ops.Columns, values: torch.Tensor, types: torch.Tensor | None = None) -> ops.Columns:
    """Sort the edges of each column, or of each type in it, by some values."""
    found = ops.order_by_time(columns.indptr, ops.as_times("the values to sort by", values), types)
    if found.order is None:
        return columns
    places = ops.places_in_order(columns.indptr, found.order)
    indices, order = ops.gather_rows(columns.indices, places), ops.gather_rows(columns.order, places)
    return columns._replace(indices=indices, order=order)


def from_typed_coo(
    edges: Mapping[str, Edges],
    num_nodes: Mapping[str, int],
    node_attributes: Mapping[str, Mapping[str, torch.Tensor]],
    edge_attributes: Mapping[str, Mapping[str, torch.Tensor]],
    sort_by: str | None,
) -> FusedCSCSamplingGraph:
    """Concatenate the edge lists, edge type after edge type, and sort them by destination in a stable way."""
    if not edges:
        raise ValueError("edges is empty; give an edge list for at least one edge type")
    num_nodes = {kind: check_count(f"num_nodes[{kind!r}]", count) for kind, count in num_nodes.items()}
    offsets, total = {}, 0
    for kind, count in num_nodes.items():
        offsets[kind] = total
        total += count
    sources: list[torch.Tensor] = []
    destinations: list[torch.Tensor] = []
    for edge_type, pair in edges.items():
        parts = edge_type.split(":")
        if len(parts) != 3 or parts[0] not in offsets or parts[2] not in offsets:
            raise ValueError(
                f"edges has type {edge_type!r}; an edge type is 'source:relation:destination' "
                f"with node types of num_nodes, {list(num_nodes)}"
            )
        ends = [torch.as_tensor(part) for part in split_edges(f"edges[{edge_type!r}]", pair)]
        if len(ends[0]) != len(ends[1]):
            raise ValueError(
                f"edges[{edge_type!r}] has {len(ends[0])} sources and {len(ends[1])} destinations; give one per edge"
            )
        for ids, kind, stacked in zip(ends, (parts[0], parts[2]), (sources, destinations), strict=True):
            check_vector(f"edges[{edge_type!r}]", ids)
            check_ids(f"edges[{edge_type!r}] (ids of {kind!r})", ids, num_nodes[kind])
            stacked.append(ids.to(torch.int64) + offsets[kind])
    rows = {edge_type: len(part) for edge_type, part in zip(edges, sources, strict=True)}
    counts = torch.tensor(list(rows.values()))
    columns = ops.coo_to_csc(torch.cat(sources), torch.cat(destinations), total)
    kinds = torch.repeat_interleave(torch.arange(len(counts)), counts)
    own_rows = torch.cat([torch.arange(int(count)) for count in counts])
    stacked_attributes = {
        name: stack(f"edge_attributes[{name!r}]", by_type, rows) for name, by_type in edge_attributes.items()
    }
    if sort_by is not None:
        values = ops.gather_rows(stacked_attributes[sort_by], columns.order)
        columns = sort_columns(columns, values, kinds[columns.order])
    attributes = {name: ops.gather_rows(values, columns.order) for name, values in stacked_attributes.items()}
    attributes.setdefault(ORIGINAL_EDGE_ID, ops.gather_rows(own_rows, columns.order))
    return fused_csc_sampling_graph(
        columns.indptr,
        columns.indices,
        node_type_offset=torch.tensor([*offsets.values(), total]),
        type_per_edge=kinds[columns.order].to(torch.uint8 if len(edges) <= 256 else torch.int32),
        node_type_to_id={kind: number for number, kind in enumerate(num_nodes)},
        edge_type_to_id={kind: number for number, kind in enumerate(edges)},
        node_attributes={
            name: stack(f"node_attributes[{name!r}]", by_type, num_nodes) for name, by_type in node_attributes.items()
        },
        edge_attributes=attributes,
    )
