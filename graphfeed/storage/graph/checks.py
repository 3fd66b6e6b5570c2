"""Whether arrays are those of a graph: what their shapes tell, and what takes a pass over them."""

from typing import TYPE_CHECKING

from graphfeed import ops
from graphfeed.ops.arguments import brief, check_vector
from graphfeed.ops.structure import TYPE_DTYPES, check_ends
from graphfeed.storage.graph.attributes import check_attributes
from graphfeed.storage.graph.type_names import numbers_of

if TYPE_CHECKING:
    from graphfeed.storage.graph.graph_arrays import GraphArrays


def check_shapes(graph: "GraphArrays") -> None:
    """Raise unless the arrays have the dtypes and lengths of a graph, and its types are numbered; without a pass.

    Raises:
        TypeError: An array of another dtype.
        ValueError: Lengths that don't match, or types that don't agree.
    """
    check_vector("csc_indptr", graph.csc_indptr)
    check_vector("indices", graph.indices)
    check_ends("csc_indptr", graph.csc_indptr, graph.total_num_edges)
    check_type_numbers(graph)
    check_attributes("node", graph.node_attributes, graph.total_num_nodes)
    check_attributes("edge", graph.edge_attributes, graph.total_num_edges)


def check_type_numbers(graph: "GraphArrays") -> None:
    """Raise unless all or none of the types are given, and agree with each other and the numbers of nodes."""
    num_nodes, num_edges = graph.total_num_nodes, graph.total_num_edges
    names = ["node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id"]
    node_type_offset, type_per_edge, node_type_to_id, edge_type_to_id = given = [vars(graph)[name] for name in names]
    missing = [name for name, value in zip(names, given, strict=True) if value is None]
    if len(missing) == len(names):
        return
    if missing:
        raise ValueError(f"a graph with types needs all of {names}, but {missing} is None")
    for name, ids in (("node_type_to_id", node_type_to_id), ("edge_type_to_id", edge_type_to_id)):
        # Numbers are positions in arrays by type, so none may be missing.
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
    """Raise unless types of edges ascend in each column, and agree with the nodes that they join; in passes."""
    if graph.type_per_edge is None:
        return
    assert graph.node_type_to_id is not None
    assert graph.edge_type_to_id is not None
    ops.check_edge_types(graph.csc_indptr, graph.type_per_edge, len(graph.edge_type_to_id))
    if graph.total_num_edges:
        ends = numbers_of(graph.node_type_to_id, graph.edge_type_to_id).ends
        ops.check_joined(graph.csc_indptr, graph.indices, graph.type_per_edge, graph.node_type_offset, ends)
