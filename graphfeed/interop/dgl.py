"""DGL: conversion of sampled subgraphs to DGL blocks, and of DGL graphs to graphs.

If this module is imported before DGL, DGL works with any release of torch. `import dgl` imports `dgl.graphbolt`, which
needs a library that was compiled for one release of torch, and a module that was removed from torchdata. If DGL is not
imported yet, graphfeed replaces that module: `import dgl` succeeds, and `dgl.graphbolt` has graphfeed's names.
"""

import sys
from collections.abc import Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.ops.process import import_optional
from graphfeed.storage.graph import (
    ORIGINAL_EDGE_ID,
    FusedCSCSamplingGraph,
    SampledSubgraph,
    from_coo,
    fused_csc_sampling_graph,
)

__all__ = ["from_dglgraph"]

INT32_MAX = torch.iinfo(torch.int32).max


def compute_blocks(subgraphs: list[SampledSubgraph]) -> list[Any]:
    """Return one DGL block per subgraph. The subgraphs are not changed."""
    dgl = import_optional(
        "dgl",
        "blocks",
        "pip install dgl, any release since 2.1, and import graphfeed.interop.dgl before it; or use sampled_subgraphs "
        "and their to_pyg()",
    )
    blocks = [make_block(dgl, subgraph) for subgraph in subgraphs]
    for block, subgraph in zip(blocks, subgraphs, strict=True):
        if isinstance(subgraph.original_edge_ids, dict):
            for edge_type, ids in subgraph.original_edge_ids.items():
                block.edges[tuple(edge_type.split(":"))].data[dgl.EID] = ids
        elif subgraph.original_edge_ids is not None:
            block.edata[dgl.EID] = subgraph.original_edge_ids
    # Only the source nodes of the first block have their ids.
    rows = subgraphs[0].original_row_node_ids if subgraphs else None
    if isinstance(rows, dict):
        for node_type, ids in rows.items():
            blocks[0].srcnodes[node_type].data[dgl.NID] = ids
    elif rows is not None:
        blocks[0].srcdata[dgl.NID] = rows
    return blocks


def make_block(dgl: Any, subgraph: SampledSubgraph) -> Any:
    """Return a subgraph as a DGL block without data."""
    counts = []
    for name in ("original_row_node_ids", "original_column_node_ids"):
        ids = getattr(subgraph, name)
        if ids is None:
            raise ValueError(f"Missing `{name}` in sampled subgraph; a block needs the number of its nodes")
        counts.append({name: len(values) for name, values in (ids if isinstance(ids, dict) else {"": ids}).items()})
    csc = subgraph.sampled_csc
    parts = csc if isinstance(csc, dict) else {"": csc}
    most = max([*counts[0].values(), *(len(part.indices) for part in parts.values())], default=0)
    # DGL is faster with int32.
    dtype = torch.int32 if most <= INT32_MAX else torch.int64
    data = {}
    for name, part in parts.items():
        positions = torch.arange(len(part.indices), dtype=dtype, device=part.indices.device)
        data[tuple(name.split(":"))] = "csc", (part.indptr.to(dtype), part.indices.to(dtype), positions)
    if isinstance(csc, dict):
        return dgl.create_block(data, num_src_nodes=counts[0], num_dst_nodes=counts[1])
    return dgl.create_block(data[("",)], num_src_nodes=counts[0][""], num_dst_nodes=counts[1][""])


@checked
def from_dglgraph(
    g: Any, is_homogeneous: bool = False, include_original_edge_id: bool = False
) -> FusedCSCSamplingGraph:
    """Return a graph with the nodes and edges of a `dgl.DGLGraph`. Node types and edge types keep their numbers.

    An attribute belongs to all nodes or all edges. Therefore, node and edge data become attributes only if every type
    has them, with the same dtype and row shape. DGL is not imported.

    Args:
        g: The graph, or any object with the same `ntypes`, `canonical_etypes`, `num_nodes`, `edges` and `nodes`.
        is_homogeneous: Whether to drop the types. The ids of each node type then follow those of the previous type. If
            False, a graph of one type is typed, too.
        include_original_edge_id: Whether to keep DGL's edge ids, by type, as the `original_edge_ids` of sampled
            subgraphs. Without them, edge ids are positions in the new graph, and edge features of the DGL graph can't
            be fetched.

    Example:
        >>> import dgl  # doctest: +SKIP
        >>> from_dglgraph(dgl.graph(([1, 2], [0, 0])), is_homogeneous=True)  # doctest: +SKIP
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    if not all(hasattr(g, name) for name in ("ntypes", "canonical_etypes", "num_nodes", "edges", "nodes")):
        raise TypeError(f"g must be a dgl.DGLGraph, but is a {type(g).__name__}; from_coo takes edge lists")
    names = {":".join(canonical): canonical for canonical in g.canonical_etypes}
    edges = {name: g.edges(etype=canonical, order="eid") for name, canonical in names.items()}
    graph = from_coo(
        edges,
        {canonical: g.num_nodes(canonical) for canonical in g.ntypes},
        node_attributes=in_every_type({canonical: g.nodes[canonical].data for canonical in g.ntypes}),
        edge_attributes=in_every_type({name: g.edges[canonical].data for name, canonical in names.items()}),
    )
    edge_attributes = dict(graph.edge_attributes)
    if not include_original_edge_id:
        del edge_attributes[ORIGINAL_EDGE_ID]
    fields = {**graph.fields(), "edge_attributes": edge_attributes}
    fields["indices"] = graph.indices.to(next(iter(edges.values()))[0].dtype)
    if is_homogeneous:
        fields.update(dict.fromkeys(("node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id")))
    return fused_csc_sampling_graph(**fields)


def in_every_type(data: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, dict[str, torch.Tensor]]:
    """Return the data that every type has with the same dtype and row shape, by name, then by type."""
    attributes = {}
    for name in next(iter(data.values())):
        by_type = {type_name: columns[name] for type_name, columns in data.items() if name in columns}
        if len(by_type) == len(data) and len({(values.dtype, values.shape[1:]) for values in by_type.values()}) == 1:
            attributes[name] = by_type
    return attributes


# At import time, because DGL imports the module: a function would be called too late if `import dgl` comes first.
if "dgl" not in sys.modules:
    sys.modules.setdefault("dgl.graphbolt", sys.modules["graphfeed"])
