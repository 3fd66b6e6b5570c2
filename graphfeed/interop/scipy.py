"""SciPy: graphs from sparse matrices, and back."""

from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.ops.process import import_optional
from graphfeed.storage.graph import (
    FusedCSCSamplingGraph,
    by_type_name,
    ends_of,
    from_coo,
    from_type_dict,
    to_coo,
    to_type_dict,
)

__all__ = ["from_scipy", "to_scipy"]


@checked
def from_scipy(matrix: Any, weight: str | None = None) -> FusedCSCSamplingGraph:
    """Make a graph from a sparse adjacency matrix, or from one for each edge type. SciPy itself is not imported.

    Each stored element `matrix[i, j]` is an edge from node i to node j, also if it is zero or stored twice. The id of
    an edge is the position of its element in `matrix.tocoo()`.

    Args:
        matrix: A matrix or array of `scipy.sparse` in any format. With types, a dict of these by edge type, each of as
            many rows as its source type has nodes and as many columns as its destination type has.
        weight: The name of the edge attribute for the values; None leaves them out.

    Raises:
        ValueError: Without types, a matrix that is not square; with types, two that give a node type different sizes.

    Example:
        >>> import scipy.sparse
        >>> graph = from_scipy(scipy.sparse.csr_array([[0, 2], [3, 0]]), weight="weight")
        >>> graph, graph.edge_attributes["weight"]
        (FusedCSCSamplingGraph(num_nodes=2, num_edges=2), tensor([3, 2]))
    """
    # One of SciPy's formats is a dict itself.
    by_type: dict[Any, Any] = {None: matrix} if hasattr(matrix, "tocoo") else by_type_name(to_type_dict(matrix))
    edges: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
    values: dict[Any, torch.Tensor] = {}
    sizes: dict[Any, int] = {}
    for edge_type, part in by_type.items():
        what = "matrix" if edge_type is None else f"matrix[{edge_type!r}]"
        if not hasattr(part, "tocoo") or len(part.shape) != 2:
            raise TypeError(
                f"{what} must be a sparse matrix of SciPy's with two dimensions, but is a {type(part).__name__}"
            )
        if edge_type is not None and edge_type.count(":") != 2:
            raise ValueError(f"matrix has type {edge_type!r}; an edge type is 'source:relation:destination'")
        for node_type, count in zip(ends_of(edge_type), part.shape, strict=True):
            if sizes.setdefault(node_type, count) != count:
                wrong = (
                    "it must be square"
                    if edge_type is None
                    else f"{node_type!r} has {sizes[node_type]} nodes elsewhere"
                )
                raise ValueError(f"{what} has shape {tuple(part.shape)}, but {wrong}")
        triplets = part.tocoo()
        edges[edge_type] = (torch.as_tensor(triplets.row).long(), torch.as_tensor(triplets.col).long())
        values[edge_type] = torch.as_tensor(triplets.data)
    attributes = {} if weight is None else {weight: from_type_dict(values)}
    return from_coo(from_type_dict(edges), from_type_dict(sizes), edge_attributes=attributes)


@checked
def to_scipy(graph: FusedCSCSamplingGraph, weight: str | None = None) -> Any:
    """Return a graph as a `scipy.sparse.coo_array`, or with types as a dict of these by edge type.

    Elements are in the order of the edges' ids. Two edges between the same nodes are two elements, which most of
    SciPy's other formats add up.

    Args:
        weight: The edge attribute with the values; None gives ones.

    Raises:
        ImportError: SciPy is not installed.
        KeyError: The graph has no such attribute.

    Example:
        >>> to_scipy(from_coo(([0, 1], [1, 0]), 2)).toarray()
        array([[0, 1],
               [1, 0]])
    """
    sparse = import_optional("scipy.sparse", "to_scipy()", "pip install scipy")
    values = None if weight is None else graph.edge_attribute(weight)
    sizes, matrices = to_type_dict(graph.num_nodes), {}
    for edge_type, edges in to_coo(graph).items():
        data = torch.ones_like(edges.sources) if values is None else values[edges.positions]
        shape = tuple(sizes[end] for end in ends_of(edge_type))
        matrices[edge_type] = sparse.coo_array(
            (data.numpy(), (edges.sources.numpy(), edges.destinations.numpy())), shape=shape
        )
    return from_type_dict(matrices)
