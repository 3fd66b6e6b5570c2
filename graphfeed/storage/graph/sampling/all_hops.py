"""Sampling of all hops from graph arrays in one call, which releases the GIL on the CPU."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from graphfeed import ops
from graphfeed.ops.memory import is_page_locked
from graphfeed.ops.rows import Each
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph, mark_sampled
from graphfeed.storage.graph.sampling.graph_files import (
    gather_edges,
    kernel_columns,
    read_choice,
    take_edges_of_each,
)
from graphfeed.storage.graph.sampling.one_hop import as_seeds, check_typed_seeds, complete_seeds, pick_hop
from graphfeed.storage.graph.sampling.rows import Picked
from graphfeed.storage.graph.sampling.temporal_sampling import stack_seed_times, timed_columns
from graphfeed.storage.graph.sampling_request import Draws, Hop, SamplingRequest, Seeds, fanout_tensor
from graphfeed.storage.graph.type_names import ends_of, from_type_dict, to_type_dict, type_numbers


def sample_all_hops(
    graph: GraphArrays,
    seeds: Seeds,
    request: SamplingRequest,
    draws: Sequence[Draws],
    *,
    joined: bool = False,
) -> Any:
    """Sample all hops of a request in one call; return subgraphs, the outermost hop first, or `JoinedHops`."""
    # `draws` begin with the seeds' own hop.
    moments = None
    if request.temporal is not None or seeds.times is not None:
        moments = stack_seed_times(graph, seeds, request)
    is_labor, share = request.strategy == "labor", draws[0][1] if draws else 0
    keys: list[Any] = [own if is_labor else own[0] for own, _ in draws]
    typed = graph.node_type_to_id is not None
    by_type: dict[Any, torch.Tensor] = complete_seeds(graph, seeds.ids) if typed else {None: as_seeds(graph, seeds.ids)}
    parts = list(by_type.values())
    try:
        windowed = moments is not None and moments.windows is not None
        prepared = prepare_hops(graph, request, windowed, on_cpu=parts[0].is_cpu)
        edge_ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
        # Without original ids, the id of an edge is its position.
        read = None if edge_ids is None else partial(gather_edges, graph, edge_ids)
        hops = prepared.sample(parts, keys, moments, share, read, joined)
    except ValueError:
        if typed:
            check_typed_seeds(graph, seeds.ids)  # raises errors with the names of types
        raise
    numbers: dict[Any, int] = graph.edge_type_to_id if typed else {None: 0}
    if joined:
        rows, num_rows, trees = (
            own and dict(zip(by_type, own.values(), strict=True)) for own in (hops.rows, hops.num_rows, hops.trees)
        )
        edges, num_edges = (
            {name: own[number] for name, number in numbers.items()} for own in (hops.edges, hops.num_edges)
        )
        return ops.JoinedHops(rows, num_rows, edges, num_edges, trees)
    # The program begins at the seeds; subgraphs begin with the outermost hop.
    return [subgraph_of(graph, by_type, numbers, hop) for hop in reversed(hops)]


PREPARED: WeakKeyDictionary[GraphArrays, tuple[Any, dict[Any, ops.PreparedHops]]] = WeakKeyDictionary()
"""By graph: its version, and the hops that were prepared for it."""
MOST_PREPARED = 64
"""Maximum number of requests whose prepared hops a graph keeps."""


def prepare_hops(graph: GraphArrays, request: SamplingRequest, windowed: bool, *, on_cpu: bool) -> ops.PreparedHops:
    """Return the prepared sampling of all hops of a request, cached until the graph changes."""
    kept, before, key = PREPARED.get(graph), graph.version, (request, windowed, on_cpu)
    if kept is None or len(kept[1]) >= MOST_PREPARED or not all(map(operator.is_, kept[0], before)):
        # Free the outdated results before computing a new one.
        kept = PREPARED[graph] = before, {}
    # Not on a GPU, where only `cached` makes the stream wait for derived arrays.
    elif key in kept[1] and graph.indices.is_cpu:
        return kept[1][key]
    timed = request.temporal is not None
    rows: Any = "tree" if request.disjoint else "node" if request.deduplicate and not timed else "edge"
    drawing = ops.Drawing(request.strategy, request.replace, 0, request.only_new, rows)
    arrays, typed = hop_graph(graph, request, windowed, timed=timed), graph.node_type_to_id is not None
    # A GPU reads whole columns, even those of a pinned graph.
    if request.strategy == "labor" and on_cpu and not (typed or timed or request.probs_name or request.replace):
        arrays = arrays._replace(large_columns=graph.high_degree_index())
    fanouts = [fanout_tensor(own) for own in reversed(request.fanouts)]
    prepared = ops.PreparedHops(arrays, fanouts, drawing)
    # Unless another thread has just edited the graph, or derived arrays were computed, which happens once.
    if all(map(operator.is_, before, graph.version)):
        kept[1][key] = prepared
    return prepared


def reads_together(graph: GraphArrays, request: SamplingRequest) -> bool:
    """Return whether reading each page of a graph's files once for several mini-batches is supported and useful."""
    merged = request.deduplicate and not request.only_new and request.temporal is None
    return graph.node_type_to_id is None and merged and request.strategy == "uniform"


def pick_each_by_page(graph: GraphArrays, nodes: Sequence[ByType], hops: Sequence[Hop], each: Each) -> list[Picked]:
    """Sample a hop of several mini-batches in a graph without types, reading each page once for all of them."""
    # `each` is a function like `map`, possibly threaded.
    ids = [as_seeds(graph, own) for own in nodes]
    picks = list(each(lambda own, hop: pick_hop(graph, own, hop), ids, hops))
    positions = [own.positions for own in picks]
    sources, edge_ids = take_edges_of_each(graph, graph.indices, positions, each), positions
    if (ids_in_graph := graph.edge_attributes.get(ORIGINAL_EDGE_ID)) is not None:
        edge_ids = take_edges_of_each(graph, ids_in_graph, positions, each)
    found: list[Picked] = []
    for own, picked, source, own_ids in zip(ids, picks, sources, edge_ids, strict=True):
        csc = CSCFormatBase.unchecked(picked.offsets.to(graph.csc_indptr.dtype), source)
        found.append((SampledSubgraph(csc, own, None, own_ids), None))
    return found


def weights_for(graph: GraphArrays, request: SamplingRequest) -> torch.Tensor | ops.GuidedSums | None:
    """Return the running sums of weights for a request, with guides if its kernel uses them."""
    if request.probs_name is None:
        return None
    # Page-locked arrays are for a GPU, whose kernels bisect the sums.
    on_cpu = graph.indices.is_cpu and not is_page_locked(graph.indices)
    guided = request.strategy == "uniform" and on_cpu and graph.node_type_to_id is None
    return (graph.guided_sums if guided else graph.cumulative_weights)(request.probs_name)


def hop_graph(graph: GraphArrays, request: SamplingRequest, windowed: bool, *, timed: bool) -> ops.HopGraph:
    """Return the arrays of a graph for sampling all hops, including the derived arrays that a request needs."""
    indptr, types = kernel_columns(graph)
    weights = None if timed else weights_for(graph, request)  # `timed_columns` has those in the order of time
    arrays = ops.HopGraph(indptr, graph.indices, cumulative=weights, indptr_dtype=graph.csc_indptr.dtype)
    arrays = arrays._replace(reads=read_choice(graph))
    if timed:
        by_type = {len(fanout) > 1 for fanout in request.fanouts}
        columns = {each: timed_columns(graph, request, windowed=windowed, by_type=each) for each in by_type}
        # Hops may have fan-outs with and without types; with types, the edges of each type are sorted separately.
        arrays = arrays._replace(timed=(columns[all(by_type)], columns[any(by_type)]))
    if graph.node_type_to_id is None:
        return arrays
    assert graph.edge_type_to_id is not None
    numbers = type_numbers(graph.node_type_to_id, graph.edge_type_to_id)
    return arrays._replace(
        types=types, first_ids=torch.tensor(graph.first_ids(), device="cpu"), ends=numbers.ends, order=numbers.order
    )


def subgraph_of(
    graph: GraphArrays, node_types: Iterable[Any], numbers: Mapping[Any, int], hop: ops.SampledHop
) -> SampledSubgraph:
    """Return a hop as a subgraph with every edge type; `node_types` are in the order of ids."""
    columns, rows = dict(zip(node_types, hop.columns, strict=True)), dict(zip(node_types, hop.rows, strict=True))
    cscs, ids = {}, {}
    # If there are many edge types, most have no edges in a hop; these share columns.
    empty = {} if len(hop.edges) == len(numbers) else empty_columns(graph, columns)
    for name, number in numbers.items():
        indptr, indices, ids[name] = hop.edges.get(number) or empty[ends_of(name)[1]]
        cscs[name] = CSCFormatBase.unchecked(indptr, indices)
    if not hop.columns[0].is_cpu:
        mark_sampled(cscs, rows, to_type_dict(graph.num_nodes))
    return SampledSubgraph(*map(from_type_dict, (cscs, columns, rows, ids)))


def empty_columns(graph: GraphArrays, columns: Mapping[Any, torch.Tensor]) -> dict[Any, ops.HopEdges]:
    """Return columns without edges, by destination type, shared by the edge types with that destination."""
    # Slices of a single array of zeros.
    zeros = torch.zeros(1 + max(map(len, columns.values())), dtype=graph.csc_indptr.dtype, device="cpu").numpy()
    none, ids = torch.empty(0, dtype=graph.indices.dtype, device="cpu"), graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    no_ids = torch.empty(0, dtype=torch.int64 if ids is None else ids.dtype, device="cpu")
    return {name: ops.HopEdges(torch.from_numpy(zeros[: len(own) + 1]), none, no_ids) for name, own in columns.items()}
