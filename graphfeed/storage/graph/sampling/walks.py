"""Random walks: in one call on a graph in memory, or with one hop for each step."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphfeed import ops
from graphfeed.ops.arguments import as_ids, check_ids, check_vector, mark_below
from graphfeed.ops.sampling import ACCEPT, STOP, UNIT, Walks, walk_chances, walk_draws, walk_trees
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampling.graph_files import gather_edges, kernel_columns
from graphfeed.storage.graph.sampling.in_edges import read_columns, type_bounds
from graphfeed.storage.graph.sampling.prepared import prepare_picks
from graphfeed.storage.graph.sampling_request import Hop, one_draw
from graphfeed.storage.graph.type_names import first_ids, from_type_dict, match_types, to_type_dict, with_all_types
from graphfeed.storage.graph.walk_request import WalkRequest

if TYPE_CHECKING:
    from graphfeed.storage.graph.sampling_graph import SamplingGraph

DRAWN = (8, 64, 1024)
"""Edges drawn at once for a second-order step: more if all are rejected. The last number is `ROUNDS` of the kernel."""


def open_walks(graph: "SamplingGraph", seeds: ByType, request: WalkRequest) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the start of each walk in the type of the seeds (int64), and its number among those of its seed."""
    request.check_types(graph.edge_types)
    node_type = request.node_types[0]
    parts, sizes = match_types("seeds", seeds, graph.num_nodes), to_type_dict(graph.num_nodes)
    if node_type is None and None not in sizes:
        node_type = next(iter(parts), next(iter(sizes)))
    if set(parts) - {node_type}:
        raise ValueError(f"seeds have the types {list(parts)}, but etypes begin at {node_type!r}; give only those")
    starts = check_starts(parts.get(node_type, torch.empty(0, dtype=torch.int64, device="cpu")), sizes[node_type])
    if not starts.is_cpu:
        numbers = torch.arange(request.per_seed, device=starts.device).repeat(len(starts))
        # Another check would synchronize.
        mark_below(numbers, request.per_seed)
        return starts.repeat_interleave(request.per_seed), numbers
    # By NumPy: torch would wake its threads, which waits for busy cores.
    numbers = torch.from_numpy(np.tile(np.arange(request.per_seed), len(starts)))
    return torch.from_numpy(np.repeat(starts.numpy(), request.per_seed)), numbers


def check_starts(seeds: torch.Tensor, num_nodes: int) -> torch.Tensor:
    """Return seeds of one type as int64. Raises unless they are nodes."""
    starts = as_ids("seeds", seeds)
    check_vector("seeds", starts)
    check_ids("seeds", starts, num_nodes)
    return starts.to(torch.int64)


def walk_in_memory(
    graph: GraphArrays, starts: torch.Tensor, numbers: torch.Tensor, request: WalkRequest, key: int, *, edge_ids: bool
) -> Walks:
    """Return the walks from starts in their type, shape (walks, length + 1), all steps in one call."""
    if request.is_second_order:
        check_on_cpu("walks with p and q", graph.indices, starts)
    edge_types: list[str] = graph.edge_types  # type: ignore[attr-defined]
    first_id = first_ids(graph.num_nodes)[request.node_types[0]] if request.etypes else 0
    record = prepare_picks(graph, request.hop(edge_types), windowed=False)
    given = {"sources": sorted_sources(graph)} if request.is_second_order else {}
    steps = request.steps(edge_types)
    starts = torch.from_numpy(starts.numpy() + first_id) if starts.is_cpu else starts + first_id
    # They were checked: on a GPU, another check would synchronize.
    mark_below(starts, record.num_nodes)
    walks = ops.random_walks(record, starts, numbers, key, steps, edges=edge_ids, **given)
    ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    if walks.edges is None or ids is None:
        return walks
    ended = walks.edges < 0
    read = gather_edges(graph, ids, walks.edges.masked_fill(ended, 0).flatten()) if len(ids) else walks.edges
    return walks._replace(edges=read.to(torch.int64).view_as(ended).masked_fill_(ended, -1))


def check_on_cpu(what: str, *arrays: torch.Tensor) -> None:
    """Raise unless the arrays that something reads are on the CPU."""
    for array in arrays:
        if not array.is_cpu:
            raise ValueError(
                f"{what} run on the CPU, but were given arrays on {array.device}; sample from a graph on the CPU, and "
                "put copy_to after the stage"
            )


def sorted_sources(graph: GraphArrays) -> torch.Tensor:
    """Return the sources of each column in ascending order (int64), computed by the first call: 8 bytes per edge."""

    def sort() -> tuple[torch.Tensor | None]:
        return (ops.order_by_time(kernel_columns(graph)[0], graph.indices.to(torch.int64)).times,)

    (sources,) = graph.cached("sorted sources", (graph.csc_indptr, graph.indices), sort)
    return sources  # type: ignore[no-any-return]


def walk_by_hops(
    graph: "SamplingGraph",
    starts: torch.Tensor,
    numbers: torch.Tensor,
    request: WalkRequest,
    key: int,
    *,
    edge_ids: bool,
) -> Walks:
    """Return the walks like `walk_in_memory`, with a hop for each step, which draws in the trees of the walks."""
    check_on_cpu("walks by hops", starts)
    nodes = torch.full((len(starts), request.length + 1), -1, dtype=torch.int64, device="cpu")
    edges = nodes[:, 1:].clone()
    steps, firsts = request.steps(graph.edge_types), first_ids(graph.num_nodes)
    first_of = [firsts.get(name, 0) for name in request.node_types]
    trees, nodes[:, 0] = walk_trees(starts + first_of[0], numbers), starts
    active = torch.arange(len(starts), device="cpu")
    for step in range(request.length):
        step_key = ops.fold(key, step)
        if steps.stops:
            kind = steps.types[step] if steps.types else None
            bits = walk_draws(step_key, trees[active], nodes[active, step] + first_of[step], [STOP], kind)
            active = active[walk_chances(bits)[:, 0] >= round(steps.stops[step] * UNIT)]
        if len(active) == 0:
            break
        # As ids in the whole graph.
        previous = nodes[active, step - 1] + first_of[step - 1] if request.is_second_order and step > 0 else None
        sources, ids = take_step(graph, nodes[active, step], previous, trees[active], request, step, step_key)
        nodes[active, step + 1], edges[active, step] = sources, ids
        active = active[sources >= 0]
    return Walks(nodes, edges if edge_ids else None)


def take_step(
    graph: "SamplingGraph",
    nodes: torch.Tensor,
    previous: torch.Tensor | None,
    trees: torch.Tensor,
    request: WalkRequest,
    step: int,
    key: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the next node of each walk and the id of the edge to it, or -1; `previous` is for second-order steps."""
    firsts, steps = first_ids(graph.num_nodes), request.steps(graph.edge_types)
    first, source_first = (firsts.get(own, 0) for own in request.node_types[step : step + 2])
    draws = partial(walk_draws, key, edge_type=steps.types[step] if steps.types else None)
    next_nodes, edges = torch.full_like(nodes, -1), torch.full_like(nodes, -1)
    left = torch.arange(len(nodes), device="cpu")
    for count in (1,) if previous is None else DRAWN:
        has_edges, sources, ids = draw_edges(graph, nodes[left], trees[left], request, step, key, count)
        left = left[has_edges]
        accepted = torch.ones_like(sources, dtype=torch.bool)
        if previous is not None:
            draws_of_walks = partial(draws, trees[left], nodes[left] + first)
            if steps.types:
                # Picks of a type ascend by position, and so do positions by their draws.
                order = torch.from_numpy(draws_of_walks(range(count)).argsort(axis=1, kind="stable").argsort(axis=1))
                sources, ids = sources.gather(1, order), None if ids is None else ids.gather(1, order)
            bits = walk_chances(draws_of_walks(range(ACCEPT, ACCEPT + count)))
            accepted = accept(graph, sources + source_first, previous[left], bits, steps.chances())
            # Without an accepted edge, the last one.
            accepted[:, -1] |= count == DRAWN[-1]
        places = accepted.int().argmax(1, keepdim=True)
        next_nodes[left] = sources.gather(1, places)[:, 0]
        if ids is not None:
            edges[left] = ids.gather(1, places)[:, 0]
        left = left[~accepted.any(1)]
        if len(left) == 0:
            break
    return next_nodes, edges


def draw_edges(
    graph: "SamplingGraph",
    nodes: torch.Tensor,
    trees: torch.Tensor,
    request: WalkRequest,
    step: int,
    key: int,
    count: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Draw in-edges of each node in its tree, with replacement.

    Returns:
        Whether each node has in-edges, and for those that have, int64, shape (nodes, count): the sources of the drawn
        edges, and their ids, if the graph has any.
    """
    name, node_type = request.etypes[step] if request.etypes else None, request.node_types[step]
    columns, own_trees = (
        from_type_dict(with_all_types({node_type: values}, to_type_dict(graph.num_nodes))) for values in (nodes, trees)
    )
    hop = Hop(request.hop(graph.edge_types, step, count), one_draw(key), trees=own_trees)
    ((sampled, _),) = graph.pick_each([columns], [hop])
    csc, ids = to_type_dict(sampled.sampled_csc)[name], to_type_dict(sampled.original_edge_ids).get(name)
    sources = csc.indices.view(-1, count).to(torch.int64)
    return csc.indptr.diff() > 0, sources, None if ids is None else ids.view(-1, count).to(torch.int64)


def accept(
    graph: "SamplingGraph",
    sources: torch.Tensor,
    previous: torch.Tensor,
    bits: torch.Tensor,
    chances: Sequence[int],
) -> torch.Tensor:
    """Return whether each drawn source is accepted by its bits, after the previous node of its row."""
    to_previous, to_near, to_far = chances
    is_previous = sources == previous[:, None]
    accepted = torch.where(is_previous, bits < to_previous, bits < min(to_near, to_far))
    rows, places = (~is_previous & ~accepted & (bits < max(to_near, to_far))).nonzero(as_tuple=True)
    accepted[rows, places] = have_edges(graph, sources[rows, places], previous[rows]) == (to_near > to_far)
    return accepted


def have_edges(graph: "SamplingGraph", columns: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
    """Return for each pair of nodes, as ids in the whole graph, whether there is an edge from the source to the column.

    The edge may have any type.
    """
    nodes, places = np.unique(columns.numpy(), return_inverse=True)
    indptr, known = read_columns(graph, nodes)
    size = int(type_bounds(graph)[-1])
    pairs = np.repeat(np.arange(len(nodes)), np.diff(indptr)) * size + known
    return torch.from_numpy(np.isin(places * size + sources.numpy(), pairs))
