"""Sample single hops, on the CPU and on a GPU: arguments, their checks, and the picks."""

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import torch

from graphfeed.ops.arguments import NOTHING, are_below, brief, check_count, check_ids, check_length, check_vector
from graphfeed.ops.backend import kernels, package_for
from graphfeed.ops.cpu.sampling.passes import state
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits
from graphfeed.ops.random import MASK
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.hops.hop_program import PROGRAMS
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, Method, RowKind, SeedTimes, recipe_of
from graphfeed.ops.sampling.time_order import TimeOrder

MOST_REPEATED = (1 << 31) - 1
"""The largest fan-out with replacement. Numbers of edges computed from it don't overflow."""
METHODS, ROW_KINDS = get_args(Method), get_args(RowKind)
FEW_PICKS = 1 << 14
"""On the CPU, up to this many picks of a hop are allocated before they are counted."""
LARGEST_WINDOW = 1 << 63
"""Bound of windows that are known to be 0 or more."""
NO_KEYS, NO_ORDER, NO_TYPES = (
    torch.empty(0, dtype=dtype, device="cpu") for dtype in (torch.uint64, torch.int32, torch.uint8)
)


class Picks(NamedTuple):
    """Sampled edges, column by column."""

    offsets: torch.Tensor
    """int64, shape (num_seeds + 1,): where the edges of each column start in `positions`."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays."""


class HopColumns(NamedTuple):
    """The arrays of a graph that the GPU kernels of one hop read; those that are missing are empty."""

    indptr: torch.Tensor
    indices: torch.Tensor
    times: torch.Tensor
    order: torch.Tensor
    earliest: torch.Tensor
    cumulative: torch.Tensor
    types: torch.Tensor


class OneHop(NamedTuple):
    """The arguments of one hop: the seeds whose in-edges are sampled, the fan-outs, keys and method."""

    seeds: torch.Tensor
    """Node ids, int32 or int64."""
    fanouts: torch.Tensor
    """One fan-out, or one per edge type."""
    keys: tuple[int, ...] | torch.Tensor
    """The key of the hop (`Key.at`) and, for LABOR, the key that follows it. For seeds of several mini-batches, a
    uint64 tensor with one key per seed; on the CPU only, and not for LABOR."""
    drawing: Drawing = Drawing()
    moments: SeedTimes | None = None
    """The times of the seeds, for temporal sampling."""
    by_page: bool = False
    """On the CPU, whether the graph is read in the order of its file, with read-ahead of its pages."""
    num_seeds: torch.Tensor | None = None
    """On a GPU, the number of valid seeds, if the CPU doesn't know it; the values after them are arbitrary."""
    trees: torch.Tensor | None = None
    """int64: for trees, the number of each seed's tree, which is part of its key. Not for LABOR."""
    most: int | None = None
    """On a GPU, the maximum number of edges, for which positions are allocated. None: edges are counted first, which
    synchronizes."""


def bound_edges(columns: Sequence[int], fanouts: Sequence[int]) -> int | None:
    """Return the maximum number of edges of a hop. None: all neighbours are sampled, or more than `bounded_edges`."""
    most = sum(map(int.__mul__, columns, fanouts))
    return most if min(fanouts) >= 0 and most <= current_limits().bounded_edges else None


def check_fanouts(fanouts: torch.Tensor, graph: Graph, replace: bool) -> None:
    """Raise unless a hop has one fan-out, or one per edge type, each -1 or more."""
    check_vector("fanouts", fanouts)
    if fanouts.numel() not in (1, max(graph.num_types, 1)):
        or_per_type = f", or {graph.num_types} (one per edge type)" if graph.num_types > 1 else ""
        raise ValueError(f"fanouts of a hop must hold 1 number{or_per_type}, but hold {fanouts.numel()}")
    counts = fanouts.tolist()
    if min(counts) < -1:
        raise ValueError(f"fanouts must be -1 (all neighbours) or more, but holds {min(counts)}")
    if replace and max(counts) > MOST_REPEATED:
        raise ValueError(f"fanouts must be at most {MOST_REPEATED} with replacement, but hold {max(counts)}")


def check_keys(hop: OneHop) -> None:
    """Raise unless the keys of a hop, or of each of its seeds, and the trees are valid."""
    given: Any = hop.keys
    check_drawing(hop.drawing)
    if hop.trees is not None:
        check_vector("trees", hop.trees, (torch.int64,))
        check_length("trees", hop.trees, hop.seeds.numel(), "seed")
    if isinstance(given, torch.Tensor):
        check_vector("keys", given, (torch.uint64,))
        check_length("keys", given, hop.seeds.numel(), "seed")
        if not hop.seeds.is_cpu or hop.drawing.method == "labor":
            raise ValueError("keys must be those of the hop on a GPU and for LABOR, not one per seed")
    elif isinstance(given, (list, tuple)) and given:
        check_hop_keys([given] if hop.drawing.method == "labor" else given[:1], hop.drawing)
    else:
        raise TypeError(f"keys must be those of the hop, in a tuple, but is {brief(given)}")


def check_drawing(drawing: Drawing) -> None:
    """Raise unless the fields of a drawing are valid."""
    if not isinstance(drawing, Drawing):
        raise TypeError(f"drawing must be a Drawing, but is {brief(drawing)}")
    for name, chosen, known in (("method", drawing.method, METHODS), ("rows", drawing.rows, ROW_KINDS)):
        if chosen not in known:
            raise ValueError(f"drawing.{name} must be one of {', '.join(known)}, but is {brief(chosen)}")
    for name, value in (("replace", drawing.replace), ("only_new", drawing.only_new)):
        if value not in (False, True):
            raise TypeError(f"drawing.{name} must be True or False, but is {brief(value)}")
    check_count("drawing.switch_threshold", drawing.switch_threshold, 0, MASK)


def check_hop_keys(keys: Sequence[Any], drawing: Drawing) -> None:
    """Raise unless each hop has a 64-bit key, or two for LABOR."""
    for own in keys:
        if drawing.method != "labor":
            check_count("keys", own, 0, MASK)
            continue
        if not isinstance(own, (list, tuple)):
            raise TypeError(f"keys must hold a pair per hop for LABOR, but hold {brief(own)}")
        if len(own) != 2:
            raise ValueError(f"each hop needs two keys, its own and the one that follows it, but one has {len(own)}")
        for key in own:
            check_count("keys", key, 0, MASK)


def check_latest(graph: Graph, drawing: Drawing) -> None:
    """Raise unless the method "latest" is used with times, and without weights and replacement."""
    if graph.by_column is None or graph.by_type is None:
        raise ValueError("the latest edges are selected by their times; give the times of edges, or sample uniformly")
    if drawing.replace:
        raise ValueError("the latest edges are selected without replacement; omit replace, or sample uniformly")
    if graph.by_column.cumulative is not None or graph.by_type.cumulative is not None:
        raise ValueError("the latest edges are selected regardless of their weights; omit the weights")


def check_moments(num_seeds: int, moments: SeedTimes) -> None:
    """Raise unless each seed has a time and, if there are windows, a window."""
    if not isinstance(moments, SeedTimes):
        raise TypeError(f"moments must be SeedTimes, but is {brief(moments)}")
    times, windows = moments
    check_vector("times", times, (torch.int64,))
    for name, values in (("times", times), ("windows", times if windows is None else windows)):
        check_length(name, values, num_seeds, "seed")
    if windows is not None:
        check_vector("windows", windows, (torch.int64,))
        if windows.numel() and not are_below(windows, LARGEST_WINDOW) and int(windows.min()) < 0:
            raise ValueError(f"windows must be 0 or more, but one is {int(windows.min())}")


def check_seeds_by_type(graph: Graph, seeds: Sequence[torch.Tensor]) -> None:
    """Raise unless there is a tensor of seeds for each node type. Passes and `check_ranges` check the ids."""
    if not isinstance(seeds, (list, tuple)):
        raise TypeError(f"seeds must be a list of tensors, one per node type, but is {brief(seeds)}")
    if len(seeds) != graph.num_node_types:
        raise ValueError(f"seeds must hold {graph.num_node_types} tensors, one per node type, but holds {len(seeds)}")
    for kind, part in enumerate(seeds):
        check_vector("seeds" if graph.types is None else f"seeds[{kind}]", part, (graph.indices.dtype,))


def check_ranges(graph: Graph, seeds: Sequence[torch.Tensor]) -> None:
    """Raise unless the seeds are valid ids of their node types."""
    for kind, (part, first, end) in enumerate(zip(seeds, graph.first_ids, graph.first_ids[1:], strict=False)):
        check_ids("seeds" if graph.types is None else f"seeds[{kind}]", part, end - first)


def pick_edges(graph: Graph, hop: OneHop) -> Picks:
    """Sample in-edges of each seed. Of the arguments, only the devices are checked here."""
    if hop.seeds.is_cpu and graph.indptr.is_cpu and graph.indices.is_cpu:
        return pick_on_cpu(graph, hop)
    columns = columns_of(graph, by_type=hop.fanouts.numel() > 1)
    fields = {f"graph.{name}": part for name, part in columns._asdict().items()}
    if hop.moments is not None:
        fields["times"] = hop.moments.times
    package_for("sampling.sample_neighbors", hop.seeds, **fields)
    return pick_on_gpu(columns, hop)


def columns_of(graph: Graph, *, by_type: bool) -> HopColumns:
    """Return the arrays that the GPU kernels of a hop read."""
    ranked = graph.ranked(by_type=by_type)
    if ranked is None:
        ranked = TimeOrder(cumulative=None if graph.sums is None else graph.sums.cumulative)
    times, earliest, sums = (
        NOTHING if part is None else part for part in (ranked.times, ranked.earliest, ranked.cumulative)
    )
    order = NO_ORDER if ranked.order is None else ranked.order.contiguous()
    types = NO_TYPES if graph.types is None else graph.types
    return HopColumns(graph.indptr, graph.indices, times, order, earliest, sums, types)


def pick_on_gpu(columns: HopColumns, hop: OneHop) -> Picks:
    """Sample in-edges with GPU kernels. Synchronizes once, unless `hop.most` bounds the number of edges."""
    seeds, moments = hop.seeds.contiguous(), SeedTimes(NOTHING, NOTHING)
    module = kernels("sampling.sample_neighbors", seeds)
    if hop.moments is not None:
        times, windows = hop.moments
        moments = SeedTimes(times.contiguous(), NOTHING if windows is None else windows.contiguous())
    trees = None if hop.trees is None else hop.trees.contiguous()
    wanted = hop._replace(seeds=seeds, fanouts=hop.fanouts.to("cpu", torch.int64), moments=moments, trees=trees)
    offsets = buffers.empty(seeds.numel() + 1, torch.int64, seeds.device)
    module.count_neighbors(columns, wanted, offsets)
    # With a bound, `positions` begins with the actual picks; the rest is unused.
    room = int(offsets[-1]) if hop.most is None else hop.most
    picks = Picks(offsets, buffers.empty(room, torch.int64, seeds.device))
    fill = module.fill_labor_neighbors if hop.drawing.method == "labor" else module.fill_neighbors
    fill(columns, wanted, *picks)
    return picks


def pick_on_cpu(graph: Graph, hop: OneHop) -> Picks:
    """Sample in-edges with the same passes as all hops of a mini-batch."""
    wanted, (times, windows) = hop.fanouts.tolist(), hop.moments or (None, None)
    recipe = recipe_of(graph, hop.seeds.dtype, hop.drawing, [wanted], windows=windows is not None, by_page=hop.by_page)
    program = PROGRAMS.acquire(recipe)
    arrays = program.arrays
    by_seed = hop.keys if isinstance(hop.keys, torch.Tensor) else NO_KEYS
    key = hop.keys if hop.drawing.method == "labor" else 0 if hop.keys is by_seed else hop.keys[0]
    arrays.bind(graph, [key], hop.drawing.switch_threshold, [wanted])
    # The program only has their addresses, so keep them alive until it has run.
    seeds = hop.seeds.contiguous()
    moments = [NOTHING if part is None else part.contiguous() for part in (times, windows)]
    room = seeds.numel() * sum(wanted) if min(wanted) >= 0 else 0
    arrays.open_one(seeds, graph.num_nodes, moments, room if room <= FEW_PICKS else 0)
    by_seed, trees = by_seed.contiguous(), NOTHING if hop.trees is None else hop.trees.contiguous()
    arrays.columns.set_borrowed("keys", by_seed)
    arrays.table.set_borrowed("trees", trees)
    program.run()
    found = arrays.columns.arrays
    offsets = found["offsets"][: found["sizes"][state.COUNT] + 1].copy()
    positions = arrays.picks.arrays["positions"][: offsets[-1]]
    PROGRAMS.release(program)
    return Picks(torch.from_numpy(offsets), torch.from_numpy(positions))
