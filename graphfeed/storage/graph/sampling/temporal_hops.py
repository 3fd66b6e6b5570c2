"""Sampling all hops in time in the arrays of a graph, by one call where there is a kernel."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from graphfeed import ops
from graphfeed.ops.arguments import as_tensor
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph
from graphfeed.storage.graph.sampling.one_hop import check_seeds, check_typed_seeds, subgraphs_of
from graphfeed.storage.graph.sampling.temporal_sampling import (
    stack_queries,
    temporal_sample_hop_by_hop,
    temporal_sample_one_hop,
    timed_columns,
)
from graphfeed.storage.graph.sampling.typed_sampling import hop_graph, typed_subgraph
from graphfeed.storage.graph.sampling_request import SamplingRequest


def temporal_sample_hops(
    graph: GraphArrays, seeds: ByType, seeds_timestamp: ByType, request: SamplingRequest, keys: Sequence[int]
) -> list[SampledSubgraph]:
    """Sample all hops, in one call that releases the GIL, unless each seed has nodes of its own."""
    if request.disjoint:
        sample = partial(temporal_sample_one_hop, graph)
        return temporal_sample_hop_by_hop(graph.num_nodes, sample, seeds, seeds_timestamp, request, keys)
    if graph.node_type_to_id is not None:
        typed = typed_temporal_sample_hops(graph, seeds, seeds_timestamp, request, keys)
        if typed is not None:
            return typed
        sample = partial(temporal_sample_one_hop, graph)
        return temporal_sample_hop_by_hop(graph.num_nodes, sample, seeds, seeds_timestamp, request, keys)
    times, windows = stack_queries(graph, seeds, seeds_timestamp, request)
    columns = timed_columns(graph, request)
    layers = ops.sample_hops(
        hop_graph(graph)._replace(timed=(columns, columns)),
        check_seeds(graph, seeds),
        [int(fanout) for fanout in reversed(request.fanouts)],
        draw_keys(request, keys),
        ops.Drawing(request.strategy, request.replace),
        ops.SeedTimes(times, windows),
    )
    assert layers is not None
    return subgraphs_of(graph, layers)


def draw_keys(request: SamplingRequest, keys: Sequence[int]) -> Sequence[Any]:
    """Return the keys of each hop: two, which are equal, for LABOR."""
    return [(key, key) for key in keys] if request.strategy == "labor" else keys


def typed_temporal_sample_hops(
    graph: GraphArrays, seeds: ByType, seeds_timestamp: ByType, request: SamplingRequest, keys: Sequence[int]
) -> list[SampledSubgraph] | None:
    """Sample all hops of a graph with types; None on a GPU, which has no kernel for them."""
    if not graph.indices.is_cpu:
        return None
    times, windows = stack_queries(graph, seeds, seeds_timestamp, request)
    own = check_typed_seeds(graph, seeds)
    if not all(part.is_cpu for part in (times, *own.values())):
        return None
    fanouts = [as_tensor("fanouts", fanout) for fanout in reversed(request.fanouts)]
    by_type = [fanout.numel() > 1 for fanout in fanouts]
    first = timed_columns(graph, request, by_type=all(by_type))
    timed = first, first if all(by_type) == any(by_type) else timed_columns(graph, request, by_type=any(by_type))
    hops = ops.typed_sample_hops(
        hop_graph(graph)._replace(timed=timed),
        list(own.values()),
        fanouts,
        draw_keys(request, keys),
        ops.Drawing(request.strategy, request.replace),
        ops.SeedTimes(times, windows),
    )
    assert hops is not None
    return [typed_subgraph(graph, list(own), hop) for hop in reversed(hops)]
