"""The latest edges of events, read from a graph that is sorted by time."""

import torch

from graphfeed import ops
from graphfeed.ops.arguments import NOTHING, check_ids
from graphfeed.ops.sampling import Cells, TimedEdges, count_earlier, latest_cells
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.graph.sampling.graph_files import kernel_columns, read_choice
from graphfeed.storage.graph.sampling.one_hop import as_seeds
from graphfeed.storage.graph.sampling.temporal_sampling import edge_times_of, order_for, query_of, stack_seed_times
from graphfeed.storage.graph.sampling_graph import SamplingGraph
from graphfeed.storage.graph.sampling_request import SamplingRequest, Seeds


def has_latest(graph: SamplingGraph, request: SamplingRequest) -> bool:
    """Return whether `latest_of` serves a request without types or `disjoint`."""
    query = query_of(request)
    wanted = request.strategy, query.hop_time, query.inclusive, query.node_timestamp_attr_name, request.probs_name
    if not isinstance(graph, FusedCSCSamplingGraph) or wanted != ("latest", "edge", False, None, None):
        return False
    ids = (graph.edge_attributes or {}).get(ORIGINAL_EDGE_ID)
    if not graph.indices.is_cpu or read_choice(graph) is not None or (ids is not None and ids.dtype != torch.int64):
        return False
    is_sorted = order_for(graph, request, windowed=False).order is None
    return is_sorted and not bool((edge_times_of(graph, query) == ops.ALWAYS).any())


def timed_edges(graph: FusedCSCSamplingGraph, request: SamplingRequest) -> TimedEdges:
    """Return the arrays that `latest_of` reads; the first call bisects the column of each edge's source."""
    query = query_of(request)
    times, ids = edge_times_of(graph, query), (graph.edge_attributes or {}).get(ORIGINAL_EDGE_ID)
    sources, known = graph.indices.contiguous(), NOTHING if ids is None else ids.contiguous()
    edges = TimedEdges(kernel_columns(graph)[0], sources, times, known)
    name = f"edges of sources before {query.edge_timestamp_attr_name}"
    given = graph.edge_attribute(str(query.edge_timestamp_attr_name))

    def count() -> tuple[torch.Tensor]:
        if not has_latest(graph, request):
            raise RuntimeError(
                "the times of the graph were replaced, and edges no longer follow them; make a new loader"
            )
        return (count_earlier(edges.indptr, times, sources, times),)

    (earlier,) = graph.cached(name, (given,), count)
    return edges._replace(earlier=earlier)


def latest_of(graph: FusedCSCSamplingGraph, seeds: Seeds, request: SamplingRequest, *, right: bool) -> list[Cells]:
    """Return the latest edges of all hops of a request, as rows; the hop of the seeds comes first."""
    ids, widths = as_seeds(graph, seeds.ids), [int(own[0]) for own in reversed(request.fanouts)]
    check_ids("seeds", ids, graph.total_num_nodes)
    return latest_cells(timed_edges(graph, request), ids, stack_seed_times(graph, seeds, request), widths, right=right)
