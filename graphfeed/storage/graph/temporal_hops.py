"""Sampling all hops in time in the arrays of a graph, by one call where there is a kernel."""

from collections.abc import Sequence
from functools import partial

from graphfeed import ops
from graphfeed.ops.arguments import as_tensor
from graphfeed.storage.graph.edits import check_edits
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.one_hop import check_seeds, check_typed_seeds, subgraphs_of
from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.temporal_sampling import (
    LAST_TIME,
    later,
    query_of,
    stack_queries,
    stack_times,
    temporal_sample_hop_by_hop,
    temporal_sample_one_hop,
    timed_columns,
)
from graphfeed.storage.graph.typed_sampling import typed_graph, typed_subgraph


def temporal_sample_hops(
    graph: GraphArrays, seeds: ByType, seeds_timestamp: ByType, request: SamplingRequest, keys: Sequence[int]
) -> list[SampledSubgraph]:
    """Sample all hops, in one call that releases the GIL if there is a kernel for them.

    There is none where each seed has nodes of its own. For a graph without types, there is none with a window per seed
    either, nor with any window where both nodes and edges have times.
    """
    query = query_of(request)
    typed = typed_temporal_sample_hops(graph, seeds, seeds_timestamp, request, keys)
    if typed is not None:
        return typed
    window, fanouts = query.pre_time_window, request.fanouts
    one_type = graph.node_type_to_id is None and all(fanout.numel() == 1 for fanout in fanouts)
    one_time = query.node_timestamp_attr_name is None or query.edge_timestamp_attr_name is None
    has_kernel = one_type and (window is None or (one_time and isinstance(window, int)))
    if request.disjoint or not has_kernel:
        sample = partial(temporal_sample_one_hop, graph)
        return temporal_sample_hop_by_hop(graph.num_nodes, sample, seeds, seeds_timestamp, request, keys)
    times = stack_times(graph, "seeds_timestamp", seeds_timestamp, seeds)
    columns, counts = timed_columns(graph, request), [int(fanout) for fanout in reversed(fanouts)]
    ids = check_seeds(graph, seeds)
    assert window is None or isinstance(window, int)
    if query.inclusive:
        times, window = later(times), None if window is None else min(window, LAST_TIME - 2) + 2
    if request.strategy == "labor":
        pairs = [(key, key) for key in keys]
        layers = ops.temporal_labor_sample_hops(
            columns, ids, times, counts, pairs, replace=request.replace, window=window
        )  # fmt: skip
    else:
        latest = request.strategy == "latest"
        layers = ops.temporal_sample_hops(
            columns, ids, times, counts, keys, replace=request.replace, latest=latest, window=window
        )
    return subgraphs_of(graph, layers)


def typed_temporal_sample_hops(
    graph: GraphArrays, seeds: ByType, seeds_timestamp: ByType, request: SamplingRequest, keys: Sequence[int]
) -> list[SampledSubgraph] | None:
    """Sample all hops of a graph with types; None if there is no kernel for them.

    The kernels give every edge a row, and work on the CPU.
    """
    if graph.node_type_to_id is None or request.disjoint or not graph.indices.is_cpu:
        return None
    times, windows = stack_queries(graph, seeds, seeds_timestamp, request)
    own = check_typed_seeds(graph, seeds)
    check_edits(graph)
    if not all(part.is_cpu for part in (times, *own.values())):
        return None
    fanouts = [as_tensor("fanouts", fanout) for fanout in reversed(request.fanouts)]
    by_type = [fanout.numel() > 1 for fanout in fanouts]
    first = timed_columns(graph, request, by_type=all(by_type))
    timed = first, first if all(by_type) == any(by_type) else timed_columns(graph, request, by_type=any(by_type))
    given = typed_graph(graph, None), timed, list(own.values()), times, fanouts
    if request.strategy == "labor":
        pairs = [(key, key) for key in keys]
        hops = ops.typed_temporal_labor_sample_hops(*given, pairs, replace=request.replace, windows=windows)
    else:
        latest = request.strategy == "latest"
        hops = ops.typed_temporal_sample_hops(*given, keys, replace=request.replace, latest=latest, windows=windows)
    return [typed_subgraph(graph, list(own), hop) for hop in reversed(hops)]
