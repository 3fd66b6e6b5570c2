"""What can be partitioned: graphs, data sets and PyG's data, as a graph and functions that read its attributes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import torch

from graphfeed.distributed.partition.part_layout import features_by_key
from graphfeed.pyg.data import is_data, read_graph, tables_of
from graphfeed.storage import FeatureStore
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph, to_type_dict, type_name

Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Returns the rows of some nodes or edges by their ids within their type."""
TIME, EDGE_TIME = "time", "edge_time"


@dataclass(frozen=True)
class Source:
    """A graph, and functions that read the attributes of its nodes and edges, by type and name."""

    # Types are None in a graph without types. The times of edges have the name "edge_time" here.
    graph: FusedCSCSamplingGraph
    nodes: dict[str | None, dict[str, Read]]
    edges: dict[str | None, dict[str, Read]]
    edge_time: str
    """The name that the times of edges have in the data."""
    edge_attributes: dict[str, torch.Tensor] = field(default_factory=dict)
    """Those of the graph, which lie in the order of its edges."""

    def read_edges(
        self, edge_type: str | None, positions: torch.Tensor, ids: torch.Tensor, *names: str
    ) -> dict[str, torch.Tensor]:
        """Return rows of the attributes of some edges; of all attributes, unless some are named."""
        # By the positions of the edges in the graph; what was read as a feature, by their ids within the type.
        rows = {name: values[positions] for name, values in self.edge_attributes.items() if name in (names or (name,))}
        reads = self.edges[edge_type]
        return rows | {name: read(ids) for name, read in reads.items() if name in (names or (name,))}


def source_of(data: Any) -> Source:
    """Return a graph, a data set or PyG's data as a source."""
    if isinstance(data, FusedCSCSamplingGraph):
        return source_of_graph(data, None)
    if isinstance(getattr(data, "graph", None), FusedCSCSamplingGraph):
        return source_of_graph(data.graph, data.feature)
    if is_data(data) and getattr(data, "edge_index", ()) is not None:
        return source_of_pyg(data)
    raise TypeError(
        f"data must be a FusedCSCSamplingGraph, a data set with one, or PyG's Data or HeteroData with edge_index, but "
        f"is a {type(data).__name__}"
    )


def source_of_graph(graph: FusedCSCSamplingGraph, features: FeatureStore | None) -> Source:
    """Return a graph with its attributes and features as a source."""
    graph = graph.to("cpu")
    ranges = zip(to_type_dict(graph.num_nodes), pairwise(graph.first_ids()), strict=True)
    nodes: dict[str | None, dict[str, Read]] = {
        node_type: {name: values[low:high].__getitem__ for name, values in graph.node_attributes.items()}
        for node_type, (low, high) in ranges
    }
    edges: dict[str | None, dict[str, Read]] = {edge_type: {} for edge_type in graph.edge_type_to_id or [None]}
    for (domain, of_type, name), feature in features_by_key(features).items():
        if domain in ("node", "edge"):
            (nodes if domain == "node" else edges)[of_type][name] = feature.read
    attributes = {name: values for name, values in graph.edge_attributes.items() if name != ORIGINAL_EDGE_ID}
    return Source(graph, nodes, edges, name_of_times(attributes), with_edge_time(attributes))


def source_of_pyg(data: Any) -> Source:
    tables = tables_of(data)
    nodes = {name: reads_of(table, table.is_node_attr, table.num_nodes) for name, table in tables.nodes.items()}
    edges = {
        type_name(name): reads_of(table, table.is_edge_attr, table.num_edges) for name, table in tables.edges.items()
    }
    of_edges = {name: with_edge_time(reads) for name, reads in edges.items()}
    return Source(read_graph(data).graph, nodes, of_edges, name_of_times(*edges.values()))


def reads_of(table: Any, belongs: Callable[[str], bool], count: int) -> dict[str, Read]:
    # Others, such as an `edge_label_index`, may belong to nodes or edges by another dimension.
    tensors = {name: value for name, value in table.items() if isinstance(value, torch.Tensor) and name != "edge_index"}
    return {name: own.cpu().__getitem__ for name, own in tensors.items() if belongs(name) and len(own) == count}


def name_of_times(*attributes: Mapping[str, Any]) -> str:
    """Return the name under which some attributes have the times of edges."""
    names = {name for by_name in attributes for name in by_name}
    return TIME if TIME in names and EDGE_TIME not in names else EDGE_TIME


def with_edge_time(attributes: Mapping[str, Any]) -> dict[str, Any]:
    times = name_of_times(attributes)
    return {EDGE_TIME if name == times else name: values for name, values in attributes.items()}
