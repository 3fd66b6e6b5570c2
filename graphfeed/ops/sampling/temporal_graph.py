"""Graph arrays for temporal sampling."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_length, check_vector
from graphfeed.ops.arguments.verified import is_verified
from graphfeed.ops.sampling.time_order import ensure_links, ensure_order, linked_order
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.csc import ensure_columns, ensure_edge_types, ensure_length


class TemporalGraph(NamedTuple):
    """The arrays of a graph for temporal sampling. If `times` is None, all edges are before any time.

    The rank of an edge is its position after the edges of each column are sorted by time.
    """

    indptr: torch.Tensor
    """Column starts, int32 or int64."""
    indices: torch.Tensor
    """Source node of each edge, int32 or int64."""
    times: torch.Tensor | None = None
    """int64, by rank: the time of each edge, ascending in each column, or in each edge type of a column."""
    order: torch.Tensor | None = None
    """By rank: the offset of each edge in its column. None if ranks equal positions."""
    links: torch.Tensor | None = None
    """int64, by rank: offset and source of each edge (see `link_sources`). `sample_hops` prefers them to `order`."""
    earliest: torch.Tensor | None = None
    """int64, by rank: a second time of each edge, which must be inside the window, too. It is not later than the first
    time, unless that is `ALWAYS`."""
    cumulative: torch.Tensor | None = None
    """Running sums of weights by rank, as `cumulate_weights` returns them."""
    edge_times: torch.Tensor | None = None
    """int64, by position: the time at which the next hop samples the source of each edge. None, or `ALWAYS` for an
    edge, stands for the time of the column."""
    types: torch.Tensor | None = None
    """Edge type of each edge, ascending within each column."""
    num_types: int = 1
    """Number of edge types."""


def ensure_temporal(graph: TemporalGraph) -> None:
    """Raise unless the arrays are consistent. Arrays that ops computed from verified ones are not checked again."""
    ensure_columns("graph.indptr", graph.indptr)
    ensure_length("graph.indices", graph.indices, graph.indptr)
    for name in ("times", "earliest", "edge_times"):
        values = getattr(graph, name)
        if values is not None:
            check_vector(f"graph.{name}", values, (torch.int64,))
            check_length(f"graph.{name}", values, graph.indices.numel(), "edge")
    if graph.links is not None:
        ensure_links(graph.indptr, graph.links)
    if graph.order is not None and not is_part_of(graph.order, graph):
        ensure_order(graph.indptr, graph.order)
    if graph.cumulative is not None:
        ensure_cumulative(graph.indptr, graph.cumulative)
    if graph.types is not None:
        ensure_edge_types(graph.indptr, graph.types, graph.num_types)


def is_part_of(order: torch.Tensor, graph: TemporalGraph) -> bool:
    links = graph.links
    if links is None or not links.is_contiguous() or not is_verified("links", (graph.indptr, links)):
        return False
    # Each call returns a new tensor, so compare the memory.
    own = linked_order(links)
    alike = order.dtype == own.dtype and order.shape == own.shape and order.stride() == own.stride()
    return alike and order.data_ptr() == own.data_ptr()
