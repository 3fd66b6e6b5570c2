"""What can be partitioned: graphs, data sets and PyG's data, as a graph and functions that read its attributes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch

from graphfeed.distributed.partition.part_layout import features_by_key
from graphfeed.pyg.data import read_graph
from graphfeed.storage import FeatureStore
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph, first_ids

ReadNodes: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Returns the rows of some nodes by their ids within their type."""
ReadEdges: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Returns the rows of some edges by their positions in the graph, or by their ids within their type."""
TIME, EDGE_TIME = "time", "edge_time"


@dataclass(frozen=True)
class Source:
    """A graph, and functions that read the attributes of its nodes and edges, by type and name.

    Types are None in a graph without types. The times of edges have the name "edge_time" here.
    """

    graph: FusedCSCSamplingGraph
    nodes: dict[str | None, dict[str, ReadNodes]]
    edges: dict[str | None, dict[str, ReadEdges]]
    edge_time: str
    """The name that the times of edges have in the data."""


def source_of(data: Any) -> Source:
    """Return a graph, a data set or PyG's data as a source.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(data, FusedCSCSamplingGraph):
        return source_of_graph(data, None)
    if isinstance(getattr(data, "graph", None), FusedCSCSamplingGraph):
        return source_of_graph(data.graph, data.feature)
    if hasattr(data, "edge_types") and hasattr(data, "node_types"):
        return source_of_hetero_data(data)
    if getattr(data, "edge_index", None) is not None and hasattr(data, "num_nodes"):
        return source_of_data(data)
    raise TypeError(
        f"data must be a FusedCSCSamplingGraph, a data set with one, or PyG's Data or HeteroData with edge_index, but "
        f"is a {type(data).__name__}"
    )


def source_of_graph(graph: FusedCSCSamplingGraph, features: FeatureStore | None) -> Source:
    """Return a graph with its attributes and features as a source."""
    graph = graph.to("cpu")
    nodes: dict[str | None, dict[str, ReadNodes]] = {
        node_type: {name: partial(read_from, values, first) for name, values in graph.node_attributes.items()}
        for node_type, first in first_ids(graph.num_nodes).items()
    }
    attributes = {name: values for name, values in graph.edge_attributes.items() if name != ORIGINAL_EDGE_ID}
    edge_time = name_of_times(attributes)
    if edge_time == TIME:
        attributes[EDGE_TIME] = attributes.pop(TIME)
    edges: dict[str | None, dict[str, ReadEdges]] = {
        edge_type: {name: partial(read_positions, values) for name, values in attributes.items()}
        for edge_type in graph.edge_type_to_id or [None]
    }
    for (domain, type_name, name), feature in features_by_key(features).items():
        if domain == "node":
            nodes[type_name][name] = feature.read
        elif domain == "edge":
            edges[type_name][name] = partial(read_ids, feature.read)
    return Source(graph, nodes, edges, edge_time)


def source_of_data(data: Any) -> Source:
    """Return PyG's data without types as a source."""
    values = {name: value for name, value in data.to_dict().items() if isinstance(value, torch.Tensor)}
    own = {name: value for name, value in values.items() if name != "edge_index"}
    edges = {name: value for name, value in own.items() if data.is_edge_attr(name)}
    nodes = {name: value for name, value in own.items() if data.is_node_attr(name)}
    graph = read_graph(data).graph
    return Source(graph, {None: readers_of_nodes(nodes)}, {None: readers_of_edges(edges)}, name_of_times(edges))


def source_of_hetero_data(data: Any) -> Source:
    """Return PyG's data with types as a source."""
    sizes = {node_type: int(data[node_type].num_nodes) for node_type in data.node_types}
    node_attributes, edge_attributes = {}, {}
    for node_type in data.node_types:
        node_attributes[node_type] = tensors_of(data[node_type], sizes[node_type])
    for edge_type in data.edge_types:
        store = data[edge_type]
        edge_attributes[":".join(edge_type)] = tensors_of(store, store.edge_index.shape[1])
    return Source(
        read_graph(data).graph,
        {node_type: readers_of_nodes(tensors) for node_type, tensors in node_attributes.items()},
        {edge_type: readers_of_edges(tensors) for edge_type, tensors in edge_attributes.items()},
        name_of_times(*edge_attributes.values()),
    )


def name_of_times(*attributes: Mapping[str, Any]) -> str:
    """Return the name under which some attributes have the times of edges."""
    names = {name for own in attributes for name in own}
    return TIME if TIME in names and EDGE_TIME not in names else EDGE_TIME


def tensors_of(store: Any, rows: int) -> dict[str, torch.Tensor]:
    """Return the tensors of one of PyG's stores that have a row for each of its nodes or edges."""
    tensors = {name: value for name, value in store.items() if isinstance(value, torch.Tensor) and name != "edge_index"}
    return {name: value for name, value in tensors.items() if value.dim() > 0 and len(value) == rows}


def readers_of_nodes(tensors: dict[str, torch.Tensor]) -> dict[str, ReadNodes]:
    """Return how to read tensors by the ids of nodes."""
    return {name: partial(read_from, values.cpu(), 0) for name, values in tensors.items()}


def readers_of_edges(tensors: dict[str, torch.Tensor]) -> dict[str, ReadEdges]:
    """Return how to read tensors by the ids of edges."""
    if EDGE_TIME not in tensors and TIME in tensors:
        tensors = {EDGE_TIME if name == TIME else name: values for name, values in tensors.items()}
    return {name: partial(read_ids, partial(read_from, values.cpu(), 0)) for name, values in tensors.items()}


def read_from(values: torch.Tensor, first: int, ids: torch.Tensor) -> torch.Tensor:
    """Return the rows of some ids, which are counted from a row."""
    return values[ids + first]


def read_positions(values: torch.Tensor, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the rows of some edges of an array in the order of the graph."""
    del ids
    return values[positions]


def read_ids(read: ReadNodes, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the rows of some edges from what is read by their ids."""
    del positions
    return read(ids)
