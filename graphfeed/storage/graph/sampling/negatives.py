"""Sampling of negatives: pairs of nodes that are not edges of a given type."""

from dataclasses import dataclass
from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops.arguments import NOTHING, as_tensor, brief, checked, kind_of
from graphfeed.ops.sampling import NO_EDGES, NO_TYPES, EdgeSet, Population
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampling.graph_files import kernel_columns
from graphfeed.storage.graph.sampling_graph import SamplingGraph, joined_types
from graphfeed.storage.graph.type_names import first_ids, to_type_dict
from graphfeed.storage.memory.shareable import Shareable


class NodeWeights(Shareable):
    """Sampling weights of the nodes of a type.

    Raises:
        ValueError: A weight is negative or infinite, or all are 0.

    Example:
        >>> len(NodeWeights(torch.tensor([0.0, 1.0, 3.0])))
        3
    """

    def __init__(self, weights: Any) -> None:
        values = as_tensor("weights", weights)
        if not values.is_floating_point():
            values = values.to(torch.float64)
        # As a single column of a graph.
        self.cumulative = ops.cumulate_weights(torch.tensor([0, values.numel()], device="cpu"), values)
        if values.numel() == 0 or int(self.cumulative[-1]) == 0:
            raise ValueError("weights of nodes must not all be 0, as no node could be drawn")

    def __len__(self) -> int:
        return self.cumulative.numel()


@checked
@dataclass(frozen=True, eq=False)
class NegativeQuery:
    """Parameters of negative sampling: which pairs of nodes count as negatives.

    Attributes:
        source_weights: Weights of the sources that are drawn. None: all are equally likely.
        destination_weights: Those of the destinations.
        strict: Whether edges of the graph are excluded.
        time_name: Node attribute with times: both nodes must exist at the time of the pair. If both endpoints of a pair
            have times, a destination drawn for a given source must exist at the destination's time; if both nodes are
            drawn, both must exist at the earlier time.
    """

    source_weights: NodeWeights | None = None
    destination_weights: NodeWeights | None = None
    strict: bool = False
    time_name: str | None = None


def check_query(graph: SamplingGraph, query: NegativeQuery) -> None:
    """Raise unless the graph has the times that a query needs."""
    if query.time_name is not None:
        node_times(graph, query, 0, 0)


def negative_pairs_of(
    graph: SamplingGraph,
    edge_type: str | None,
    query: NegativeQuery,
    wanted: int | torch.Tensor,
    key: int,
    limits: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sample pairs of nodes as negatives; see `graphfeed.ops.sample_negative_pairs`.

    `wanted` is the number of pairs, or the source of each; `limits` has the time of each pair or of both endpoints.
    `strict` and times need a graph whose arrays are in this process. A type or an attribute that the graph lacks raises
    a KeyError; missing times, or a query that no pair satisfies, a ValueError.
    """
    sizes, starts = to_type_dict(graph.num_nodes), first_ids(graph.num_nodes)
    typed = None not in sizes
    if not typed and edge_type is not None:
        raise KeyError(f"edge_type is {brief(edge_type)}, but the graph has no types")
    ends = joined_types(str(edge_type), sizes) if typed else (None, None)
    if typed and query.strict and edge_type not in graph.edge_types:
        raise KeyError(f"edge_type is {brief(edge_type)}, but with strict=True it must be one of {graph.edge_types}")
    timed = query.time_name is not None
    if timed and limits is None:
        raise ValueError(
            f"query has time_name={brief(query.time_name)}, but the mini-batch has no timestamp; name an item of the "
            "item set 'timestamp', or leave out time_name"
        )
    sources, destinations = (
        Population(
            sizes[end],
            cumulative_of(weights, sizes[end]),
            node_times(graph, query, starts[end], sizes[end]) if timed else NOTHING,
        )
        for end, weights in zip(ends, (query.source_weights, query.destination_weights), strict=True)
    )
    # If the sources are given, only destinations are drawn.
    fixed = wanted.to(torch.int64) if isinstance(wanted, torch.Tensor) else None
    if limits is not None and limits.dim() == 2:
        limits = limits.amin(1) if fixed is None else limits[:, 1]
    return ops.sample_negative_pairs(
        wanted if isinstance(wanted, int) else len(wanted),
        key,
        sources if fixed is None else fixed,
        destinations,
        limits=ops.as_times("the times of seeds", limits) if timed and limits is not None else NOTHING,
        edges=known_edges(graph, edge_type, (starts[ends[0]], starts[ends[1]])) if query.strict else NO_EDGES,
    )


def cumulative_of(weights: NodeWeights | None, size: int) -> torch.Tensor:
    if weights is None:
        return NOTHING
    if len(weights) != size:
        raise ValueError(f"weights of nodes must have {size} values, one for each node, but have {len(weights)}")
    # Running sums, so that a draw is a bisection.
    return weights.cumulative


def node_times(graph: SamplingGraph, query: NegativeQuery, start: int, size: int) -> torch.Tensor:
    assert query.time_name is not None
    # By the method, since a user-defined graph may have times, too.
    read: Any = getattr(graph, "node_attribute", None)
    if read is None:
        raise TypeError(f"times of negatives need a graph with node_attribute(), but this is {kind_of(graph)}")
    times = read(query.time_name)
    return ops.as_times("the nodes' timestamps", times[start : start + size])


def known_edges(graph: SamplingGraph, edge_type: str | None, first: tuple[int, int]) -> EdgeSet:
    if not isinstance(graph, GraphArrays):
        raise TypeError(f"strict=True needs a graph in memory, but this is {kind_of(graph)}")
    # With types, only edges of the type of the pair count.
    starts, types = kernel_columns(graph)
    if graph.edge_type_to_id is None or edge_type is None:
        return EdgeSet(starts, graph.indices)
    numbers = len(graph.edge_type_to_id), graph.edge_type_to_id[edge_type], *first
    return EdgeSet(starts, graph.indices, NO_TYPES if types is None else types, *numbers)
