"""Edge lists of a graph, the reverse of `from_coo`."""

from typing import NamedTuple

import torch

from graphfeed.ops.structure import expand_indptr
from graphfeed.storage.graph.attributes import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.graph.type_names import EdgeType, ends_of, first_ids


class EdgeList(NamedTuple):
    """The edges of one type."""

    sources: torch.Tensor
    """Ids within their node type, int64, shape (E,)."""
    destinations: torch.Tensor
    """The same, shape (E,)."""
    positions: torch.Tensor
    """Where the edges are in the graph, and the rows of its edge attributes, int64, shape (E,)."""


def edge_lists(graph: FusedCSCSamplingGraph) -> dict[EdgeType, EdgeList]:
    """Return the edges of a graph on the CPU by edge type, in the order of the graph; without types, by None."""
    destinations = expand_indptr(graph.csc_indptr, torch.int64)
    if graph.edge_type_to_id is None or graph.type_per_edge is None:
        return {None: EdgeList(graph.indices.long(), destinations, torch.arange(len(destinations)))}
    first = first_ids(graph.num_nodes)
    by_type: dict[EdgeType, EdgeList] = {}
    for edge_type, number in graph.edge_type_to_id.items():
        positions = (graph.type_per_edge == number).nonzero().squeeze(1)
        source, destination = ends_of(edge_type)
        sources = graph.indices[positions].long() - first[source]
        by_type[edge_type] = EdgeList(sources, destinations[positions] - first[destination], positions)
    return by_type


def to_coo(graph: FusedCSCSamplingGraph) -> dict[EdgeType, EdgeList]:
    """Return the edges of a graph on the CPU by edge type; without types, by None.

    Edges are in the order of their ids, which `from_coo` numbers by their rows in the edge list. In a graph without
    original edge ids, the ids are the positions. This takes 48 bytes per edge.

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
