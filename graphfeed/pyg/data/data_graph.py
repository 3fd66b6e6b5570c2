"""The graph of PyG's data."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from graphfeed.ops.arguments import brief
from graphfeed.ops.sampling.time_order import as_times
from graphfeed.pyg.data.edge_list import EdgeList
from graphfeed.pyg.data.store_data import StoreTable, as_data
from graphfeed.storage import FusedCSCSamplingGraph, from_coo, fused_csc_sampling_graph
from graphfeed.storage.graph.sampling.one_hop import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.type_names import type_name

ALWAYS = torch.iinfo(torch.int64).min
"""The time of what has none: it exists at all times."""


class DataGraph(NamedTuple):
    """A graph, and which of its attributes hold times and weights."""

    graph: FusedCSCSamplingGraph
    node_time: str | None
    edge_time: str | None
    weight: str | None
    untimed: tuple[Any, ...] = ()
    """The types without times, which exist at all times."""


def read_graph(
    data: Any, time_attr: str | None = None, weight_attr: str | None = None, *, reverse: bool = False
) -> DataGraph:
    """Return the graph of a PyG `Data` or `HeteroData`, or of a pair of stores; the id of each edge is its place there.

    Edges without a type that are grouped by destination already, in a `GraphStore` or in a sorted `EdgeIndex`, are not
    grouped again, and share the memory.

    Args:
        data: The data, or a pair of stores.
        time_attr: The name of times of nodes or of edges, whole numbers; types without it exist at all times.
        weight_attr: The name of weights of edges; edge types without it have the weight 1.
        reverse: Whether edges lead from destination to source.

    Raises:
        TypeError: Times that are no whole numbers.
        ValueError: `time_attr` or `weight_attr` is the name of neither, or of both, or there are no edges to read.
    """
    data = as_data(data)
    is_typed = not hasattr(data, "_store")
    stores = {type_name(store._key): store for store in data.edge_stores} if is_typed else data._store
    nodes = {store._key: store for store in data.node_stores} if is_typed else data._store
    node_time = edge_time = None
    if time_attr is not None:
        node_time, edge_time = find_times(nodes, stores, time_attr)
    edge_names = [name for name in (edge_time, weight_attr) if name is not None]
    if is_typed:
        counts = {kind: count_nodes(data, kind) for kind in nodes}
        lists = {kind: edges_of(store, kind, reverse=reverse) for kind, store in stores.items()}
        lengths = {kind: len(edges) for kind, edges in lists.items()}
        attributes: Any = {
            name: {
                reverse_name(kind, reverse): part for kind, part in collect(name, stores, lengths, edge_time).items()
            }
            for name in edge_names
        }
        node_attributes: Any = {} if node_time is None else {node_time: collect(node_time, nodes, counts, node_time)}
        ends = {reverse_name(kind, reverse): edges.ends() for kind, edges in lists.items()}
        graph = from_coo(ends, counts, node_attributes=node_attributes, edge_attributes=attributes)
    else:
        attributes = {name: column(stores, name, is_weight=name == weight_attr) for name in edge_names}
        node_attributes = {} if node_time is None else {node_time: column(nodes, node_time)}
        edges = edges_of(stores, "data", reverse=reverse)
        graph = make_graph(edges, count_nodes(data), node_attributes, attributes)
    timed = None if node_time is None else nodes
    timed = stores if edge_time is not None else timed
    untimed = tuple(kind for kind, store in timed.items() if time_attr not in store) if is_typed and timed else ()
    return DataGraph(graph, node_time, edge_time, weight_attr, untimed)


def count_nodes(data: Any, kind: str | None = None) -> int:
    """Return the number of nodes, of a type if there are types."""
    found = (data if kind is None else data[kind]).num_nodes
    if found is None:
        name = "data" if kind is None else f"node type {kind!r}"
        raise ValueError(f"{name} has no num_nodes; set {'data' if kind is None else f'data[{kind!r}]'}.num_nodes")
    return int(found)


def check_data(data: Any) -> None:
    """Raise unless data are a `Data` or a `HeteroData`: a pair of stores has no attributes to go through."""
    if not hasattr(data, "node_stores") or not hasattr(data, "edge_stores"):
        raise TypeError(f"data must be a Data or HeteroData of PyG, but is a {type(data).__name__}")


def make_graph(
    edges: EdgeList,
    num_nodes: int,
    node_attributes: Mapping[str, torch.Tensor],
    edge_attributes: Mapping[str, torch.Tensor],
) -> FusedCSCSamplingGraph:
    """Return the graph of edges without types."""
    columns = None if edges.columns is None else edges.columns.widened(num_nodes)
    if columns is None:
        return from_coo(edges.ends(), num_nodes, node_attributes=node_attributes, edge_attributes=edge_attributes)
    for name, values in edge_attributes.items():
        if len(values) != len(edges):
            raise ValueError(f"{name!r} must have {len(edges)} values, one for each edge, but has {len(values)}")
    attributes = {name: columns.arrange(values) for name, values in edge_attributes.items()}
    if columns.order is not None:
        attributes[ORIGINAL_EDGE_ID] = columns.order
    return fused_csc_sampling_graph(
        columns.indptr, columns.indices, node_attributes=node_attributes, edge_attributes=attributes
    )


def reverse_name(kind: str, reverse: bool) -> str:
    """Return the name of an edge type, with source and destination exchanged if its edges are."""
    return ":".join(kind.split(":")[::-1]) if reverse else kind


def edges_of(store: Any, kind: str, *, reverse: bool) -> EdgeList:
    """Return the edges of a type, with source and destination exchanged if `reverse`."""
    if isinstance(store, StoreTable):
        return store.edge_list(reverse=reverse)
    index = store.get("edge_index") if isinstance(store, Mapping) else getattr(store, "edge_index", None)
    if index is None:
        hint = "leave out ToSparseTensor()" if "adj_t" in store else "set it, shape (2, E)"
        raise ValueError(f"{kind} has no edge_index; {hint}")
    return EdgeList.from_index_reversed(index) if reverse else EdgeList.from_index(index)


def ends_of(store: Any, kind: str, reverse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sources and destinations of a type's edges, exchanged if `reverse`."""
    return edges_of(store, kind, reverse=reverse).ends()


def find_times(nodes: Any, edges: Any, name: str) -> tuple[str | None, str | None]:
    """Return the name as that of a node attribute, or as that of an edge attribute."""
    if isinstance(nodes, dict):
        of_nodes = any(name in store for store in nodes.values())
        of_edges = any(name in store for store in edges.values())
        if of_nodes and of_edges:
            raise ValueError(f"time_attr {name!r} is there for nodes and for edges; rename one of them")
    else:
        of_nodes = name in nodes and nodes.is_node_attr(name)
        of_edges = name in edges and not of_nodes and edges.is_edge_attr(name)
    if not of_nodes and not of_edges:
        raise ValueError(f"time_attr is {brief(name)}, but neither nodes nor edges of data have that attribute")
    return (name, None) if of_nodes else (None, name)


def column(store: Any, name: str, *, is_weight: bool = False) -> torch.Tensor:
    """Return weights, or else times, with one value per node or edge."""
    if name not in store:
        raise ValueError(f"data has no attribute {name!r}; it has {sorted(map(str, store.keys()))}")
    values: torch.Tensor = torch.as_tensor(store[name]).detach().cpu()
    if is_weight and not values.is_floating_point():
        values = values.to(torch.float64)
    if values.dim() == 2 and values.shape[1] == 1:
        values = values.squeeze(1)
    return values if is_weight else as_times(f"time_attr {name!r}", values)


def collect(name: str, stores: Mapping[str, Any], lengths: Mapping[str, int], time: str | None) -> dict[str, Any]:
    """Return an attribute of all types; those without it have the value that changes nothing."""
    known = {kind: column(store, name, is_weight=name != time) for kind, store in stores.items() if name in store}
    if not known:
        raise ValueError(f"no type of data has the attribute {name!r}")
    dtype = next(iter(known.values())).dtype
    value = ALWAYS if name == time else 1
    rest = {kind: torch.full((count,), value, dtype=dtype) for kind, count in lengths.items() if kind not in known}
    return {kind: known[kind].to(dtype) if kind in known else rest[kind] for kind in lengths}
