"""One part of a graph: the in-edges of the nodes that it owns."""

from dataclasses import dataclass
from typing import TypeAlias

import torch

from graphfeed import ops
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition_identity import identify
from graphfeed.ops.memory import buffers
from graphfeed.storage.graph import (
    ORIGINAL_EDGE_ID,
    ByType,
    FusedCSCSamplingGraph,
    GraphArrays,
    fused_csc_sampling_graph,
    stacked_assignment,
)

Assignment: TypeAlias = PartBook | ByType
"""A book, or the part of each node; by node type if the graph has types."""
MOST_PARTS = 1 << 31
"""Numbers of parts are int32 at most."""


@dataclass(frozen=True, eq=False)
class GraphPart:
    """A part of a graph: all in-edges of the nodes that it owns, in the order that they have in the whole graph."""

    columns: FusedCSCSamplingGraph
    """The whole graph's nodes, with the edges of the part alone. A node of another part has no edges here, so global
    ids need no translation, for 8 bytes per node of the whole graph. Each edge's id in the whole graph is its attribute
    `ORIGINAL_EDGE_ID`. The attributes of nodes, such as times, are those of all nodes, because any may be a neighbour.
    """
    book: PartBook
    """Which part owns each node. The nodes of all types are in one space of ids, type after type."""
    number: int
    """Which part this is."""
    num_edges: int | dict[str, int]
    """The number of edges of the whole graph; by edge type if it has types."""
    identity: str = ""
    """The same text in all parts of a partition, and most likely no other one has it; "" if nobody knows."""

    def book_of(self, node_type: str) -> PartBook:
        """Return the book of one node type, whose ids begin at 0: that of the features of these nodes.

        Raises:
            KeyError: The graph doesn't have the node type.
        """
        types, first = self.columns.node_type_to_id or {}, self.columns.first_ids()
        if node_type not in types:
            raise KeyError(f"node_type is {node_type!r}, but the graph has {list(types) or 'no types'}")
        return self.book.within(first[types[node_type]], first[types[node_type] + 1])


def cut_graph(graph: FusedCSCSamplingGraph, assignment: Assignment, part: int) -> GraphPart:
    """Return one part of a graph in memory.

    Args:
        graph: The whole graph.
        assignment: The part of each node, of an integer dtype, by node type if the graph has types; or a `PartBook`.
        part: Which part to return.

    Raises:
        ValueError: The assignment is not one part per node, or there is no such part.

    Example:
        >>> from graphfeed import from_coo
        >>> graph = from_coo(([0, 1, 2], [1, 2, 2]), num_nodes=3)
        >>> cut_graph(graph, torch.tensor([0, 0, 1]), part=1).columns
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    book = make_book(graph, assignment)
    if not 0 <= part < book.num_parts:
        raise ValueError(f"part must lie in 0 .. {book.num_parts - 1}, but is {part}")
    nodes = book.ids_of(part)
    counts = torch.zeros(graph.total_num_nodes + 1, dtype=torch.int64)
    counts[nodes + 1] = graph.csc_indptr.diff()[nodes].long()
    starts = counts.cumsum(0)
    positions = ops.indptr_edge_ids(starts, offset=graph.csc_indptr[:-1].long())
    attributes = {name: take(values, positions) for name, values in graph.edge_attributes.items()}
    attributes.setdefault(ORIGINAL_EDGE_ID, positions)
    indptr = buffers.empty_long_lived(starts.numel(), graph.csc_indptr.dtype, buffers.CPU)
    columns = fused_csc_sampling_graph(
        indptr.copy_(starts),
        take(graph.indices, positions),
        graph.node_type_offset,
        None if graph.type_per_edge is None else take(graph.type_per_edge, positions),
        graph.node_type_to_id,
        graph.edge_type_to_id,
        graph.node_attributes,
        attributes,
    )
    return GraphPart(columns, book, part, graph.num_edges, identify(graph, book))


def take(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return some rows, in memory that is good for reading at random."""
    out = buffers.empty_long_lived((positions.numel(), *values.shape[1:]), values.dtype, buffers.CPU)
    return torch.index_select(values, 0, positions, out=out)


def cut_rows(values: torch.Tensor, book: PartBook, part: int) -> torch.Tensor:
    """Return the rows that a part owns, in the order of their ids.

    Args:
        values: One row per id.
        book: Which part owns each id.
        part: Which part's rows to return.

    Raises:
        ValueError: The number of rows is not that of the book's ids.

    Example:
        >>> cut_rows(torch.tensor([[5], [6], [7]]), PartBook.from_bounds([0, 1, 3]), part=1).tolist()
        [[6], [7]]
    """
    if len(values) != book.num_ids:
        raise ValueError(f"values must have {book.num_ids} rows, one per id of the book, but has {len(values)}")
    return values[book.ids_of(part)]


def make_book(graph: GraphArrays, assignment: Assignment) -> PartBook:
    """Return the book of a graph's nodes, or say why the assignment is none."""
    if isinstance(assignment, PartBook):
        book = assignment
    elif isinstance(assignment, dict):
        book = PartBook.from_assignment(stacked_assignment(graph, assignment, MOST_PARTS))
    else:
        book = PartBook.from_assignment(assignment)
    if book.num_ids != graph.total_num_nodes:
        raise ValueError(f"assignment must have {graph.total_num_nodes} values, one per node, but has {book.num_ids}")
    return book
