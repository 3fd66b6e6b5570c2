"""Arrays and programs that a graph prepares for a request, and keeps until the graph changes."""

import operator
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch

from graphfeed import ops
from graphfeed.ops.memory import is_page_locked
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampling.graph_files import kernel_columns, read_choice
from graphfeed.storage.graph.sampling.temporal_sampling import next_times, order_for
from graphfeed.storage.graph.sampling_request import SamplingRequest, fanout_tensor
from graphfeed.storage.graph.type_names import type_numbers

Prepared = TypeVar("Prepared")
PREPARED: WeakKeyDictionary[GraphArrays, tuple[Any, dict[Any, Any]]] = WeakKeyDictionary()
"""By graph: its version, and what was prepared for it."""
MOST_PREPARED = 64
"""Maximum number of requests whose prepared hops a graph keeps."""


def keep(graph: GraphArrays, key: Any, prepare: Callable[[], Prepared]) -> Prepared:
    """Return the result of `prepare`, kept under a key until the graph changes."""
    kept, before = PREPARED.get(graph), graph.version
    if kept is None or len(kept[1]) >= MOST_PREPARED or not all(map(operator.is_, kept[0], before)):
        # Free the outdated results before computing a new one.
        kept = PREPARED[graph] = before, {}
    elif key in kept[1]:
        graph.wait_for_derived()
        return kept[1][key]  # type: ignore[no-any-return]
    prepared = prepare()
    # Unless another thread has just edited the graph, or derived arrays were computed, which happens once.
    if all(map(operator.is_, before, graph.version)):
        kept[1][key] = prepared
    return prepared


def prepare_hops(
    graph: GraphArrays, request: SamplingRequest, windowed: bool, *, on_cpu: bool, hop: int | None = None
) -> ops.PreparedHops:
    """Return the prepared sampling of all hops of a request, or of one, without rows that its sources share."""

    def prepare() -> ops.PreparedHops:
        timed = request.temporal is not None
        rows: Any = "tree" if request.disjoint else "node" if request.deduplicate and not timed else "edge"
        drawing = ops.Drawing(request.strategy, request.replace, 0, request.only_new, rows)
        fanouts = [fanout_tensor(own) for own in reversed(request.fanouts)]
        if hop is not None:
            fanouts, drawing = fanouts[hop : hop + 1], drawing._replace(only_new=False, rows="edge")
        record = record_of(graph, request, windowed=windowed, indexed=on_cpu and hop is None)
        return ops.PreparedHops(record, fanouts, drawing, read_choice(graph))

    return keep(graph, (request, windowed, on_cpu, hop), prepare)


def prepare_picks(graph: GraphArrays, request: SamplingRequest, *, windowed: bool) -> ops.Graph:
    """Return the arrays for `ops.sample_neighbors`."""
    return keep(graph, (request, windowed), lambda: record_of(graph, request, windowed=windowed, indexed=False))


def weights_for(graph: GraphArrays, request: SamplingRequest) -> torch.Tensor | ops.GuidedSums | None:
    """Return the running sums of weights for a request, with guides if its kernel uses them."""
    if request.probs_name is None:
        return None
    # Page-locked arrays are for a GPU, whose kernels bisect the sums.
    on_cpu = graph.indices.is_cpu and not is_page_locked(graph.indices)
    guided = request.strategy == "uniform" and on_cpu and graph.node_type_to_id is None
    return (graph.guided_sums if guided else graph.cumulative_weights)(request.probs_name)


def record_of(graph: GraphArrays, request: SamplingRequest, *, windowed: bool, indexed: bool) -> ops.Graph:
    """Return the arrays of a graph, including the derived arrays that a request needs."""
    starts, types = kernel_columns(graph)
    given: dict[str, Any] = {"indptr_dtype": graph.csc_indptr.dtype}
    if graph.node_type_to_id is not None:
        assert graph.edge_type_to_id is not None
        numbers = type_numbers(graph.node_type_to_id, graph.edge_type_to_id)
        given |= {"types": types, "first_ids": graph.first_ids(), "ends": numbers.ends.tolist()}
        given |= {"order": numbers.order.tolist()}
    if request.temporal is None:
        given["cumulative"] = weights_for(graph, request)
        # A GPU reads whole columns, even those of a pinned graph; and so does a single hop.
        is_plain = graph.node_type_to_id is None and not (request.probs_name or request.replace)
        if request.strategy == "labor" and indexed and is_plain:
            given["large_columns"] = graph.high_degree_index()
        return ops.Graph.unchecked(starts, graph.indices, **given)
    # With fan-outs by type, the edges of each type are sorted separately.
    for by_type in {len(fanout) > 1 for fanout in request.fanouts}:
        given["by_type" if by_type else "by_column"] = order_for(graph, request, windowed=windowed, by_type=by_type)
    return ops.Graph.unchecked(starts, graph.indices, edge_times=next_times(graph, request.temporal), **given)
