"""NetworkX: graphs from its graphs, and back."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import checked
from graphfeed.ops.process import import_optional
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph, ends_of, from_coo, to_coo, to_type_dict

__all__ = ["from_networkx", "to_networkx"]

EDGE_TYPE = "edge_type"


@checked
def from_networkx(g: Any, node_attrs: Iterable[str] = (), edge_attrs: Iterable[str] = ()) -> FusedCSCSamplingGraph:
    """Make a graph from any graph of NetworkX's. NetworkX itself is not imported.

    The id of a node is its position in `list(g)`, and that of an edge its position in `list(g.edges)`. An undirected
    edge becomes two: the ids of the reverses follow those of all edges, and a self-loop has no reverse. NetworkX keeps
    Python objects: this takes about 1.5 us per edge, and more with attributes.

    Args:
        g: A `networkx.Graph`, `DiGraph`, `MultiGraph` or `MultiDiGraph`.
        node_attrs: The data of nodes to keep as `node_attributes`: numbers, or sequences of as many numbers each.
        edge_attrs: The data of edges to keep as `edge_attributes`, such as weights or times.

    Raises:
        KeyError: A node or edge lacks an attribute.
        ValueError: The values of an attribute are not numbers of one shape.

    Example:
        >>> import networkx
        >>> graph = from_networkx(networkx.path_graph(["a", "b", "c"]))
        >>> graph, graph.in_subgraph(torch.tensor([0])).original_edge_ids  # the reverse of the first edge
        (FusedCSCSamplingGraph(num_nodes=3, num_edges=4), tensor([2]))
    """
    for name, given in (("node_attrs", node_attrs), ("edge_attrs", edge_attrs)):
        if isinstance(given, str):
            raise TypeError(f"{name} must be a list of names, but is the string {given!r}; give [{given!r}]")
    if not all(hasattr(g, name) for name in ("nodes", "edges", "is_directed")):
        raise TypeError(f"g must be a graph of NetworkX's, but is a {type(g).__name__}; from_coo takes edge lists")
    numbers = {node: number for number, node in enumerate(g)}
    ends = [(numbers[edge[0]], numbers[edge[1]]) for edge in g.edges]
    edges = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2)
    # A loop has no reverse.
    back = torch.empty(0, dtype=torch.int64) if g.is_directed() else (edges[:, 0] != edges[:, 1]).nonzero().squeeze(1)
    both = torch.cat([edges, edges[back].flip(1)])
    attributes = {}
    for name in edge_attrs:
        values = collect("edge", name, ((edge[:2], edge[-1]) for edge in g.edges(data=True)))
        attributes[name] = torch.cat([values, values[back]])
    return from_coo(
        (both[:, 0].contiguous(), both[:, 1].contiguous()),
        len(numbers),
        node_attributes={name: collect("node", name, g.nodes(data=True)) for name in node_attrs},
        edge_attributes=attributes,
    )


def collect(domain: str, name: str, data: Iterable[tuple[Any, dict[str, Any]]]) -> torch.Tensor:
    """Return the values of an attribute, one row per node or edge."""
    rows = []
    for owner, attributes in data:
        if name not in attributes:
            raise KeyError(
                f"{domain}_attrs: {domain} {owner!r} has no {name!r}, but {list(attributes)}; give it to each {domain}"
            )
        rows.append(attributes[name])
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise ValueError(f"{domain} attribute {name!r} has values of different shapes; give each the same") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{domain} attribute {name!r} must be numbers, but has {array.dtype} values")
    return torch.from_numpy(array)


@checked
def to_networkx(graph: FusedCSCSamplingGraph) -> Any:
    """Return a graph as a `networkx.MultiDiGraph`.

    Nodes are their ids. With types they are tuples of the type and the id, and each edge has its type as "edge_type".
    Nodes and edges carry the graph's attributes: numbers, or lists for rows of several. Edges of a type are added in
    the order of their ids. This takes about 12 us per edge.

    Raises:
        ImportError: NetworkX is not installed.
        ValueError: A graph with types has an edge attribute "edge_type".

    Example:
        >>> list(to_networkx(from_coo(([1, 2], [0, 0]), 3)).edges())
        [(1, 0), (2, 0)]
    """
    networkx = import_optional("networkx", "to_networkx()", "pip install networkx")
    result = networkx.MultiDiGraph()
    sizes = to_type_dict(graph.num_nodes)
    names = [node_name(type_name, number) for type_name, count in sizes.items() for number in range(count)]
    result.add_nodes_from(zip(names, rows_of(graph.node_attributes, torch.arange(len(names))), strict=True))
    attributes = {name: values for name, values in graph.edge_attributes.items() if name != ORIGINAL_EDGE_ID}
    if graph.edge_type_to_id is not None and EDGE_TYPE in attributes:
        raise ValueError(f"graph has an edge attribute {EDGE_TYPE!r}, which is to be the type; give it another name")
    for type_name, edges in to_coo(graph).items():
        source, destination = ends_of(type_name)
        of_type = {} if type_name is None else {EDGE_TYPE: type_name}
        rows = rows_of(attributes, edges.positions)
        for start, end, row in zip(edges.sources.tolist(), edges.destinations.tolist(), rows, strict=True):
            ends = node_name(source, start), node_name(destination, end)
            number = result.add_edge(*ends)
            # Not as keyword arguments: those would be taken for NetworkX's own if they have its names.
            result.edges[*ends, number].update(of_type | row)
    return result


def node_name(node_type: str | None, number: int) -> Any:
    return number if node_type is None else (node_type, number)


def rows_of(attributes: Mapping[str, torch.Tensor], positions: torch.Tensor) -> list[dict[str, Any]]:
    columns = {name: values[positions].tolist() for name, values in attributes.items()}
    return [{name: column[row] for name, column in columns.items()} for row in range(len(positions))]
