"""Conversion of PyG's edge lists, or of a pair of its stores, to a graph."""

import warnings
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from graphfeed.ops.arguments import as_tensor, brief
from graphfeed.ops.sampling import ALWAYS, as_times
from graphfeed.pyg.data.store_data import EdgeType, StoreEdges, StoreTable
from graphfeed.pyg.data.tables import check_edge_index, tables_of
from graphfeed.storage import FusedCSCSamplingGraph, from_coo, fused_csc_sampling_graph
from graphfeed.storage.graph import type_name


class DataGraph(NamedTuple):
    """A graph, and the names of its attributes with times and weights."""

    graph: FusedCSCSamplingGraph
    node_time: str | None
    edge_time: str | None
    weight: str | None
    untimed: tuple[Any, ...] = ()
    """Types without times; their nodes or edges exist at all times."""


def graph_of_data(
    data: Any, time_attr: str | None = None, weight_attr: str | None = None, *, reverse: bool = False
) -> DataGraph:
    """Return the graph of a PyG `Data` or `HeteroData`, or of a pair of stores. An edge's id is its position there.

    Untyped edges that are already grouped by destination, in a `GraphStore` or in a sorted `EdgeIndex`, share their
    memory with the graph. Edges given as a `SparseTensor` raise a ValueError.

    Args:
        data: The data, or a pair of stores.
        time_attr: Name of the integer times of nodes or of edges; types without it exist at all times.
        weight_attr: Name of the edge weights; edge types without it have weight 1. If all values are bools, they are
            a mask.
        reverse: Whether edges are reversed, so that they lead from destination to source.
    """
    tables = tables_of(data)
    nodes, edges = tables.nodes, tables.edges
    # Before counting, because PyG counts nodes and edges by an `edge_index` of any shape.
    lists = {edge_type: data_edges(table, edge_type, reverse=reverse) for edge_type, table in edges.items()}
    sizes = {node_type: tables.count_nodes(node_type) for node_type in nodes}
    lengths = {edge_type: len(edge_list) for edge_type, edge_list in lists.items()}
    node_time = edge_time = None
    if time_attr is not None:
        node_time, edge_time = find_times(nodes, edges, time_attr)
        if node_time is not None and "node" not in node_time and sizes.get(None) == lengths.get(None, -1):
            warnings.warn(
                f"time_attr {node_time!r} is read as times of nodes, but there are as many edges as nodes, "
                f"{sizes[None]}; for times of edges put 'edge' in its name, for those of nodes 'node'",
                stacklevel=2,
            )
    node_values = {} if node_time is None else {node_time: data_times(node_time, nodes, sizes)}
    edge_values = {} if edge_time is None else {edge_time: data_times(edge_time, edges, lengths)}
    if weight_attr is not None:
        called = f"weight_attr {weight_attr!r}"
        weights = {of_type: column(called, values) for of_type, values in data_values(weight_attr, edges).items()}
        is_mask = all(values.dtype == torch.bool for values in weights.values())
        floats = {
            edge_type: values if is_mask or values.is_floating_point() else values.double()
            for edge_type, values in weights.items()
        }
        edge_values[weight_attr] = fill_missing(weight_attr, floats, lengths, 1)
    # The columns of a reversed graph are the sources in the data.
    if reverse:
        lists = {reverse_type(edge_type): edge_list for edge_type, edge_list in lists.items()}
        edge_values = {
            name: {reverse_type(edge_type): values for edge_type, values in by_type.items()}
            for name, by_type in edge_values.items()
        }
    graph = make_graph(lists, sizes, node_values, edge_values)
    timed = {} if time_attr is None else nodes if edge_time is None else edges
    untimed = tuple(of_type for of_type, table in timed.items() if time_attr not in table)
    return DataGraph(graph, node_time, edge_time, weight_attr, untimed)


def make_graph(
    edges: Mapping[Any, StoreEdges],
    num_nodes: Mapping[Any, int],
    node_attributes: Mapping[str, Mapping[Any, torch.Tensor]],
    edge_attributes: Mapping[str, Mapping[Any, torch.Tensor]],
) -> FusedCSCSamplingGraph:
    """Return the graph of the edges, node counts and attributes by type; without types, all under the key None.

    Edge types are tuples or strings. An edge's id is its position, unless there is an attribute with ids.
    """
    if not edges:
        return without_edges(num_nodes, node_attributes)
    if None not in num_nodes:
        lists = {edge_type: edge_list.ends() for edge_type, edge_list in edges.items()}
        return from_coo(lists, num_nodes, node_attributes=node_attributes, edge_attributes=edge_attributes)
    edge_list, size = edges[None], num_nodes[None]
    of_nodes, of_edges = (
        {name: by_type[None] for name, by_type in values.items()} for values in (node_attributes, edge_attributes)
    )
    indptr, count = edge_list.indptr, len(edge_list)
    missing = -1 if indptr is None else size + 1 - len(indptr)
    if indptr is None or missing < 0:  # from_coo raises an error if destinations are out of range
        return from_coo(edge_list.ends(), size, node_attributes=of_nodes, edge_attributes=of_edges)
    for name, values in of_edges.items():
        if len(values) != count:
            raise ValueError(f"{name!r} must have {count} values, one for each edge, but has {len(values)}")
    if missing:  # nodes after the last column have no edges
        indptr = torch.cat([indptr, indptr[-1:].expand(missing)])
    return fused_csc_sampling_graph(indptr, edge_list.source, node_attributes=of_nodes, edge_attributes=of_edges)


def without_edges(
    num_nodes: Mapping[Any, int], node_attributes: Mapping[str, Mapping[Any, torch.Tensor]]
) -> FusedCSCSamplingGraph:
    """Return a graph with node types and no edge type."""
    starts = list(accumulate(num_nodes.values(), initial=0))
    return fused_csc_sampling_graph(
        torch.zeros(starts[-1] + 1, dtype=torch.int64, device="cpu"),
        torch.empty(0, dtype=torch.int64, device="cpu"),
        node_type_offset=torch.tensor(starts, device="cpu"),
        type_per_edge=torch.empty(0, dtype=torch.uint8, device="cpu"),
        node_type_to_id={node_type: number for number, node_type in enumerate(num_nodes)},
        edge_type_to_id={},
        node_attributes={name: torch.cat(list(by_type.values())) for name, by_type in node_attributes.items()},
    )


def reverse_type(edge_type: Any) -> Any:
    return ":".join(edge_type.split(":")[::-1]) if isinstance(edge_type, str) else edge_type and edge_type[::-1]


def data_edges(table: Any, edge_type: EdgeType | None, *, reverse: bool = False) -> StoreEdges:
    if isinstance(table, StoreTable):
        return table.edge_list(reverse=reverse)
    check_edge_index(table, type_name(edge_type) or "data")
    index = table.get("edge_index")
    if index is None or not index.numel():  # an empty index may have any dtype
        index = torch.empty(2, 0, dtype=torch.int64, device="cpu")
    return StoreEdges.from_index(index, reverse=reverse)


def find_times(nodes: Mapping[Any, Any], edges: Mapping[Any, Any], name: str) -> tuple[str | None, str | None]:
    """Return the name as a node attribute's or as an edge attribute's, and None for the other."""
    # Without types, one table has the values of nodes and of edges, and PyG classifies them.
    of_nodes = any(
        name in table and (of_type is not None or table.is_node_attr(name)) for of_type, table in nodes.items()
    )
    of_edges = any(
        name in table and (of_type is not None or table.is_edge_attr(name)) for of_type, table in edges.items()
    )
    if None in nodes:
        of_edges = of_edges and not of_nodes
    if of_nodes and of_edges:
        raise ValueError(f"time_attr {name!r} exists for nodes and for edges; rename one of them")
    if not of_nodes and not of_edges:
        raise ValueError(
            f"time_attr is {brief(name)}, but neither nodes nor edges of data have an attribute of that name with a "
            "row for each"
        )
    return (name, None) if of_nodes else (None, name)


def data_values(name: str, tables: Mapping[Any, Any]) -> dict[Any, Any]:
    # With types, some may lack it; without types, it must exist.
    if None in tables and name not in tables[None]:
        raise ValueError(
            f"weight_attr is {brief(name)}, but data has no such attribute; it has "
            f"{brief(sorted(map(str, tables[None].keys())))}"
        )
    return {of_type: table[name] for of_type, table in tables.items() if name in table}


def column(name: str, values: Any) -> torch.Tensor:
    found = as_tensor(name, values).detach().cpu()
    # Values may also be a column, shape (N, 1).
    return found.squeeze(1) if found.dim() == 2 and found.shape[1] == 1 else found


def as_time_column(name: str, values: Any) -> torch.Tensor:
    """Return times as integers, one per node or edge, or raise a TypeError."""
    return as_times(f"time_attr {name!r}", column(f"time_attr {name!r}", values))


def data_times(name: str, tables: Mapping[Any, Any], lengths: Mapping[Any, int]) -> dict[Any, torch.Tensor]:
    known = {of_type: as_time_column(name, values) for of_type, values in data_values(name, tables).items()}
    return fill_missing(name, known, lengths, ALWAYS)


def fill_missing(
    name: str, known: Mapping[Any, torch.Tensor], lengths: Mapping[Any, int], value: int
) -> dict[Any, torch.Tensor]:
    """Return an attribute of all types; types without it get `value`, which has no effect."""
    if not known:
        raise ValueError(f"weight_attr is {brief(name)}, but no type of data has such an attribute")
    # A graph has one tensor for all types, so all values have one dtype.
    dtype = next(iter(known.values())).dtype
    return {
        of_type: known[of_type].to(dtype)
        if of_type in known
        else torch.full((length,), value, dtype=dtype, device="cpu")
        for of_type, length in lengths.items()
    }
