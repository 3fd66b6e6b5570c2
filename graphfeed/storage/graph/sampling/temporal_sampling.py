"""Temporal sampling from graph arrays: derived arrays in the order of time, and the times of seeds."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from graphfeed import ops
from graphfeed.ops.arguments import Tensors, as_tensor, brief, mark_below
from graphfeed.ops.memory import is_page_locked
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import SampledSubgraph
from graphfeed.storage.graph.sampling.graph_files import kernel_columns
from graphfeed.storage.graph.sampling_request import SamplingRequest, Seeds, TemporalQuery
from graphfeed.storage.graph.type_names import with_all_types

LAST_TIME = torch.iinfo(torch.int64).max


def stack_seed_times(graph: GraphArrays, seeds: Seeds, request: SamplingRequest) -> ops.SeedTimes:
    """Return the time and the time window, or None, of each seed, node type by node type."""
    times, query = stack_times(graph, "seeds_timestamp", seeds.times, seeds.ids), query_of(request)
    windows = None
    if seeds.windows is not None:
        windows = stack_times(graph, "seeds_pre_time_window", seeds.windows, seeds.ids)
    elif query.pre_time_window is not None:
        windows = torch.full_like(times, query.pre_time_window)
    if query.inclusive:
        # The maximum age is included, too: as the time is one later, the window is longer by two.
        times, windows = later(times), None if windows is None else later(later(windows))
    # Known to be 0 or more, so checking it need not synchronize.
    if windows is not None and seeds.windows is None and not times.is_cpu:
        mark_below(windows, ops.LARGEST_WINDOW)
    return ops.SeedTimes(times, windows)


def later(times: torch.Tensor) -> torch.Tensor:
    """Return the times plus 1, so that nodes and edges with these times are eligible; saturates at int64's maximum."""
    return times.clamp(max=LAST_TIME - 1) + 1


def query_of(request: SamplingRequest) -> TemporalQuery:
    if request.temporal is None:
        raise ValueError("the request has no temporal query; pass SamplingRequest(..., temporal=TemporalQuery(...))")
    return request.temporal


def edge_times_of(graph: GraphArrays, query: TemporalQuery) -> torch.Tensor:
    """Return the time of each edge, int64, in the order of the edges; computed by the first call for an attribute."""
    name = query.edge_timestamp_attr_name
    assert name is not None, "TemporalQuery requires it with hop_time='edge'"
    edge = graph.edge_attribute(name)
    (times,) = graph.cached(f"edge times {name}", (edge,), lambda: (edge_times(graph, None, edge),))
    return times  # type: ignore[no-any-return]


def next_times(graph: GraphArrays, query: TemporalQuery) -> torch.Tensor | None:
    """Return the time at which the next hop samples the source of each edge; None: the time of the seed."""
    if query.hop_time != "edge":
        return None
    times = edge_times_of(graph, query)
    if not query.inclusive:
        return times
    name = query.edge_timestamp_attr_name
    assert name is not None
    # The attribute is a source, too, because `times` may be derived from it.
    (inclusive,) = graph.cached(
        f"later than {name}",
        (graph.edge_attribute(name), times),
        lambda: (torch.where(times == ops.ALWAYS, times, later(times)),),
    )
    return inclusive  # type: ignore[no-any-return]


class TimeSources(NamedTuple):
    """The attributes that determine the order of edges by time."""

    node: torch.Tensor | None
    edge: torch.Tensor | None
    mask: torch.Tensor | None
    """Edges that the mask leaves out come last, because they never exist."""


def order_for(graph: GraphArrays, request: SamplingRequest, *, windowed: bool, by_type: bool = False) -> ops.TimeOrder:
    """Return the edges in the order of time, computed by the first call for each pair of attributes.

    Times become int64. The order needs no memory if the edges are already in it, as in a graph built from an edge list
    sorted by time, and only the edges have times, in int64. Otherwise it needs 8 bytes per edge, and 8 more if the
    edges are not in order. Weights of edges that are not in order need 8 more; so do time windows if both nodes and
    edges have times or some have none, and inclusive queries with hop_time="edge".

    Args:
        windowed: Whether seeds have time windows.
        by_type: Whether the edges of each type are sorted separately, for fan-outs per edge type.
    """
    query, mask = query_of(request), mask_of(graph, request)
    names = (query.node_timestamp_attr_name, query.edge_timestamp_attr_name)
    sources = TimeSources(
        None if names[0] is None else graph.node_attribute(names[0]),
        None if names[1] is None else graph.edge_attribute(names[1]),
        mask,
    )
    which = f"by the times {names}{' within edge types' if by_type else ''}"
    if mask is not None:
        which = f"{which} of {request.probs_name}"
    ranked = sort_by_time(graph, sources, which, by_type=by_type)
    if windowed and ranked.times is not None:
        (earliest,) = graph.cached(
            f"earlier of both times {which}",
            (*sources, links_or_order(ranked)),
            lambda: (earlier_times(graph, sources.node, sources.edge, ranked.order),),
        )
        ranked = ranked._replace(earliest=earliest)
    if request.probs_name is None or mask is not None:
        return ranked
    return ranked._replace(cumulative=running_weights(graph, request.probs_name, sources, which, ranked))


def sort_by_time(graph: GraphArrays, sources: TimeSources, which: str, *, by_type: bool) -> ops.TimeOrder:
    """Return the times in ascending order, and the order; nothing if no attribute is given."""
    if all(own is None for own in sources):
        return ops.TimeOrder()
    times, order, links = graph.cached(
        f"order {which}", (*sources,), lambda: time_order(graph, edge_times(graph, *sources), by_type=by_type)
    )
    if links is not None:
        order = ops.linked_order(links)
    if links is not None and is_page_locked(links):  # for a GPU, which reads the order in CPU memory
        (order,) = graph.cached(
            f"order of links {which}", (*sources, links), lambda: (ops.linked_order(links).contiguous(),)
        )
    return ops.TimeOrder(times, order, links)


def running_weights(
    graph: GraphArrays, probs_name: str, sources: TimeSources, which: str, ranked: ops.TimeOrder
) -> torch.Tensor:
    """Return the running sums of weights in the order of time."""
    if ranked.order is None:
        return graph.cumulative_weights(probs_name)
    weights = graph.edge_attribute(probs_name)
    (sums,) = graph.cached(
        f"running sums of {probs_name} {which}",
        (weights, *sources, links_or_order(ranked)),
        lambda: (ops.cumulate_weights(kernel_columns(graph)[0], by_rank(graph, weights, ranked.order)),),
    )
    return sums  # type: ignore[no-any-return]


def links_or_order(ranked: ops.TimeOrder) -> torch.Tensor | None:
    """Return the array that an order was computed as; it changes if the order is computed again."""
    return ranked.order if ranked.links is None else ranked.links


def mask_of(graph: GraphArrays, request: SamplingRequest) -> torch.Tensor | None:
    """Return the mask of a request for the latest edges. Weights instead of a mask raise a ValueError."""
    if request.strategy != "latest" or request.probs_name is None:
        return None
    mask = graph.edge_attribute(request.probs_name)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"strategy='latest' takes each edge once, whatever its weight, but {request.probs_name!r} has weights of "
            f"{mask.dtype}; name a mask of torch.bool, or leave it out"
        )
    return mask


def edge_times(
    graph: GraphArrays, node: torch.Tensor | None, edge: torch.Tensor | None, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the time of each edge: its own, that of its source, or the later one, since an edge needs its source."""
    times = both_times(graph, node, edge)
    later_one = times[0] if len(times) == 1 else torch.maximum(*times)
    # Masked edges never exist: no time is after the last one.
    return later_one if mask is None else torch.where(mask, later_one, LAST_TIME)


def both_times(graph: GraphArrays, node: torch.Tensor | None, edge: torch.Tensor | None) -> list[torch.Tensor]:
    times = []
    if edge is not None:
        times.append(ops.as_times("the edges' timestamps", edge))
    if node is not None:
        times.append(ops.gather_rows(ops.as_times("the nodes' timestamps", node), graph.indices))
    return times or [torch.full(graph.indices.shape, ops.ALWAYS, device=graph.indices.device)]


def earlier_times(
    graph: GraphArrays, node: torch.Tensor | None, edge: torch.Tensor | None, order: torch.Tensor | None
) -> torch.Tensor | None:
    """Return the earlier time of each edge, in the order of time, which decides whether it is in a time window.

    Edges and nodes that always exist are in every window, so they have the last time here. If every edge has exactly
    one time, the sorted times suffice, and the result is None.
    """
    times = both_times(graph, node, edge)
    if len(times) == 1 and not bool((times[0] == ops.ALWAYS).any()):
        return None
    times = [torch.where(own == ops.ALWAYS, LAST_TIME, own) for own in times]
    return by_rank(graph, times[0] if len(times) == 1 else torch.minimum(*times), order)


def time_order(graph: GraphArrays, times: torch.Tensor, *, by_type: bool) -> Tensors:
    """Return the sorted times of the edges, and their order, as positions in the columns or as links."""
    starts, types = kernel_columns(graph)
    found = ops.order_by_time(starts, times, types if by_type else None)
    if found.order is None or not found.order.is_cpu or is_page_locked(graph.indices):
        return found.times, found.order, None
    # On the CPU, links to sources let a draw find the edge and its source with one read.
    links = ops.link_sources(starts, graph.indices, found.order, graph.total_num_nodes)
    return found.times, found.order if links is None else None, links


def by_rank(graph: GraphArrays, values: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    return values if order is None else ops.gather_rows(values, ops.places_in_order(kernel_columns(graph)[0], order))


def stack_times(graph: GraphArrays, name: str, values: ByType | None, seeds: ByType) -> torch.Tensor:
    """Return one value per seed, node type by node type. The ids are not checked."""
    if values is None:
        raise ValueError(f"{name} must be provided for temporal neighbor sampling; name an item 'timestamp'")
    if graph.node_type_to_id is None or not isinstance(seeds, Mapping):
        if not hasattr(seeds, "__len__"):
            raise TypeError(f"seeds must be a tensor of ids, or a dict by node type, but is {brief(seeds)}")
        parts = [(name, values, len(seeds))]
    else:
        if not isinstance(values, Mapping):
            raise TypeError(f"{name} must be a dict by node type, as seeds is, but is {brief(values)}")
        unknown = sorted(set(values) - set(graph.node_type_to_id))
        if unknown:
            raise KeyError(f"{name} has node type {brief(unknown[0])}, but the graph has {list(graph.node_type_to_id)}")
        # In the order of ids, like the seeds.
        by_id = sorted(graph.node_type_to_id, key=graph.node_type_to_id.__getitem__)
        there = [node_type for node_type in by_id if node_type in values or node_type in seeds] or by_id[:1]
        counts = {node_type: len(ids) for node_type, ids in with_all_types(seeds, there).items()}
        times = with_all_types(values, there)
        parts = [(f"{name}[{node_type!r}]", part, counts[node_type]) for node_type, part in times.items()]
    stacked = []
    for label, part, count in parts:
        stacked.append(ops.as_times(label, as_tensor(label, part)))
        if stacked[-1].numel() != count:
            raise ValueError(f"{label} must have {count} values, one per seed, but has {stacked[-1].numel()}")
    return stacked[0] if len(stacked) == 1 else torch.cat(stacked)


def group_times(graph: GraphArrays, hop: SampledSubgraph, times: torch.Tensor, types: torch.Tensor | None) -> ByType:
    """Reorder the times of edges, given column by column, to the order of the hop; by edge type with types."""
    # The edges of a type are in the order of the hop: column by column, then by position.
    return split_times(graph, hop, times if types is None else times[types.argsort(stable=True)])


def split_times(graph: GraphArrays, hop: SampledSubgraph, times: torch.Tensor) -> ByType:
    """Split the times of a hop's edges, ordered by edge type; without types, there is one part."""
    cscs = hop.sampled_csc
    if not isinstance(cscs, dict):
        return times
    assert graph.edge_type_to_id is not None
    by_id = sorted(cscs, key=graph.edge_type_to_id.__getitem__)
    return dict(zip(by_id, torch.split(times, [len(cscs[name].indices) for name in by_id]), strict=True))
