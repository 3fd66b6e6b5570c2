"""Sampling in time: which edges of a graph's arrays existed before the time of a seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from graphfeed import ops
from graphfeed.ops.arguments import Tensors, as_tensor, brief, trust
from graphfeed.ops.memory import is_page_locked
from graphfeed.ops.rows import take_rows
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph
from graphfeed.storage.graph.sampling.compaction import compact_csc_format
from graphfeed.storage.graph.sampling.mapped_arrays import is_by_page, kernel_columns, take_edges
from graphfeed.storage.graph.sampling.new_nodes import sample_new_hop_by_hop
from graphfeed.storage.graph.sampling.one_hop import Draws, EdgeArrays, Pick, most_edges, sample_one_hop
from graphfeed.storage.graph.sampling_request import SamplingRequest, TemporalQuery
from graphfeed.storage.graph.type_names import ends_of, with_all_types

SampleInTime: TypeAlias = Callable[
    [ByType, ByType, torch.Tensor, Draws, SamplingRequest], tuple[SampledSubgraph, ByType | None]
]
"""Samples one hop; see `temporal_sample_one_hop`."""
LAST_TIME = torch.iinfo(torch.int64).max


def temporal_sample_hop_by_hop(
    num_nodes: int | Mapping[str, int],
    sample: SampleInTime,
    seeds: ByType,
    seeds_timestamp: ByType,
    request: SamplingRequest,
    keys: Sequence[int],
) -> list[SampledSubgraph]:
    """Sample hop after hop, each from all rows found so far; every edge makes a row.

    With `disjoint`, each samples the rows that the one before added, and nodes are merged in the tree of each seed.

    Args:
        num_nodes: Of the graph; by node type if it has types.
        sample: Samples one hop around some nodes at some times, by a fan-out and the hop's draws.
        seeds: Node ids; by node type if the graph has types.
        seeds_timestamp: The time of each seed.
        request: All else.
        keys: The key of each hop, the seeds' own hop first.
    """
    if request.disjoint:
        return temporal_sample_trees(num_nodes, sample, seeds, seeds_timestamp, request, keys)
    layers: list[SampledSubgraph] = []
    nodes: Any = seeds
    times: Any = seeds_timestamp
    query = query_of(request)
    for fanout, key in zip(reversed(request.fanouts), keys, strict=True):
        request = replace(request, temporal=query)
        hop, edge_times = sample(nodes, times, fanout, ((key, key), 0), request)
        columns: Any = hop.original_column_node_ids
        sampled: Any = hop.sampled_csc
        nodes, csc, row_times = compact_csc_format(sampled, columns, times)
        # Each edge is a row: a node may be seen at several times.
        if edge_times is not None:
            row_times = times_of_rows(hop, times, edge_times)
        if query.pre_time_window is not None and not isinstance(query.pre_time_window, int):
            # A row has the window of the column that it was found from.
            windows: Any = query.pre_time_window
            query = replace(query, pre_time_window=compact_csc_format(sampled, columns, windows)[2])
        times = row_times
        layers.append(SampledSubgraph(csc, columns, nodes, hop.original_edge_ids))
    return layers[::-1]


def temporal_sample_trees(
    num_nodes: int | Mapping[str, int],
    sample: SampleInTime,
    seeds: ByType,
    seeds_timestamp: ByType,
    request: SamplingRequest,
    keys: Sequence[int],
) -> list[SampledSubgraph]:
    """Sample as `temporal_sample_hop_by_hop` with `disjoint`: all rows of a tree at the time of its seed."""
    query = query_of(request)
    node_types = [] if isinstance(num_nodes, int) else list(num_nodes)
    # A tree is numbered by its seed, so that its number is the place of the seed's time.
    times = join_by_type(node_types, seeds_timestamp)
    window = query.pre_time_window
    windows = None if window is None or isinstance(window, int) else join_by_type(node_types, window)

    def sample_at_time(nodes: ByType, trees: ByType | None, fanout: torch.Tensor, key: int) -> SampledSubgraph:
        assert trees is not None
        own = request
        if windows is not None:
            own = replace(request, temporal=replace(query, pre_time_window=take_by_type(windows, trees)))
        return sample(nodes, take_by_type(times, trees), fanout, ((key, key), 0), own)[0]

    return sample_new_hop_by_hop(num_nodes, seeds, request, keys, sample_at_time)


def join_by_type(node_types: Sequence[str], values: ByType) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values
    # In the order of types in which seeds are numbered.
    complete = with_all_types(values, node_types)
    return torch.cat([as_tensor(f"times of {node_type!r}", part) for node_type, part in complete.items()])


def take_by_type(values: torch.Tensor, positions: ByType) -> ByType:
    if isinstance(positions, torch.Tensor):
        return values[positions]
    return {node_type: values[part] for node_type, part in positions.items()}


def temporal_sample_one_hop(
    graph: GraphArrays,
    seeds: ByType,
    seeds_timestamp: ByType,
    fanouts: torch.Tensor,
    draws: Draws,
    request: SamplingRequest,
) -> tuple[SampledSubgraph, ByType | None]:
    """Sample one hop with the ids of the graph; with the times of its edges where the next hop needs them."""
    times, windows = stack_queries(graph, seeds, seeds_timestamp, request)
    pick = pick_in_time(graph, times, windows, fanouts, draws, request)
    hop, picks = sample_one_hop(graph, seeds, pick, lambda _: EdgeArrays.of(graph))
    if query_of(request).hop_time != "edge":
        return hop, None
    own = edge_times_of(graph, query_of(request))
    # In the order of picks, which `group_times` brings into that of the hop.
    types = None if graph.type_per_edge is None else take_rows(graph.type_per_edge, picks.positions)
    return hop, group_times(graph, hop, take_edges(graph, own, picks.positions), types)


def stack_queries(
    graph: GraphArrays, seeds: ByType, seeds_timestamp: ByType, request: SamplingRequest
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the time of each seed, and its window if there are windows, node type after node type."""
    times, query = stack_times(graph, "seeds_timestamp", seeds_timestamp, seeds), query_of(request)
    window, windows = query.pre_time_window, None
    if isinstance(window, int):
        windows = torch.full_like(times, window)
    elif window is not None:
        windows = stack_times(graph, "seeds_pre_time_window", window, seeds)
    if query.inclusive:
        # What is as old as the window exists, too. As the time is one later, the window is longer by two.
        times, windows = later(times), None if windows is None else later(later(windows))
    if isinstance(window, int) and not times.is_cpu:  # 0 or more, so that no GPU is waited for to see it
        trust("windows", (windows,))
    return times, windows


def later(times: torch.Tensor) -> torch.Tensor:
    """Return the times by one later, so that what has these times exists; the last one of int64 stays."""
    return times.clamp(max=LAST_TIME - 1) + 1


def pick_in_time(
    graph: GraphArrays,
    times: torch.Tensor,
    windows: torch.Tensor | None,
    fanouts: torch.Tensor,
    draws: Draws,
    request: SamplingRequest,
) -> Pick:
    """Return a function that picks the edges of one hop that existed before the time of each column."""
    (keys, share), fanouts = draws, as_tensor("fanouts", fanouts)
    columns = timed_columns(graph, request, by_type=fanouts.numel() > 1)

    def pick(ids: torch.Tensor, edges: EdgeArrays, num_types: int) -> ops.Picks:
        assert edges.types is None or isinstance(edges.types, torch.Tensor)
        drawing, moments = ops.Drawing(request.strategy, request.replace, share), ops.SeedTimes(times, windows)
        # What a hop reads may be other arrays than the graph's, such as parts of them.
        own = columns._replace(types=edges.types, num_types=num_types)
        most = None if graph.node_type_to_id is None else most_edges(ids, fanouts)
        hop = ops.OneHop(ids, fanouts, keys, drawing, moments, is_by_page(graph), most=most)
        return ops.sample_neighbors(own, hop)

    return pick


def query_of(request: SamplingRequest) -> TemporalQuery:
    if request.temporal is None:
        raise ValueError("the request has no temporal query; give SamplingRequest(..., temporal=TemporalQuery(...))")
    return request.temporal


def edge_times_of(graph: GraphArrays, query: TemporalQuery) -> torch.Tensor:
    """Return the time of each edge, int64, in the order of the edges; computed at the first call for an attribute."""
    name = query.edge_timestamp_attr_name
    assert name is not None, "TemporalQuery asks for it where hops go by the times of edges"
    edge = graph.edge_attribute(name)
    (times,) = graph.derived(f"edge times {name}", (edge,), lambda: (times_of(graph, None, edge),))
    return times  # type: ignore[no-any-return]


def timed_columns(graph: GraphArrays, request: SamplingRequest, *, by_type: bool = False) -> ops.TemporalGraph:
    """Return the graph's arrays in the order of time, computed at the first call for each pair of attributes."""
    # Times become int64. The order costs no memory if the edges are in it already, as in a graph made of a list that is
    # sorted by time, and only the edges have times, in int64. Otherwise it takes 8 bytes per edge, and 8 more if the
    # edges are not in order. With weights, edges that are not in order take 8 more, and so does a time window where
    # both nodes and edges have times, or an inclusive query whose hops go by the times of edges.
    query, probs_name = query_of(request), request.probs_name
    names = (query.node_timestamp_attr_name, query.edge_timestamp_attr_name)
    node = None if names[0] is None else graph.node_attribute(names[0])
    edge = None if names[1] is None else graph.edge_attribute(names[1])
    columns = ops.TemporalGraph(kernel_columns(graph)[0], graph.indices)
    # With fan-outs per edge type, the edges of each type are sorted by themselves.
    which = f"by the times {names}{' within edge types' if by_type else ''}"
    if node is not None or edge is not None:
        times, kept, links = graph.derived(
            f"order {which}", (node, edge), lambda: time_order(graph, node, edge, by_type=by_type)
        )
        order = kept if links is None else ops.linked_order(links)
        if links is not None and is_page_locked(links):  # for a GPU, which reads the order where it lies
            (order,) = graph.derived(
                f"order of links {which}", (node, edge, links), lambda: (ops.linked_order(links).contiguous(),)
            )
        columns = columns._replace(times=times, order=order, links=links)
    sorted_by = columns.order if columns.links is None else columns.links
    # An edge is within the window only if both of its times are.
    if node is not None and edge is not None and query.pre_time_window is not None:
        (earliest,) = graph.derived(
            f"earlier of both times {which}",
            (node, edge, sorted_by),
            lambda: (by_rank(graph, times_of(graph, node, edge, torch.minimum), columns.order),),
        )
        columns = columns._replace(earliest=earliest)
    if query.hop_time == "edge":
        own = edge_times_of(graph, query)
        if query.inclusive:
            # The attribute is a source too: `own` may be derived from it.
            (own,) = graph.derived(f"later than {names[1]}", (edge, own), lambda: (later(own),))
        columns = columns._replace(edge_times=own)
    if probs_name is not None and columns.order is None:
        columns = columns._replace(cumulative=graph.cumulative_weights(probs_name))
    elif probs_name is not None:
        weights = graph.edge_attribute(probs_name)
        (cumulative,) = graph.derived(
            f"running sums of {probs_name} {which}",
            (weights, node, edge, sorted_by),
            lambda: (ops.cumulate_weights(kernel_columns(graph)[0], by_rank(graph, weights, columns.order)),),
        )
        columns = columns._replace(cumulative=cumulative)
    return columns


def times_of(
    graph: GraphArrays,
    node: torch.Tensor | None,
    edge: torch.Tensor | None,
    choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.maximum,
) -> torch.Tensor:
    """Return the time of each edge: its own, its source's, or what is chosen of the two."""
    times = []
    if edge is not None:
        times.append(ops.as_times("the edges' timestamps", edge))
    if node is not None:
        times.append(ops.gather_rows(ops.as_times("the nodes' timestamps", node), graph.indices))
    # By default the later one: an edge exists once both are there.
    return times[0] if len(times) == 1 else choose(*times)


def time_order(graph: GraphArrays, node: torch.Tensor | None, edge: torch.Tensor | None, *, by_type: bool) -> Tensors:
    """Return the times of the edges by rank, and their order, as positions in the columns or as links."""
    starts, types = kernel_columns(graph)
    times, order = ops.order_by_time(starts, times_of(graph, node, edge), types if by_type else None)
    if order is None or not order.is_cpu or is_page_locked(graph.indices):
        return times, order, None
    # On the CPU, where sources can be linked, a draw finds edge and source by one read.
    links = ops.link_sources(starts, graph.indices, order)
    return times, order if links is None else None, links


def by_rank(graph: GraphArrays, values: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    return values if order is None else ops.gather_rows(values, ops.places_in_order(kernel_columns(graph)[0], order))


def stack_times(graph: GraphArrays, name: str, values: ByType | None, seeds: ByType) -> torch.Tensor:
    """Return one number per seed, node type after node type; ids are not checked."""
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
        # In the order of ids, in which seeds of types are stacked.
        by_id = sorted(graph.node_type_to_id, key=graph.node_type_to_id.__getitem__)
        counts = {node_type: len(ids) for node_type, ids in with_all_types(seeds, by_id).items()}
        times = with_all_types(values, by_id)
        parts = [(f"{name}[{node_type!r}]", part, counts[node_type]) for node_type, part in times.items()]
    stacked = []
    for label, part, count in parts:
        stacked.append(ops.as_times(label, as_tensor(label, part)))
        if stacked[-1].numel() != count:
            raise ValueError(f"{label} must have {count} values, one per seed, but has {stacked[-1].numel()}")
    return stacked[0] if len(stacked) == 1 else torch.cat(stacked)


def group_times(graph: GraphArrays, hop: SampledSubgraph, times: torch.Tensor, types: torch.Tensor | None) -> ByType:
    """Return the times of a hop's edges in the order of the hop, by edge type if the graph has types.

    Args:
        graph: The graph.
        hop: The hop.
        times: The time of each edge, column by column.
        types: The type of each edge, if there are types.
    """
    if not isinstance(hop.sampled_csc, dict):
        return times
    assert types is not None
    assert graph.edge_type_to_id is not None
    # The edges of a type are in the order in which a hop groups them: column by column, then by position.
    grouped = times[types.argsort(stable=True)]
    by_id = sorted(graph.edge_type_to_id, key=graph.edge_type_to_id.__getitem__)
    counts = [len(hop.sampled_csc[edge_type].indices) for edge_type in by_id]
    return dict(zip(by_id, torch.split(grouped, counts), strict=True))


def times_of_rows(hop: SampledSubgraph, times: Any, edge_times: ByType) -> ByType:
    """Return the time of each row: the seeds' own, then for each edge its own, in the order of a hop's rows."""
    if not isinstance(edge_times, dict):
        return torch.cat([ops.as_times("seeds_timestamp", times), edge_times])
    columns: Any = hop.original_column_node_ids
    cscs: Any = hop.sampled_csc
    complete = with_all_types(times, columns)
    rows = {node_type: [ops.as_times("seeds_timestamp", part)] for node_type, part in complete.items()}
    for edge_type in cscs:
        rows[ends_of(edge_type)[0]].append(edge_times[edge_type])
    return {node_type: torch.cat(parts) for node_type, parts in rows.items()}
