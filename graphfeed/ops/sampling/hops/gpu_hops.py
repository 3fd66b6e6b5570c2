"""All hops of a mini-batch on a GPU, which has kernels for one hop."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import torch

from graphfeed.ops.arguments import are_below, check_ids
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.hop_graph import HopGraph, Shape, check_ranges, shape_of
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, HopEdges, Read, SampledHop, SeedTimes
from graphfeed.ops.sampling.hops.one_hop import OneHop, StaticGraph, bound_edges, pick_edges
from graphfeed.ops.sampling.temporal_graph import TemporalGraph
from graphfeed.ops.sampling.weights import split_sums

Bound = Callable[[Sequence[int], Sequence[int]], int | None]
"""Tells how many edges a hop has at most, given the columns and the fan-outs; None: they are counted first."""
Sampled = TypeVar("Sampled")


def within_memory(sample: Callable[..., Sampled]) -> Callable[..., Sampled]:
    """Let a function count each hop's edges first if arrays as long as its fan-outs allow take too much memory."""

    @wraps(sample)
    def sampled(*given: Any) -> Sampled:
        # Not where the error is handled, which keeps what was made until then.
        with suppress(torch.cuda.OutOfMemoryError):
            return sample(*given, bound_edges)
        return sample(*given, lambda *_: None)

    return sampled


@within_memory
def hops_on_gpu(
    graph: HopGraph,
    seeds: torch.Tensor,
    wanted: Sequence[tuple[int, Any]],
    drawing: Drawing,
    moments: SeedTimes | None,
    read: Read | None,
    bound: Bound,
) -> list[SampledHop]:
    """Sample hops without types, each of a fan-out and a key, as `sample_hops` says, with kernels for one hop."""
    fanouts = [fanout for fanout, _ in wanted]
    columns: StaticGraph | TemporalGraph = StaticGraph(graph.indptr, graph.indices, split_sums(graph.cumulative)[0])
    edge_times, indices = None, graph.indices.contiguous()
    if graph.timed is not None and moments is not None:
        columns = graph.timed[0]._replace(indptr=graph.indptr, indices=graph.indices)
        edge_times = None if columns.edge_times is None else columns.edge_times.contiguous()
        times, windows = moments
        moments = SeedTimes(times.contiguous(), None if windows is None else windows.contiguous())
    num_nodes, most_rows = graph.indptr.numel() - 1, seeds.numel()
    module = kernels("sampling.gpu_hops", seeds, indices=graph.indices)
    # Whether a seed is no node, and then the edges and the rows of each hop.
    sizes = torch.zeros(1 + 2 * len(fanouts), dtype=torch.int64, device=seeds.device)
    rows, num_rows = seeds.contiguous(), None
    # Wrong seeds become -1 here and are named in the end, so that nothing waits for the GPU now.
    if not are_below(seeds, num_nodes):
        rows = torch.empty_like(rows)
        module.clean_seeds(seeds.contiguous(), num_nodes, None, rows, sizes)
    room = [] if moments is not None else bound_nodes(seeds.numel(), num_nodes, fanouts, bound)
    slots = iter(kernels("structure.relabel", seeds).new_slots(room, seeds) if room else ())
    hops = []
    for number, (fanout, key) in enumerate(wanted):
        draw = key if drawing.method == "labor" else (key,)
        most = bound([rows.numel()], [fanout])
        hop = OneHop(rows, torch.tensor([fanout]), draw, drawing, moments, num_seeds=num_rows, most=most)
        offsets, positions = pick_edges(columns, hop)
        most_rows += positions.numel()
        if moments is None:
            # Beside the seeds, which may repeat, each node has one row.
            most_rows = min(most_rows, seeds.numel() + num_nodes)
        local = buffers.empty(positions.numel(), seeds.dtype, seeds.device)
        after = buffers.empty(most_rows, seeds.dtype, seeds.device)
        own_sizes = sizes[1 + 2 * number : 3 + 2 * number]
        if moments is None:
            module.compact_hop(hop, indices, offsets, positions, after, local, own_sizes, next(slots, None))
        else:
            times, windows = moments
            moments = SeedTimes(times.new_empty(most_rows), None if windows is None else windows.new_empty(most_rows))
            module.append_rows(hop, indices, edge_times, offsets, positions, after, local, moments, own_sizes)
        hops.append((rows, after, offsets.to(graph.indptr_dtype or graph.indptr.dtype), local, positions))
        rows, num_rows = after, own_sizes[1:]
    # The first wait for the GPU, unless nothing bounds a hop's edges.
    is_wrong, *found = sizes.tolist()
    if is_wrong:
        check_ids("seeds", seeds, num_nodes)
    return cut(seeds, hops, [(seeds.numel(), 0), *zip(found[1::2], found[::2], strict=True)], read)


def bound_nodes(num_seeds: int, num_nodes: int, fanouts: Sequence[int], bound: Bound) -> list[int]:
    """Return how many seeds and edges each hop has at most, up to the first hop that nothing bounds."""
    room, known = [], num_seeds
    for fanout in fanouts:
        edges = bound([known], [fanout])
        if edges is None:
            break
        room.append(known + edges)
        known = min(known + edges, num_seeds + num_nodes)
    return room


def cut(
    seeds: torch.Tensor,
    hops: Sequence[Sequence[torch.Tensor]],
    sizes: Sequence[tuple[int, int]],
    read: Read | None,
) -> list[SampledHop]:
    """Cut the arrays of hops to what is used, given the number of seeds, and then of each hop's rows and edges."""
    parts, columns = [], seeds
    for (_, rows, offsets, local, positions), (count, _), (known, edges) in zip(hops, sizes, sizes[1:], strict=False):
        found = positions[:edges] if read is None else read(positions[:edges])
        parts.append(SampledHop([columns], [rows[:known]], {0: HopEdges(offsets[: count + 1], local[:edges], found)}))
        columns = rows[:known]
    return parts


class TypeTables:
    """What is known of the types of a mini-batch, hop by hop: on a GPU, which writes most of it, and read once."""

    def __init__(self, shape: Shape, counts: Sequence[int], num_hops: int, device: torch.device) -> None:
        # Edge types are in the order in which new nodes are counted.
        ends = [(shape.sources[kind], shape.destinations[kind]) for kind in shape.order] or [(0, 0)]
        sources, destinations = map(list, zip(*ends, strict=True))
        ranks = sorted(range(len(shape.order)), key=shape.order.__getitem__) or [0]
        starts = [0, *itertools.accumulate(counts)]
        parts = [0, *itertools.accumulate(counts[end] + 1 for end in destinations)]
        # Of each hop: where node types' columns start, edge types' column starts, their edges; and shifts.
        self.sizes = [len(starts), len(parts), len(parts), len(ends)]
        blank = [0] * ((num_hops + 1) * sum(self.sizes) - len(starts) - len(parts))
        known = [[0], shape.first_ids, sources, destinations, ranks, [*starts, *parts, *blank]]
        self.table = torch.tensor([*itertools.chain(*known)]).to(device, non_blocking=True)
        parted = torch.split(self.table, [*map(len, known[:-1]), *self.sizes * (num_hops + 1)])
        self.is_wrong, self.first_ids, self.sources, self.destinations, self.ranks, *self.of_hops = parted

    def of_hop(self, hop: int) -> Sequence[torch.Tensor]:
        return self.of_hops[4 * hop : 4 * hop + 4]

    def types_of(self, hop: int, make: Callable[..., Any]) -> Any:
        """Return what the kernels take that relabel a hop."""
        starts, parts, edge_starts, shifts = self.of_hop(hop)
        row_starts, next_parts, *_ = self.of_hop(hop + 1)
        columns = {"destinations": self.destinations, "parts": parts, "next_parts": next_parts}
        return make(starts, self.sources, edge_starts, shifts, row_starts, self.first_ids, **columns)

    def read(self) -> tuple[int, list[list[list[int]]]]:
        """Return whether a seed is wrong, and the tables of each hop, once they are there."""
        values = iter(self.table.tolist())
        is_wrong, *_ = itertools.islice(values, self.table.numel() - sum(map(len, self.of_hops)))
        tables = [list(itertools.islice(values, len(part))) for part in self.of_hops]
        return is_wrong, [tables[first : first + 4] for first in range(0, len(tables), 4)]


@within_memory
def typed_hops_on_gpu(
    graph: HopGraph, seeds: Sequence[torch.Tensor], fanouts: Sequence[Sequence[int]], keys: Sequence[Any],
    drawing: Drawing, read: Read | None, bound: Bound,
) -> list[SampledHop]:  # fmt: skip
    """Sample all hops with types as `sample_hops` says, with kernels for one hop."""
    assert graph.types is not None
    shape, num_nodes, counts = shape_of(graph), graph.indptr.numel() - 1, [part.numel() for part in seeds]
    indices, types = graph.indices.contiguous(), graph.types.contiguous()
    columns = StaticGraph(graph.indptr, indices, split_sums(graph.cumulative)[0], types, graph.num_types)
    module = kernels("sampling.gpu_hops", seeds[0], indices=indices, types=types)
    tables = TypeTables(shape, counts, len(fanouts), seeds[0].device)
    given = torch.cat(list(seeds)) if sum(count > 0 for count in counts) > 1 else max(seeds, key=len).contiguous()
    rows = torch.empty_like(given)
    module.clean_seeds(given, num_nodes, (tables.of_hop(0)[0], tables.first_ids), rows, tables.is_wrong)
    most, written = counts, []
    for number, (fanout, key) in enumerate(zip(fanouts, keys, strict=True)):
        starts = tables.of_hop(number)[0]
        room = [most[end] for end in shape.destinations or [0]]
        draw = key if drawing.method == "labor" else (key,)
        edges = bound(room if len(fanout) > 1 else [sum(most)], fanout)
        hop = OneHop(rows, torch.tensor(fanout), draw, drawing, num_seeds=starts[-1:], most=edges)
        picks = pick_edges(columns, hop)
        most = bound_rows(shape, counts, most, fanout, picks.positions.numel())
        size = min(sum(most), rows.numel() + picks.positions.numel())
        rows, own_ids, local = (buffers.empty(own, given.dtype, given.device) for own in (size, size, len(picks[1])))
        # Each edge type has a column start more than columns.
        indptr = buffers.empty(sum(room) + len(room), graph.indptr_dtype or graph.indptr.dtype, given.device)
        written.append((rows, own_ids, indptr, torch.empty_like(picks.positions), local))
        own_types = tables.types_of(number, kernels("structure.relabel", rows).HopTypes)
        module.compact_typed_hop(hop, (types, indices), picks, own_types, tables.ranks, written[-1])
    # The first wait for the GPU, unless nothing bounds a hop's edges.
    is_wrong, found = tables.read()
    if is_wrong:
        check_ranges(graph, shape, seeds)
    return cut_by_type(graph, seeds, written, found, read)


def bound_rows(
    shape: Shape, counts: Sequence[int], most: Sequence[int], fanouts: Sequence[int], edges: int
) -> list[int]:
    """Return how many rows of each node type there are at most behind a hop, which has at most so many edges."""
    rows = list(most)
    for number, (source, end) in enumerate(zip(shape.sources, shape.destinations, strict=True)):
        fanout = fanouts[number % len(fanouts)]
        rows[source] += edges if fanout < 0 else min(most[end] * fanout, edges)
    ids = zip(shape.first_ids, shape.first_ids[1:], strict=False)
    return [min(own, count + high - low) for own, count, (low, high) in zip(rows, counts, ids, strict=True)]


def cut_by_type(
    graph: HopGraph,
    seeds: Sequence[torch.Tensor],
    written: Sequence[Any],
    found: Sequence[list[list[int]]],
    read: Read | None,
) -> list[SampledHop]:
    """Cut the arrays of hops to what is used, given the tables of each hop and of what is behind the last one."""
    order = [] if graph.order is None else graph.order.tolist()
    parts, columns = [], list(seeds)
    for (_, ids, indptr, positions, local), (_, bounds, edges, _), (starts, *_) in zip(
        written, found, found[1:], strict=False
    ):
        rows = [ids[low:high] for low, high in itertools.pairwise(starts)]
        values, of_types = positions[: edges[-1]] if read is None else read(positions[: edges[-1]]), {}
        for place, kind in enumerate(order):
            own = slice(edges[place], edges[place + 1])
            of_types[kind] = HopEdges(indptr[bounds[place] : bounds[place + 1]], local[own], values[own])
        parts.append(SampledHop(columns, rows, of_types))
        columns = rows
    return parts
