"""A graph from one of DGL's."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from graphfeed.storage.graph.from_coo import from_coo
from graphfeed.storage.graph.fused_csc_sampling_graph import (
    FusedCSCSamplingGraph,
    fused_csc_sampling_graph,
)
from graphfeed.storage.graph.one_hop import ORIGINAL_EDGE_ID


def from_dglgraph(
    g: Any, is_homogeneous: bool = False, include_original_edge_id: bool = False
) -> FusedCSCSamplingGraph:
    """Make a graph of a `dgl.DGLGraph`, whose node and edge types keep their numbers.

    Node and edge data become attributes where every type has them with one dtype and row shape; what only some types
    have is left out, for an attribute belongs to all nodes or edges. Edge data is brought into the graph's order
    together with the edges. DGL itself is not imported.

    Args:
        g: The graph, or what has the same `ntypes`, `canonical_etypes`, `num_nodes`, `edges` and `nodes`.
        is_homogeneous: Whether to drop the types; node ids are stacked type after type. A graph of one type has types
            as well unless this says so.
        include_original_edge_id: Whether to keep DGL's edge ids, by type, as what `original_edge_ids` gives; without
            them those are places in the graph's own arrays, by which no edge feature can be fetched.

    Raises:
        TypeError: `g` is no such graph.

    Example:
        >>> import dgl  # doctest: +SKIP
        >>> from_dglgraph(dgl.graph(([1, 2], [0, 0])), is_homogeneous=True)  # doctest: +SKIP
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    if not all(hasattr(g, name) for name in ("ntypes", "canonical_etypes", "num_nodes", "edges", "nodes")):
        raise TypeError(f"g must be a dgl.DGLGraph, but is a {type(g).__name__}; from_coo takes edge lists")
    names = {":".join(kind): kind for kind in g.canonical_etypes}
    edges = {name: g.edges(etype=kind, order="eid") for name, kind in names.items()}
    graph = from_coo(
        edges,
        {kind: g.num_nodes(kind) for kind in g.ntypes},
        node_attributes=common({kind: g.nodes[kind].data for kind in g.ntypes}),
        edge_attributes=common({name: g.edges[kind].data for name, kind in names.items()}),
    )
    edge_attributes = dict(graph.edge_attributes)
    if not include_original_edge_id:
        del edge_attributes[ORIGINAL_EDGE_ID]
    fields = {**graph.fields(), "edge_attributes": edge_attributes}
    fields["indices"] = graph.indices.to(next(iter(edges.values()))[0].dtype)
    if is_homogeneous:
        fields.update(dict.fromkeys(("node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id")))
    return fused_csc_sampling_graph(**fields)


def common(data: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, dict[str, torch.Tensor]]:
    """Return by name, and in it by type, the data that all types have alike."""
    found = {}
    for name in shared_names(data.values()):
        by_type = {kind: own[name] for kind, own in data.items()}
        if len({(values.dtype, values.shape[1:]) for values in by_type.values()}) == 1:
            found[name] = by_type
    return found


def shared_names(data: Iterable[Mapping[str, torch.Tensor]]) -> list[str]:
    """Return the names that all have, in the order of the first."""
    first, *others = [list(own.keys()) for own in data]
    return [name for name in first if all(name in other for other in others)]
