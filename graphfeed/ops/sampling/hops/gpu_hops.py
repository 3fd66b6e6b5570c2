"""Sample all hops of a mini-batch on a GPU, hop by hop."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import torch

from graphfeed.ops.arguments import are_below
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, HopEdges, Read, SampledHop, SeedTimes
from graphfeed.ops.sampling.hops.pick_edges import OneHop, bound_edges, check_ranges, pick_edges

Bound = Callable[[Sequence[int], Sequence[int]], int | None]
"""Returns the maximum number of edges of a hop from its columns and fan-outs; None if they must be counted first."""
Sampled = TypeVar("Sampled")


def within_memory(sample: Callable[..., Sampled]) -> Callable[..., Sampled]:
    """Call a function again, with exact edge counts, if arrays sized by the fan-outs exceed the GPU's memory."""

    @wraps(sample)
    def sampled(*given: Any) -> Sampled:
        # The second call is outside of the handler: the error would keep the first call's arrays alive.
        with suppress(torch.cuda.OutOfMemoryError):
            return sample(*given, bound_edges)
        return sample(*given, lambda *_: None)

    return sampled


class TypeTables:
    """Counts and starts of each type and hop of a mini-batch, in one tensor that a GPU fills and the CPU reads once."""

    def __init__(self, graph: Graph, counts: Sequence[int], num_hops: int, device: torch.device) -> None:
        # Edge types are in the order in which new nodes are numbered.
        ends = [(graph.sources[kind], graph.destinations[kind]) for kind in graph.order] or [(0, 0)]
        sources, destinations = map(list, zip(*ends, strict=True))
        ranks = sorted(range(len(graph.order)), key=graph.order.__getitem__) or [0]
        starts = [0, *itertools.accumulate(counts)]
        parts = [0, *itertools.accumulate(counts[end] + 1 for end in destinations)]
        # Per hop: starts of node types' columns, of edge types' column starts, and of their edges; and shifts.
        self.sizes = [len(starts), len(parts), len(parts), len(ends)]
        blank = [0] * (len(parts) + len(ends))
        # Without columns, each edge type still has a column start.
        empty = [*[0] * len(starts), *range(len(parts)), *blank] * num_hops
        known = [[0], graph.first_ids, sources, destinations, ranks, [*starts, *parts, *blank, *empty]]
        self.table = torch.tensor([*itertools.chain(*known)], device="cpu").to(device, non_blocking=True)
        parted = torch.split(self.table, [*map(len, known[:-1]), *self.sizes * (num_hops + 1)])
        self.is_wrong, self.first_ids, self.sources, self.destinations, self.ranks, *self.of_hops = parted

    def of_hop(self, hop: int) -> Sequence[torch.Tensor]:
        return self.of_hops[4 * hop : 4 * hop + 4]

    def types_of(self, hop: int, make: Callable[..., Any]) -> Any:
        """Return the tables of a hop, as `make` combines them for the relabelling kernels."""
        starts, parts, edge_starts, shifts = self.of_hop(hop)
        row_starts, next_parts, *_ = self.of_hop(hop + 1)
        columns = {"destinations": self.destinations, "parts": parts, "next_parts": next_parts}
        return make(starts, self.sources, edge_starts, shifts, row_starts, self.first_ids, **columns)

    def read(self) -> tuple[int, list[list[list[int]]]]:
        """Wait for the GPU; return whether a seed is out of range, and the tables of each hop."""
        values = iter(self.table.tolist())
        num_hops = len(self.of_hops) // 4
        is_wrong, *_ = itertools.islice(values, self.table.numel() - num_hops * sum(self.sizes))
        return is_wrong, [[list(itertools.islice(values, size)) for size in self.sizes] for _ in range(num_hops)]


@within_memory
def hops_on_gpu(
    graph: Graph, seeds: Sequence[torch.Tensor], wanted: Sequence[tuple[Sequence[int], Any]], drawing: Drawing,
    moments: SeedTimes | None, read: Read | None, bound: Bound,
) -> list[SampledHop]:  # fmt: skip
    """Implement `sample_hops` on a GPU; `wanted` has the fan-outs and the key of each hop."""
    counts, indices = [part.numel() for part in seeds], graph.indices
    by_type = {} if graph.types is None else {"types": graph.types}
    if moments is not None:
        times, windows = moments
        moments = SeedTimes(times.contiguous(), None if windows is None else windows.contiguous())
    module = kernels("sampling.gpu_hops", seeds[0], indices=indices, **by_type)
    tables = TypeTables(graph, counts, len(wanted), seeds[0].device)
    rows = given = (
        torch.cat(list(seeds)) if sum(count > 0 for count in counts) > 1 else max(seeds, key=len).contiguous()
    )
    # Seeds out of range become -1 and are reported at the end, which avoids a synchronization here.
    if by_type or not are_below(given, graph.num_nodes):
        rows = torch.empty_like(given)
        module.clean_seeds(given, (tables.of_hop(0)[0], tables.first_ids), rows, tables.is_wrong)
    room = [] if moments else bound_nodes(graph, counts, [fanout for fanout, _ in wanted], bound)
    slots = iter(kernels("structure.relabel", given).new_slots(room, given) if room else ())
    most, written = counts, []
    for number, (fanout, key) in enumerate(wanted):
        starts, draw = tables.of_hop(number)[0], key if drawing.method == "labor" else (key,)
        edges = bound(columns_per_fanout(graph, most, fanout), fanout)
        hop = OneHop(
            rows, torch.tensor(fanout, device="cpu"), draw, drawing, moments, num_seeds=starts[-1:], most=edges
        )
        offsets, positions = picks = pick_edges(graph, hop)
        before, most = most, bound_rows(graph, None if moments else counts, most, fanout, positions.numel())
        size = min(sum(most), rows.numel() + positions.numel())
        rows, local = (buffers.empty(own, given.dtype, given.device) for own in (size, positions.numel()))
        hop_types = tables.types_of(number, kernels("structure.relabel", rows).HopTypes)
        dtype = graph.indptr_dtype
        if by_type:
            # Each edge type has one more column start than columns.
            indptr = buffers.empty(sum([before[end] + 1 for end in graph.destinations or [0]]), dtype, given.device)
            written.append((rows, torch.empty_like(rows), indptr, torch.empty_like(positions), local))
            graph_arrays = by_type["types"], indices
            module.compact_typed_hop(hop, graph_arrays, picks, hop_types, tables.ranks, written[-1], next(slots, None))
            continue
        written.append((rows, rows, offsets.to(dtype), positions, local))
        if moments is None:
            module.relabel_hop(hop, indices, picks, hop_types, rows, local, next(slots, None))
        else:
            times, windows = moments
            moments = SeedTimes(times.new_empty(size), None if windows is None else windows.new_empty(size))
            module.append_rows(hop, indices, graph.edge_times, picks, rows, local, moments, hop_types)
    # The first synchronization, unless the edges of a hop had to be counted.
    is_wrong, found = tables.read()
    if is_wrong:
        check_ranges(graph, seeds)
    return cut(graph, seeds, written, found, read)


def columns_per_fanout(graph: Graph, most: Sequence[int], fanouts: Sequence[int]) -> list[int]:
    """Return the maximum number of columns for each fan-out."""
    return [most[end] for end in graph.destinations] if len(fanouts) > 1 else [sum(most)]


def bound_nodes(graph: Graph, counts: Sequence[int], fanouts: Sequence[Sequence[int]], bound: Bound) -> list[int]:
    """Return the maximum number of seeds plus edges of each hop, up to the first hop without a bound."""
    room, most = [], counts
    for fanout in fanouts:
        edges = bound(columns_per_fanout(graph, most, fanout), fanout)
        if edges is None:
            break
        room.append(sum(most) + edges)
        most = bound_rows(graph, counts, most, fanout, edges)
    return room


def bound_rows(
    graph: Graph, counts: Sequence[int] | None, most: Sequence[int], fanouts: Sequence[int], edges: int
) -> list[int]:
    """Return the maximum number of rows of each node type after a hop of at most `edges` edges."""
    rows = list(most)
    for number, (source, end) in enumerate(zip(graph.sources, graph.destinations, strict=True)):
        fanout = fanouts[number % len(fanouts)]
        rows[source] += edges if fanout < 0 else min(most[end] * fanout, edges)
    if counts is None:  # in temporal sampling, each edge adds a row
        return rows
    # Each node has one row, besides the seeds, which may repeat.
    ids = zip(graph.first_ids, graph.first_ids[1:], strict=False)
    return [min(own, count + high - low) for own, count, (low, high) in zip(rows, counts, ids, strict=True)]


def cut(
    graph: Graph,
    seeds: Sequence[torch.Tensor],
    written: Sequence[Any],
    found: Sequence[list[list[int]]],
    read: Read | None,
) -> list[SampledHop]:
    """Trim the arrays of hops to their used parts, with the tables of each hop and of the rows after the last one."""
    parts, columns = [], list(seeds)
    for (_, ids, indptr, positions, local), (_, bounds, edges, _), (starts, *_) in zip(
        written, found, found[1:], strict=False
    ):
        rows = [ids[low:high] for low, high in itertools.pairwise(starts)]
        values, of_types = positions[: edges[-1]] if read is None else read(positions[: edges[-1]]), {}
        for place, kind in enumerate(graph.order):
            own = slice(edges[place], edges[place + 1])
            of_types[kind] = HopEdges(indptr[bounds[place] : bounds[place + 1]], local[own], values[own])
        parts.append(SampledHop(columns, rows, of_types))
        columns = rows
    return parts
