"""Conversion of edge lists to graphs and of graphs to edge lists, and the addition of reverse edges."""

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple, TypeAlias, cast, overload

import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_ids, as_tensor, brief, check_count, check_ids, check_vector, checked
from graphfeed.ops.rows import gather_long_lived
from graphfeed.ops.structure import expand_indptr
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID, check_attribute_rows, value_where_missing
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph, fused_csc_sampling_graph
from graphfeed.storage.graph.type_names import EdgeType, by_type_name, ends_of, first_ids, has_ends, type_name
from graphfeed.storage.memory.memory_limits import check_nodes_fit

Edges: TypeAlias = torch.Tensor | Sequence[Any]
"""A pair of array-likes, or an array of shape (2, E)."""


def split_edges(name: str, edges: Edges) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sources and destinations of edges."""
    wanted = f"{name} must be (sources, destinations) or a tensor of shape (2, E)"
    pair = as_tensor(name, edges) if hasattr(edges, "__array__") else edges
    # A dict has a length, too, and two keys would pass for sources and destinations.
    if isinstance(pair, Mapping) or not hasattr(pair, "__len__"):
        raise TypeError(f"{wanted}, but is {brief(pair)}")
    shape = tuple(pair.shape) if isinstance(pair, torch.Tensor) else (len(pair),)
    if shape == (0,):
        pair, shape = torch.empty(2, 0, device="cpu"), (2, 0)  # no edges, given as torch.tensor([])
    if shape[:1] != (2,):
        is_list = not isinstance(pair, torch.Tensor)
        given = f"{len(pair)} parts" if is_list else f"shape {shape}{'; transpose it' if shape[1:] == (2,) else ''}"
        raise ValueError(f"{wanted}, but has {given}")
    sources, destinations = pair
    return as_ids(f"the sources of {name}", sources), as_ids(f"the destinations of {name}", destinations)


@checked
def from_coo(
    edges: Edges | Mapping[str, Edges] | Mapping[tuple[str, str, str], Edges],
    num_nodes: int | Mapping[str, int],
    *,
    node_attributes: Mapping[str, Any] | None = None,
    edge_attributes: Mapping[str, Any] | None = None,
    sort_by: str | None = None,
) -> FusedCSCSamplingGraph:
    """Create a graph from edge lists. The id of each edge is its row in the edge list of its type.

    This needs a counting sort and, temporarily, 16 bytes per edge in addition to the graph.

    Args:
        edges: (sources, destinations), or a tensor of shape (2, E), int32 or int64; arrays and lists of other integers
            are copied to int64. With types, a dict of these by "source:relation:destination" or by tuples of the
            three, like PyG's `edge_index_dict`; the ids of each node type begin at 0.
        num_nodes: Number of nodes; with types, a dict by node type, whose order becomes that of the types.
        node_attributes: Tensors or arrays by name; with types, by name and node type. Attributes of integers are times
            and may lack types, whose nodes then always exist.
        edge_attributes: Tensors or arrays by name, in the order of the edge list; with types, by name and edge type.
            Edges of missing types have weight 1, pass a mask, and always exist.
        sort_by: Integer edge attribute, such as a time, by which the in-edges of each node are sorted, with types
            inside each edge type; equal values keep the order of the list. Temporal sampling by this attribute then
            needs no index, which saves 16 bytes per edge and a sort at the first mini-batch. It sorts each column
            here, and changes which edges are sampled. By default, in-edges are in the order of the list.

    Raises:
        KeyError: An attribute has an unknown type, or lacks a required type; or `sort_by` is not an edge attribute.
        ValueError: An id is not a node of its type, lengths don't match, or a type is unknown.

    Example:
        >>> from_coo({"user:likes:item": ([0, 1], [2, 2])}, {"user": 2, "item": 3})
        FusedCSCSamplingGraph(num_nodes=5, num_edges=2, node_types=['user', 'item'], edge_types=1)
        >>> from_coo(([0, 1], [0, 0]), 2, edge_attributes={"time": torch.tensor([9, 4])}, sort_by="time").indices
        tensor([1, 0])
    """
    node_attributes = check_by("node_attributes", "name", {} if node_attributes is None else node_attributes)
    edge_attributes = check_by("edge_attributes", "name", {} if edge_attributes is None else edge_attributes)
    if sort_by is not None and sort_by not in edge_attributes:
        raise KeyError(f"sort_by is {brief(sort_by)}, but edge_attributes has {list(edge_attributes)}; add it there")
    if isinstance(edges, Mapping) != isinstance(num_nodes, Mapping):
        raise TypeError("edges and num_nodes must both be dicts by type, or neither; one is and the other isn't")
    if isinstance(edges, Mapping):
        assert isinstance(num_nodes, Mapping)
        by_type = by_type_name(cast("Mapping[Any, Edges]", edges))
        return from_typed_coo(by_type, num_nodes, node_attributes, edge_attributes, sort_by)
    assert not isinstance(num_nodes, Mapping)
    check_count("num_nodes", num_nodes, 0)
    num_nodes = index(num_nodes)
    check_nodes_fit("num_nodes", num_nodes)
    columns = ops.coo_to_csc(*split_edges("edges", edges), num_nodes)
    if sort_by is not None:
        columns = sort_columns(columns, pick_rows(sort_by, edge_attributes[sort_by], columns.order))
    attributes = {name: pick_rows(name, values, columns.order) for name, values in edge_attributes.items()}
    attributes.setdefault(ORIGINAL_EDGE_ID, columns.order)
    return fused_csc_sampling_graph(
        columns.indptr, columns.indices, node_attributes=node_attributes, edge_attributes=attributes
    )


def check_by(name: str, key: str, values: Any) -> Mapping[Any, Any]:
    # Values without names would fail later with an unclear error.
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a dict by {key}, but is {brief(values)}")
    return values


def stack(name: str, by_type: Any, rows: Mapping[str, int]) -> torch.Tensor:
    """Return the values of an attribute for all types in turn. Times, weights and masks may be missing for some."""
    named = by_type_name(check_by(name, "type", by_type))
    missing = None
    if named and named.keys() < rows.keys() and ORIGINAL_EDGE_ID not in name:
        missing = value_where_missing(name[:4], as_tensor(name, next(iter(named.values()))))
    if missing is None and named.keys() != rows.keys():
        raise KeyError(f"{name} must have the types {list(rows)}, but has {list(named)}")
    parts = []
    for of_type, count in rows.items():
        if missing is not None and of_type not in named:
            parts.append(missing.expand(count))
        else:
            parts.append(with_rows(f"{name}[{of_type!r}]", named[of_type], count))
    return torch.cat(parts)


def with_rows(name: str, values: Any, count: int) -> torch.Tensor:
    tensor = as_tensor(name, values)
    check_attribute_rows(name, tensor, count)
    return tensor


def pick_rows(name: str, values: Any, order: torch.Tensor) -> torch.Tensor:
    return gather_long_lived(with_rows(f"edge_attributes[{name!r}]", values, order.numel()), order)


def sort_columns(columns: ops.Columns, values: torch.Tensor, types: torch.Tensor | None = None) -> ops.Columns:
    # With types, separately for each edge type, since types must ascend in a column.
    by_value = ops.order_by_time(columns.indptr, ops.as_times("the values to sort by", values), types)
    # The edges are already in this order.
    if by_value.order is None:
        return columns
    positions = ops.places_in_order(columns.indptr, by_value.order)
    indices, order = gather_long_lived(columns.indices, positions), gather_long_lived(columns.order, positions)
    return columns._replace(indices=indices, order=order)


def from_typed_coo(
    edges: Mapping[str, Edges],
    num_nodes: Mapping[str, int],
    node_attributes: Mapping[str, Any],
    edge_attributes: Mapping[str, Any],
    sort_by: str | None,
) -> FusedCSCSamplingGraph:
    """Concatenate the edge lists, edge type by edge type, and sort them stably by destination."""
    if not edges:
        raise ValueError("edges is empty; pass an edge list for at least one edge type")
    for node_type, count in num_nodes.items():
        check_count(f"num_nodes[{node_type!r}]", count, 0)
    num_nodes = {node_type: index(count) for node_type, count in num_nodes.items()}
    offsets, total = first_ids(num_nodes), sum(num_nodes.values())
    check_nodes_fit("the sum of num_nodes", total)
    ends = {edge_type: ends_in_graph(edge_type, pair, num_nodes, offsets) for edge_type, pair in edges.items()}
    rows = {edge_type: len(own) for edge_type, (own, _) in ends.items()}
    sources, destinations = (torch.cat(parts) for parts in zip(*ends.values(), strict=True))
    # The sort is stable, so the types of a column ascend.
    columns = ops.coo_to_csc(sources, destinations, total)
    types = torch.arange(len(rows), device="cpu").repeat_interleave(torch.tensor(list(rows.values()), device="cpu"))
    of_edges = {name: stack(f"edge_attributes[{name!r}]", by_type, rows) for name, by_type in edge_attributes.items()}
    # The id of an edge is its row in the list of its type.
    of_edges.setdefault(ORIGINAL_EDGE_ID, torch.cat([torch.arange(count, device="cpu") for count in rows.values()]))
    if sort_by is not None:
        values = ops.gather_rows(of_edges[sort_by], columns.order)
        columns = sort_columns(columns, values, types[columns.order])
    return fused_csc_sampling_graph(
        columns.indptr,
        columns.indices,
        node_type_offset=torch.tensor([*offsets.values(), total], device="cpu"),
        # The smallest dtype that kernels support.
        type_per_edge=gather_long_lived(types.to(torch.uint8 if len(edges) <= 256 else torch.int32), columns.order),
        node_type_to_id={node_type: number for number, node_type in enumerate(num_nodes)},
        edge_type_to_id={edge_type: number for number, edge_type in enumerate(edges)},
        node_attributes={
            name: stack(f"node_attributes[{name!r}]", by_type, num_nodes) for name, by_type in node_attributes.items()
        },
        edge_attributes={name: gather_long_lived(values, columns.order) for name, values in of_edges.items()},
    )


def ends_in_graph(
    edge_type: str, edges: Edges, num_nodes: Mapping[str, int], offsets: Mapping[Any, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sources and destinations of the edges of a type, as ids in the whole graph."""
    if not has_ends(str(edge_type), offsets):
        raise ValueError(
            f"edges has type {brief(edge_type)}; an edge type is 'source:relation:destination' "
            f"with node types of num_nodes, {list(num_nodes)}"
        )
    name = f"edges[{edge_type!r}]"
    sources, destinations = split_edges(name, edges)
    if len(sources) != len(destinations):
        raise ValueError(f"{name} has {len(sources)} sources and {len(destinations)} destinations; give one per edge")
    source_type, destination_type = ends_of(edge_type)
    for ids, node_type in ((sources, source_type), (destinations, destination_type)):
        check_vector(name, ids)
        check_ids(f"{name} (ids of {node_type!r})", ids, num_nodes[node_type])
    # In int64: ids of the graph may exceed int32 even if those of each type don't.
    return sources.to(torch.int64) + offsets[source_type], destinations.to(torch.int64) + offsets[destination_type]


class EdgeList(NamedTuple):
    """The edges of one type."""

    sources: torch.Tensor
    """Ids within their node type, int64, shape (E,)."""
    destinations: torch.Tensor
    """Ids within their node type, int64, shape (E,)."""
    positions: torch.Tensor
    """Positions of the edges in the graph and in its edge attributes, int64, shape (E,)."""


def edge_lists(graph: FusedCSCSamplingGraph) -> dict[EdgeType, EdgeList]:
    """Return the edges of a graph on the CPU by edge type, in graph order; without types, the key is None."""
    destinations = expand_indptr(graph.csc_indptr, torch.int64)
    if graph.edge_type_to_id is None or graph.type_per_edge is None:
        return {None: EdgeList(graph.indices.long(), destinations, torch.arange(len(destinations), device="cpu"))}
    first = first_ids(graph.num_nodes)
    by_type: dict[EdgeType, EdgeList] = {}
    for edge_type, number in graph.edge_type_to_id.items():
        positions = (graph.type_per_edge == number).nonzero().squeeze(1)
        source, destination = ends_of(edge_type)
        sources = graph.indices[positions].long() - first[source]
        by_type[edge_type] = EdgeList(sources, destinations[positions] - first[destination], positions)
    return by_type


def to_coo(graph: FusedCSCSamplingGraph) -> dict[EdgeType, EdgeList]:
    """Return the edges of a graph on the CPU by edge type; without types, the key is None.

    Edges are in the order of their ids, which are rows of the edge list in graphs of `from_coo`. In a graph without
    original edge ids, the ids are positions. This needs 48 bytes per edge.

    Example:
        >>> from graphfeed import from_coo
        >>> edges = to_coo(from_coo(([2, 0], [1, 0]), 3))[None]
        >>> edges.sources.tolist(), edges.destinations.tolist(), edges.positions.tolist()
        ([2, 0], [1, 0], [1, 0])
    """
    lists = edge_lists(graph)  # in the order of the graph, by destination
    ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    if ids is None:
        return lists
    orders = {edge_type: ids[own.positions].argsort(stable=True) for edge_type, own in lists.items()}
    return {edge_type: EdgeList(*(values[orders[edge_type]] for values in own)) for edge_type, own in lists.items()}


@overload
def add_reverse_edges(edges: torch.Tensor, reverse_etypes_mapping: Mapping[str, str] | None = None) -> torch.Tensor: ...


@overload
def add_reverse_edges(
    edges: dict[str, torch.Tensor], reverse_etypes_mapping: Mapping[str, str] | None = None
) -> dict[str, torch.Tensor]: ...


@checked
def add_reverse_edges(edges: ByType, reverse_etypes_mapping: Mapping[str, str] | None = None) -> ByType:
    """Return the edges, followed by the same edges with swapped endpoints.

    Args:
        edges: A tensor or array of shape (N, 2), or a dict of these by edge type, which is not modified.
        reverse_etypes_mapping: For edges by type: the reverse of each edge type, as strings or tuples. The swapped
            edges of a type are appended to its reverse type, which is created if needed. Types that are missing in the
            mapping or in the edges are skipped. Appended edges are not swapped again.

    Returns:
        A tensor of shape (2N, 2), or a new dict of tensors by edge type.

    Raises:
        ValueError: The edges have a wrong shape.

    Example:
        >>> add_reverse_edges(torch.tensor([[0, 1], [2, 3]])).tolist()
        [[0, 1], [2, 3], [1, 0], [3, 2]]
    """
    if not isinstance(edges, Mapping):
        edges = as_ids("edges", edges)
        if reverse_etypes_mapping is not None:
            raise TypeError("reverse_etypes_mapping is for edges by type, but edges is a tensor; leave it out")
        check_edge_list("edges", edges)
        return torch.cat([edges, edges.flip(1)])
    given = {edge_type: as_ids(f"edges[{edge_type!r}]", part) for edge_type, part in by_type_name(edges).items()}
    result = dict(given)
    for edge_type, reverse_type in by_type_name(reverse_etypes_mapping or {}).items():
        if edge_type in given:
            check_edge_list(f"edges[{edge_type!r}]", given[edge_type])
            swapped, reverse_type = given[edge_type].flip(1), type_name(reverse_type)
            # A reverse type may already exist, or be the type itself.
            known = result.get(reverse_type)
            result[reverse_type] = swapped if known is None else torch.cat([known, swapped])
    return result


def check_edge_list(name: str, edges: torch.Tensor) -> None:
    if edges.dim() != 2 or edges.shape[1] != 2:
        raise ValueError(f"Only tensor with shape N*2 is supported now, but {name} has {list(edges.shape)}")
