"""One part of a partitioned graph: the in-edges of the nodes that it owns."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.part_book import PartBook
from graphfeed.ops.arguments import checked
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows import take_small
from graphfeed.storage.datasets import identify
from graphfeed.storage.graph import (
    ORIGINAL_EDGE_ID,
    ByType,
    FusedCSCSamplingGraph,
    GraphArrays,
    fused_csc_sampling_graph,
    kernel_columns,
    stacked_assignment,
    to_type_dict,
)

Assignment: TypeAlias = PartBook | ByType
"""A partition book, or the part of each node; by node type if the graph has types."""
MOST_PARTS = 1 << 31
"""Upper bound of the number of parts: part numbers are at most int32."""


@checked
@dataclass(frozen=True, eq=False)
class GraphPart:
    """A part of a graph: all in-edges of the nodes that it owns, in their order in the whole graph."""

    columns: FusedCSCSamplingGraph
    """The nodes of the whole graph with their attributes, and only the edges of this part. Nodes of other parts have no
    edges here, so global ids need no translation; this costs 8 bytes per node of the whole graph. Unless edges have an
    `ORIGINAL_EDGE_ID`, sampled edge ids are positions in this part; `edge_ids` maps them to global ids."""
    book: PartBook
    """The owner of each node. Nodes of all types share one id space, type after type."""
    number: int
    """Index of this part."""
    num_edges: int | dict[str, int]
    """Number of edges of the whole graph; by edge type if it has types."""
    identity: str = ""
    """Fingerprint of the partition, equal in all of its parts; "" if it is unknown."""
    first_edges: torch.Tensor | None = None
    """`csc_indptr` of the whole graph if an edge's id is its position there; None if ids are an edge attribute."""

    def check_ids(self, *, whole: bool) -> None:
        """Raise unless edges have ids; with `whole`, also compare the in-degrees of the part's nodes."""
        starts, indptr = self.first_edges, self.columns.csc_indptr
        if starts is None:
            self.columns.edge_attribute(ORIGINAL_EDGE_ID)
            return
        total = sum(to_type_dict(self.num_edges).values())
        if starts.shape != indptr.shape or (int(starts[0]), int(starts[-1])) != (0, total):
            raise ValueError(
                f"first_edges must have {indptr.numel()} values from 0 to {total}, but has {starts.numel()}"
                + (f" from {starts[0]} to {starts[-1]}" if starts.numel() else "")
            )
        nodes = self.book.ids_of(self.number)
        if whole and not torch.equal(starts.diff()[nodes], indptr.diff()[nodes]):
            raise ValueError(
                f"first_edges and csc_indptr disagree on the number of in-edges of nodes of part {self.number}"
            )

    @property
    def edge_id_dtype(self) -> torch.dtype:
        """The dtype of edge ids."""
        ids = self.columns.edge_attributes.get(ORIGINAL_EDGE_ID)
        return torch.int64 if ids is None else ids.dtype

    def edge_ids(self) -> torch.Tensor:
        """Return the id of each edge of the part in the whole graph."""
        ids = self.columns.edge_attributes.get(ORIGINAL_EDGE_ID)
        if ids is not None:
            return ids
        assert self.first_edges is not None
        return ops.indptr_edge_ids(self.columns.csc_indptr.long(), offset=self.first_edges[:-1].long())

    def read_edges(self, nodes: torch.Tensor, picks: ops.Picks) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the number of picks per node (int32), the sources of the picks, and their ids in the whole graph."""
        columns, ids = self.columns, self.columns.edge_attributes.get(ORIGINAL_EDGE_ID)
        if ids is None:
            # If ids are positions, two numbers per node are read instead of all ids.
            return ops.read_columns(*self._starts, columns.indices, nodes, *picks)
        counts = torch.from_numpy(np.diff(picks.offsets.numpy()).astype(np.int32))
        return counts, take_small(columns.indices, picks.positions), take_small(ids, picks.positions)

    @cached_property
    def _starts(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.first_edges is not None
        return kernel_columns(self.columns)[0], self.first_edges.long().contiguous()

    def book_of(self, node_type: str | None) -> PartBook:
        """Return the book of one node type, with ids starting at 0, as its features need it; None: of all nodes.

        Raises:
            KeyError: The graph doesn't have the node type.
        """
        if node_type is None:
            return self.book
        types, first = self.columns.node_type_to_id or {}, self.columns.first_ids()
        if node_type not in types:
            raise KeyError(f"node_type is {node_type!r}, but the graph has {list(types) or 'no types'}")
        return self.book.within(first[types[node_type]], first[types[node_type] + 1])


@checked
def cut_graph(graph: FusedCSCSamplingGraph, assignment: Assignment, part: int) -> GraphPart:
    """Cut one part out of a graph in memory.

    Args:
        assignment: The part of each node, of an integer dtype, by node type if there are types; or a `PartBook`.

    Raises:
        ValueError: The assignment does not have one part per node, or `part` does not exist.

    Example:
        >>> from graphfeed import from_coo
        >>> graph = from_coo(([0, 1, 2], [1, 2, 2]), num_nodes=3)
        >>> cut_graph(graph, torch.tensor([0, 0, 1]), part=1).columns
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    book = make_book(graph, assignment)
    if not 0 <= part < book.num_parts:
        raise ValueError(f"part must be in 0 .. {book.num_parts - 1}, but is {part}")
    nodes = book.ids_of(part)
    counts = torch.zeros(graph.total_num_nodes + 1, dtype=torch.int64, device="cpu")
    counts[nodes + 1] = graph.csc_indptr.diff()[nodes].long()
    starts = counts.cumsum(0)
    positions = ops.indptr_edge_ids(starts, offset=graph.csc_indptr[:-1].long())
    attributes = {name: copy_part_rows(values, positions) for name, values in graph.edge_attributes.items()}
    indptr = buffers.empty_long_lived(starts.numel(), graph.csc_indptr.dtype, buffers.CPU)
    types = None if graph.type_per_edge is None else copy_part_rows(graph.type_per_edge, positions)
    own = {
        "csc_indptr": indptr.copy_(starts),
        "indices": copy_part_rows(graph.indices, positions),
        "type_per_edge": types,
    }
    columns = fused_csc_sampling_graph(**{**graph.fields(), **own, "edge_attributes": attributes})
    first_edges = None if ORIGINAL_EDGE_ID in attributes else graph.csc_indptr
    identity = identify(graph, book.num_parts, int(book.checksum))
    return GraphPart(columns, book, part, graph.num_edges, identity, first_edges)


def copy_part_rows(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    # Allocated for fast random reads.
    out = buffers.empty_long_lived((positions.numel(), *values.shape[1:]), values.dtype, buffers.CPU)
    return torch.index_select(values, 0, positions, out=out)


@checked
def cut_rows(values: torch.Tensor, book: PartBook, part: int) -> torch.Tensor:
    """Return the rows that a part owns, in order of their ids.

    Args:
        values: One row per id in the book.

    Raises:
        ValueError: The number of rows differs from the book's number of ids.

    Example:
        >>> cut_rows(torch.tensor([[5], [6], [7]]), PartBook.from_bounds([0, 1, 3]), part=1).tolist()
        [[6], [7]]
    """
    if len(values) != book.num_ids:
        raise ValueError(f"values must have {book.num_ids} rows, one per id of the book, but has {len(values)}")
    return copy_part_rows(values, book.ids_of(part))


def make_book(graph: GraphArrays, assignment: Assignment) -> PartBook:
    if isinstance(assignment, dict):
        assignment = stacked_assignment(graph, assignment, MOST_PARTS)
    book = assignment if isinstance(assignment, PartBook) else PartBook.from_assignment(assignment)
    if book.num_ids != graph.total_num_nodes:
        raise ValueError(f"assignment must have {graph.total_num_nodes} values, one per node, but has {book.num_ids}")
    return book
