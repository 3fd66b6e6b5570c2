"""Sampling of all hops from graph arrays in one call, which releases the GIL on the CPU."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.ops.arguments import ID_DTYPES
from graphfeed.ops.memory import NUMPY_DTYPES
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import CSCFormatBase, SampledSubgraph, mark_sampled
from graphfeed.storage.graph.sampling.graph_files import gather_edges, read_choice
from graphfeed.storage.graph.sampling.one_hop import (
    as_seeds,
    check_typed_seeds,
    complete_seeds,
    pick_and_group,
    stack_trees,
)
from graphfeed.storage.graph.sampling.prepared import prepare_hops
from graphfeed.storage.graph.sampling.rows import Picked
from graphfeed.storage.graph.sampling.temporal_sampling import edge_times_of, split_times, stack_seed_times
from graphfeed.storage.graph.sampling_request import Draws, Hop, SamplingRequest, Seeds
from graphfeed.storage.graph.type_names import ends_of, to_type_dict, type_numbers


def sample_all_hops(
    graph: GraphArrays,
    seeds: Seeds,
    request: SamplingRequest,
    draws: Sequence[Draws],
    *,
    joined: bool = False,
    ahead: bool = False,
) -> Any:
    """Sample all hops of a request in one call; return subgraphs, the outermost hop first, or `JoinedHops`.

    With `ahead`, on a GPU, don't wait for it; return a function that does and returns the subgraphs.
    """
    keys, share = keys_of(request, draws)
    read = reader_of(graph, joined=joined)
    options: dict[str, Any] = {"switch_threshold": share, "read": read, "joined": joined, "ahead": ahead}
    node_types, hops = run_prepared(graph, seeds, request, keys, **options)
    numbers = type_numbers_of(graph)
    if ahead:
        return lambda: subgraphs_of(graph, node_types, numbers, hops())
    return joined_by_name(node_types, numbers, hops) if joined else subgraphs_of(graph, node_types, numbers, hops)


def sample_window(
    graph: GraphArrays,
    seeds: Sequence[Seeds],
    request: SamplingRequest,
    draws: Sequence[Sequence[Draws]],
    *,
    joined: bool = False,
) -> list[Any]:
    """Sample all hops of several mini-batches: in one call if the arrays of the graph are in memory."""
    read = reader_of(graph, joined=joined)
    in_memory = graph.indices.is_cpu and all(own.on_cpu for own in seeds) and read_choice(graph) is None
    if len(seeds) > 1 and in_memory and not (joined and callable(read)):
        # An error is raised again by the mini-batch that it belongs to.
        with suppress(KeyError, TypeError, ValueError):
            return sample_at_once(graph, seeds, request, draws, read, joined=joined)
    pairs = zip(seeds, draws, strict=True)
    return [sample_all_hops(graph, own, request, drawn, joined=joined) for own, drawn in pairs]


def sample_at_once(
    graph: GraphArrays,
    seeds: Sequence[Seeds],
    request: SamplingRequest,
    draws: Sequence[Sequence[Draws]],
    read: Any,
    *,
    joined: bool,
) -> list[Any]:
    """Sample all hops of several mini-batches in one call. Raises for arguments that don't fit, or not all alike."""
    moments = [moments_of(graph, own, request) for own in seeds]
    windowed = moments[0] is not None and moments[0].windows is not None
    by_type = [seeds_by_type(graph, own.ids) for own in seeds]
    keys, shares = zip(*(keys_of(request, own) for own in draws), strict=True)
    prepared = prepare_hops(graph, request, windowed, on_cpu=True)
    found = prepared.sample_window([list(own.values()) for own in by_type], keys, moments, shares, read, joined)
    node_types, numbers = list(by_type[0]), type_numbers_of(graph)
    named = joined_by_name if joined else partial(subgraphs_of, graph)
    return [named(node_types, numbers, hops) for hops in found]


def keys_of(request: SamplingRequest, draws: Sequence[Draws]) -> tuple[list[Any], int]:
    """Return the key of each hop, or two for LABOR, and the share of the second ones."""
    is_labor = request.strategy == "labor"
    return [keys if is_labor else keys[0] for keys, _ in draws], draws[0][1] if draws else 0


def moments_of(graph: GraphArrays, seeds: Seeds, request: SamplingRequest) -> ops.SeedTimes | None:
    """Return the times of seeds for temporal sampling, or None."""
    is_timed = request.temporal is not None or seeds.times is not None
    return stack_seed_times(graph, seeds, request) if is_timed else None


def seeds_by_type(graph: GraphArrays, ids: ByType) -> dict[Any, torch.Tensor]:
    """Return the seeds of each node type, in the order of ids; without types, with the key None."""
    return {None: as_seeds(graph, ids)} if graph.node_type_to_id is None else complete_seeds(graph, ids)


def reader_of(graph: GraphArrays, *, joined: bool) -> Any:
    """Return the ids of edges, or a function that reads them; None if the id of an edge is its position."""
    edge_ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    if edge_ids is None:
        return None
    # In memory, ids are read while hops are joined.
    whole = joined and edge_ids.is_contiguous() and edge_ids.dtype in ID_DTYPES
    whole = whole and edge_ids.shape == graph.indices.shape and read_choice(graph) is None
    return edge_ids if whole else partial(gather_edges, graph, edge_ids)


def joined_by_name(node_types: Iterable[Any], numbers: Mapping[Any, int], hops: ops.JoinedHops) -> ops.JoinedHops:
    """Return joined hops with the names of types instead of their numbers."""
    by_node_type: list[Any] = [
        own and dict(zip(node_types, own.values(), strict=True)) for own in (hops.rows, hops.num_rows, hops.trees)
    ]
    by_type: list[Any] = [
        {name: own[number] for name, number in numbers.items()} for own in (hops.edges, hops.edge_ids, hops.num_edges)
    ]
    (rows, num_rows, trees), (edges, ids, num_edges) = by_node_type, by_type
    return ops.JoinedHops(rows, num_rows, edges, ids, num_edges, trees)


def run_prepared(
    graph: GraphArrays,
    seeds: Seeds,
    request: SamplingRequest,
    keys: Sequence[Any],
    *,
    hop: int | None = None,
    **options: Any,
) -> tuple[list[Any], Any]:
    """Check and complete the seeds, and sample all hops, or a single one; return the node types and the result."""
    moments, by_type = moments_of(graph, seeds, request), seeds_by_type(graph, seeds.ids)
    parts = list(by_type.values())
    try:
        windowed = moments is not None and moments.windows is not None
        prepared = prepare_hops(graph, request, windowed, on_cpu=parts[0].is_cpu, hop=hop)
        return list(by_type), prepared.sample(parts, keys, moments, **options)
    except ValueError:
        if graph.node_type_to_id is not None:
            check_typed_seeds(graph, seeds.ids)  # raises errors with the names of types
        raise


def sample_one_hop(graph: GraphArrays, seeds: ByType, hop: Hop) -> Picked:
    """Sample one hop with the ids of the graph; also return the times of its edges if the next hop needs them."""
    given = Seeds(seeds, hop.times, hop.windows)
    if not (given.on_cpu and graph.indices.is_cpu):
        return pick_and_group(graph, given, hop)
    request, (keys, share), read_at = hop.request, hop.draws, list[torch.Tensor]()
    edge_ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)

    def read(positions: torch.Tensor) -> torch.Tensor:
        read_at.append(positions)
        return positions if edge_ids is None else gather_edges(graph, edge_ids, positions)

    trees = None if hop.trees is None else stack_trees(hop, graph.num_nodes)
    key = keys if request.strategy == "labor" else keys[0]
    node_types, (found,) = run_prepared(
        graph, given, request, [key], hop=hop.number, switch_threshold=share, read=read, trees=trees
    )
    (subgraph,) = subgraphs_of(graph, node_types, type_numbers_of(graph), [with_sources(graph, found)])
    subgraph.original_row_node_ids = None  # which has a row per edge
    if request.temporal is None or request.temporal.hop_time != "edge":
        return subgraph, None
    times = gather_edges(graph, edge_times_of(graph, request.temporal), read_at[0])
    return subgraph, split_times(graph, subgraph, times)


def with_sources(graph: GraphArrays, hop: ops.SampledHop) -> ops.SampledHop:
    """Return a hop that has a row per edge with the ids of sources instead of rows."""
    sources = [0]
    if graph.node_type_to_id is not None and graph.edge_type_to_id is not None:
        sources = type_numbers(graph.node_type_to_id, graph.edge_type_to_id).ends[:, 0].tolist()
    edges = {}
    for number, own in hop.edges.items():
        # The rows of the edges of a type follow each other.
        first = int(own.indices[0])
        edges[number] = own._replace(indices=hop.rows[sources[number]][first : first + len(own.indices)])
    return hop._replace(edges=edges)


def type_numbers_of(graph: GraphArrays) -> dict[Any, int]:
    """Return the number of each edge type; without types, there is one without a name."""
    return {None: 0} if graph.edge_type_to_id is None else graph.edge_type_to_id


def subgraphs_of(
    graph: GraphArrays, node_types: Sequence[Any], numbers: Mapping[Any, int], hops: Sequence[ops.SampledHop]
) -> list[SampledSubgraph]:
    """Return hops as subgraphs with every edge type, the outermost one first; `node_types` are in the order of ids."""
    made, num_nodes = [], None if hops[0].columns[0].is_cpu else to_type_dict(graph.num_nodes)
    # The program begins at the seeds.
    for hop in reversed(hops):
        columns, rows = dict(zip(node_types, hop.columns, strict=True)), dict(zip(node_types, hop.rows, strict=True))
        cscs, ids = {}, {}
        # If there are many edge types, most have no edges in a hop; these share columns.
        empty = {} if len(hop.edges) == len(numbers) else empty_columns(graph, columns)
        for name, number in numbers.items():
            indptr, indices, ids[name] = hop.edges.get(number) or empty[ends_of(name)[1]]
            cscs[name] = CSCFormatBase.unchecked(indptr, indices)
        if num_nodes is not None:
            mark_sampled(cscs, rows, num_nodes)
        own: Any = cscs, columns, rows, ids
        made.append(SampledSubgraph(*(map(itemgetter(None), own) if None in numbers else own)))
    return made


def empty_columns(graph: GraphArrays, columns: Mapping[Any, torch.Tensor]) -> dict[Any, ops.HopEdges]:
    """Return columns without edges, by destination type, shared by the edge types with that destination."""
    # Slices of a single array of zeros. By NumPy, which takes a fifth of torch's time.
    ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    zeros = np.zeros(1 + max(own.numel() for own in columns.values()), NUMPY_DTYPES[graph.csc_indptr.dtype])
    # As parts of longer arrays, because NumPy's empty ones have a stride of 0, so that torch can't view them as bytes.
    none, no_ids = (
        torch.from_numpy(np.empty(1, NUMPY_DTYPES[dtype])[:0])
        for dtype in (graph.indices.dtype, torch.int64 if ids is None else ids.dtype)
    )
    return {
        name: ops.HopEdges(torch.from_numpy(zeros[: own.numel() + 1]), none, no_ids) for name, own in columns.items()
    }
