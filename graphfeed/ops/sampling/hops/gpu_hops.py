"""Sample all hops of a mini-batch on a GPU, hop by hop."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import torch

from graphfeed.ops.arguments import are_below
from graphfeed.ops.backend import is_readable, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, HopEdges, Read, SampledHop, SeedTimes
from graphfeed.ops.sampling.hops.pick_edges import OneHop, bound_edges, check_ranges, columns_of, pick_edges

Bound = Callable[[Sequence[int], Sequence[int]], int | None]
"""Returns the maximum number of edges of a hop from its columns and fan-outs; None if they must be counted first."""
Sampled = TypeVar("Sampled")
Wanted: TypeAlias = tuple[Sequence[int], tuple[int, ...]]
"""The fan-outs of a hop, and its key; for LABOR, two keys and the threshold."""
HopArrays: TypeAlias = tuple[torch.Tensor, ...]
"""The arrays of a hop: rows, their ids within the node type, column starts, positions of edges, and local ids."""
Reader: TypeAlias = tuple[torch.Tensor, torch.cuda.Event]
"""Page-locked memory for a table, and an event that follows the copy to it."""
MOST_KINDS = 16
"""Maximum number of kinds of mini-batches whose launches are kept for a request."""
AGAIN = "again"
"""Stands for the launches of a kind of mini-batches of which there was one. Those of the next one are recorded."""


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

    def __init__(self, graph: Graph, counts: Sequence[int], num_hops: int, seeds: torch.Tensor) -> None:
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
        initial = torch.tensor([*itertools.chain(*known)], device="cpu")
        self.table = kernels("structure.running_sum", seeds).copied(initial, seeds.device)
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

    def read(self, table: list[int]) -> tuple[int, list[list[list[int]]]]:
        """Return whether a seed is out of range, and the tables of each hop."""
        values, num_hops = iter(table), len(self.of_hops) // 4
        is_wrong, *_ = itertools.islice(values, self.table.numel() - num_hops * sum(self.sizes))
        return is_wrong, [[list(itertools.islice(values, size)) for size in self.sizes] for _ in range(num_hops)]


class HopLaunches(NamedTuple):
    """The launches of the hops of a mini-batch, to be repeated for others of the same kind."""

    launches: Any
    """A `LaunchTable`."""
    tables: TypeTables
    readers: list[Reader]
    """Memory for the sizes of mini-batches, and events, that no mini-batch uses."""

    @classmethod
    def record(
        cls, graph: Graph, counts: Sequence[int], given: Sequence[torch.Tensor], wanted: Sequence[Wanted],
        launch: Callable[[Sequence[Wanted]], tuple[TypeTables, list[HopArrays]]],
    ) -> tuple[Self | None, TypeTables, list[HopArrays]]:  # fmt: skip
        """Launch the hops of a mini-batch; return the launches, or None if they can't be repeated, and their results.

        `given` has the seeds and, for temporal sampling, their times.
        """
        fanouts = [own for own, _ in wanted]
        if len(bound_nodes(graph, counts, fanouts, bound_edges, timed=len(given) > 1)) < len(wanted):
            return None, *launch(wanted)
        recording, places = kernels("launch_table", given[0]), itertools.count()
        with recording.LaunchRecorder().recording() as recorder:
            tables, written = launch(
                [(own, tuple(recording.HopKey(key, next(places)) for key in keys)) for own, keys in wanted]
            )
        arrays = [part for part in (*columns_of(graph, by_type=False), graph.edge_times) if part is not None]
        kept = [part for part in arrays if part.numel() and is_readable(part, given[0].device)]
        try:
            table = recording.LaunchTable(recorder, given, kept, [tables.table, *itertools.chain(*written)])
        except LookupError:
            return None, tables, written
        return cls(table, tables, []), tables, written

    def repeat(
        self, given: Sequence[torch.Tensor], wanted: Sequence[Wanted], stream: torch.cuda.Stream
    ) -> tuple[torch.Tensor, list[HopArrays]]:
        """Launch the hops of another mini-batch; return its table of sizes, and the arrays of each hop."""
        table, *arrays = self.launches.run(given, [key for _, keys in wanted for key in keys], stream)
        of_hops = iter(arrays)
        return table[: self.tables.table.numel()], list(zip(*[of_hops] * 5, strict=True))


@within_memory
def hops_on_gpu(  # noqa: PLR0913 - what a request has, and how it is served
    graph: Graph, seeds: Sequence[torch.Tensor], wanted: Sequence[Wanted], drawing: Drawing,
    moments: SeedTimes | None, read: Read | None, known: dict[Any, HopLaunches | str | None], ahead: bool, bound: Bound,
) -> Any:  # fmt: skip
    """Implement `sample_hops` on a GPU. With `ahead`, don't wait; return a function that does and returns the hops.

    The launches of the second mini-batch of a kind, such as all those with as many seeds, are recorded in `known`, and
    repeated for the next ones, which take a third of the CPU's time. Not recorded are second times with windows, hops
    without a bound, and arrays of pinned graphs that are read in the order of memory.
    """
    counts = [part.numel() for part in seeds]
    given = torch.cat(list(seeds)) if sum(count > 0 for count in counts) > 1 else max(seeds, key=len).contiguous()
    is_clean = graph.types is None and are_below(given, graph.num_nodes)
    read_by, kind = [given], None
    if moments is not None:
        times, windows = moments
        moments = SeedTimes(times.contiguous(), None if windows is None else windows.contiguous())
        read_by += [part for part in moments if part is not None]
    # The number of edges whose second times are in a window is read.
    is_counted = len(read_by) > 2 and graph.by_column is not None and graph.by_column.earliest is not None
    if bound is bound_edges and not is_counted:
        kind = (*counts, is_clean, len(read_by), drawing, given.device, current_limits().uva_threads)
    launches, stream = known.get(kind), torch.cuda.current_stream(given.device.index)
    if isinstance(launches, HopLaunches):
        tables, readers = launches.tables, launches.readers
        table, written = launches.repeat(read_by, wanted, stream)
    else:
        launch, readers = partial(launch_hops, graph, counts, given, is_clean, drawing, moments, bound), []
        if launches == AGAIN:
            known[kind], tables, written = HopLaunches.record(graph, counts, read_by, wanted, launch)
        else:
            tables, written = launch(wanted)
            if kind is not None and kind not in known:
                if len(known) >= MOST_KINDS:
                    known.clear()
                known[kind] = AGAIN
        table = tables.table

    def finish(values: list[int]) -> list[SampledHop]:
        is_wrong, found = tables.read(values)
        if is_wrong:
            check_ranges(graph, seeds)
        return cut(graph, seeds, written, found, read)

    if ahead:
        sizes = read_later(table, readers, stream)
        return lambda: finish(sizes())
    # The first synchronization, unless the edges of a hop had to be counted.
    return finish(table.tolist())


def read_later(table: torch.Tensor, idle: list[Reader], stream: torch.cuda.Stream) -> Callable[[], list[int]]:
    """Copy a table from a GPU on the current stream; return a function that waits and returns its values, once."""
    try:
        values, event = idle.pop()
    except IndexError:  # not asked for before: another thread may take the last one in between
        values = torch.empty(table.numel(), dtype=table.dtype, device="cpu").pin_memory()
        # Waiting for a non-blocking event would keep a core busy.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    values.copy_(table, non_blocking=True)
    stream.record_event(event)

    def read() -> list[int]:
        if not event.query():  # type: ignore[no-untyped-call]
            event.synchronize()
        found: list[int] = values.tolist()
        idle.append((values, event))
        return found

    return read


def launch_hops(
    graph: Graph, counts: Sequence[int], given: torch.Tensor, is_clean: bool, drawing: Drawing,
    moments: SeedTimes | None, bound: Bound, wanted: Sequence[Wanted],
) -> tuple[TypeTables, list[HopArrays]]:  # fmt: skip
    """Launch the kernels of all hops; return the arrays that they write, which are as long as fan-outs allow."""
    tables, indices = TypeTables(graph, counts, len(wanted), given), graph.indices
    by_type = {} if graph.types is None else {"types": graph.types}
    module = kernels("sampling.gpu_hops", given, indices=indices, **by_type)
    rows = given
    # Seeds out of range become -1 and are reported at the end, which avoids a synchronization here.
    if not is_clean:
        rows = buffers.empty(given.numel(), given, given.device)
        module.clean_seeds(given, (tables.of_hop(0)[0], tables.first_ids), rows, tables.is_wrong)
    nodes = [] if moments else bound_nodes(graph, counts, [fanout for fanout, _ in wanted], bound)
    slots = iter(kernels("structure.relabel", given).new_slots(nodes, given) if nodes else ())
    most, written = counts, list[HopArrays]()
    for number, (fanout, keys) in enumerate(wanted):
        starts = tables.of_hop(number)[0]
        edges = bound(columns_per_fanout(graph, most, fanout), fanout)
        own = drawing._replace(switch_threshold=keys[2]) if drawing.method == "labor" else drawing
        hop = OneHop(
            rows, torch.tensor(fanout, device="cpu"), keys[:2], own, moments, num_seeds=starts[-1:], most=edges
        )
        offsets, positions = picks = pick_edges(graph, hop)
        before, most = most, bound_rows(graph, None if moments else counts, most, fanout, positions.numel())
        size = min(sum(most), rows.numel() + positions.numel())
        rows, local = (buffers.empty(own, given.dtype, given.device) for own in (size, positions.numel()))
        hop_types = tables.types_of(number, kernels("structure.relabel", rows).HopTypes)
        if by_type:
            # Each edge type has one more column start than columns.
            room = sum(before[end] + 1 for end in graph.destinations or [0])
            own_ids, indptr, grouped = (
                buffers.empty(own, dtype, given.device)
                for own, dtype in ((size, given.dtype), (room, graph.indptr_dtype), (positions.numel(), torch.int64))
            )
            written.append((rows, own_ids, indptr, grouped, local))
            graph_arrays = by_type["types"], indices
            module.compact_typed_hop(hop, graph_arrays, picks, hop_types, tables.ranks, written[-1], next(slots, None))
            continue
        written.append((rows, rows, offsets, positions, local))
        if moments is None:
            module.relabel_hop(hop, indices, picks, hop_types, rows, local, next(slots, None))
        else:
            times, windows = moments
            own_times = buffers.empty(size, times, given.device)
            moments = SeedTimes(own_times, None if windows is None else buffers.empty(size, windows, given.device))
            module.append_rows(hop, indices, graph.edge_times, picks, rows, local, moments, hop_types)
    return tables, written


def columns_per_fanout(graph: Graph, most: Sequence[int], fanouts: Sequence[int]) -> list[int]:
    """Return the maximum number of columns for each fan-out."""
    return [most[end] for end in graph.destinations] if len(fanouts) > 1 else [sum(most)]


def bound_nodes(
    graph: Graph, counts: Sequence[int], fanouts: Sequence[Sequence[int]], bound: Bound, *, timed: bool = False
) -> list[int]:
    """Return the maximum number of seeds plus edges of each hop, up to the first hop without a bound."""
    room, most = [], counts
    for fanout in fanouts:
        edges = bound(columns_per_fanout(graph, most, fanout), fanout)
        if edges is None:
            break
        room.append(sum(most) + edges)
        most = bound_rows(graph, None if timed else counts, most, fanout, edges)
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
            starts_of = indptr[bounds[place] : bounds[place + 1]]
            ids_of = values if len(edges) == 2 else values[own]
            # Conversions to the same dtype, too, take time.
            starts_of = starts_of if starts_of.dtype == graph.indptr_dtype else starts_of.to(graph.indptr_dtype)
            of_types[kind] = HopEdges(starts_of, local[own], ids_of)
        parts.append(SampledHop(columns, rows, of_types))
        columns = rows
    return parts
