"""Kernels of one hop: count the picks of each column, fill in their positions; LABOR, too.

A graph without times comes as a `TemporalGraph` whose times are empty. Windows are given as the first time inside of
each.
"""

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch, upload
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK


def count_neighbors(graph, hop, offsets):
    """Write the running sum of the columns' picks to `offsets` (one longer than the seeds)."""
    columns, replace = _columns(hop), hop.drawing.replace
    if _has_late(graph, hop):
        _count_late(graph, hop, replace, offsets)
    elif _is_plain(graph, hop):
        launch("count_plain_neighbors", max(columns[1], 1), graph.indptr, *columns, int(hop.fanouts), replace, offsets)
    else:
        threads = max(columns[1], 1) * (WARP_SIZE if graph.cumulative.numel() else 1)
        launch("count_neighbors", threads, *_graph(graph, hop), *_range(graph, hop), *columns, replace, offsets)
    offsets.cumsum_(0)


def fill_neighbors(graph, hop, offsets, positions):
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    columns, replace, key = _columns(hop), hop.drawing.replace, hop.keys[0]
    if _is_plain(graph, hop):
        given = graph.indptr, *columns, int(hop.fanouts), replace, key, hop.trees
        launch("fill_plain_neighbors", columns[1], *given, offsets, positions)
        return
    graph, found = _gather_late(graph, hop)
    fanouts, table = hop.fanouts.tolist(), None
    # Two slots per pick, as hash tables of the columns' picks; none if fan-outs are small.
    if max(fanouts) > MAX_LOOK_BACK:
        table = torch.full((2 * positions.numel(),), -1, dtype=torch.int64, device=positions.device)
    # Some columns may be read whole: to find the edges that have a weight, or to take all of a type.
    walks = graph.cumulative.numel() > 0 or min(fanouts) == -1
    given = *_graph(graph, hop), *_range(graph, hop), *columns, found, graph.order
    asked = replace, hop.drawing.method == "latest", walks, key, hop.trees
    launch("fill_neighbors", columns[1], *given, *asked, offsets, table, positions)


def fill_labor_neighbors(graph, hop, offsets, positions):
    """Write as `fill_neighbors` the edges of the smallest variates, which the columns share."""
    graph, found = _gather_late(graph, hop)
    columns, scratch = _columns(hop), (torch.empty_like(positions), torch.empty_like(positions))
    given = *_graph(graph, hop), *_range(graph, hop), *columns, found, graph.order, graph.indices
    variates = *hop.keys, hop.drawing.switch_threshold
    launch(
        "fill_labor_neighbors", WARP_SIZE * columns[1],
        *given, hop.drawing.replace, *variates, offsets, *scratch, positions,
    )  # fmt: skip


def _is_plain(graph, hop):
    """Tell whether picks are of the most common kind, which have kernels of their own, with fewer registers."""
    simple = hop.fanouts.numel() == 1 and 0 <= int(hop.fanouts) <= MAX_LOOK_BACK and hop.drawing.method != "latest"
    return simple and not graph.cumulative.numel() and not hop.moments.times.numel()


# What the structs of the device code hold, which have these names.
def _graph(graph, hop):
    # A table of the fan-outs; a single number needs none.
    table, one = (upload(hop.fanouts, hop.seeds.device), 0) if hop.fanouts.numel() > 1 else (None, int(hop.fanouts))
    return graph.indptr, graph.cumulative, graph.types, table, one


def _range(graph, hop):
    return graph.times, hop.moments.windows, hop.moments.times


def _columns(hop):
    return hop.seeds, hop.seeds.numel(), hop.num_seeds


def _has_late(graph, hop):
    """Tell whether edges have a second time, which a window may exclude."""
    return graph.earliest.numel() > 0 and hop.moments.windows.numel() > 0


def _count_late(graph, hop, replace, offsets):
    """Write how many edges are picked of each column where edges have a second time; return how many may be."""
    # Both have a place more: the first, for none.
    eligible_offsets = torch.empty_like(offsets)
    given = *_graph(graph, hop), *_range(graph, hop), *_columns(hop), graph.earliest, replace
    launch("count_late_neighbors", WARP_SIZE * max(hop.seeds.numel(), 1), *given, offsets, eligible_offsets)
    return eligible_offsets


def _gather_late(graph, hop):
    """Return the graph, or a copy of the edges whose second time is not too early; and where these are in it."""
    if not _has_late(graph, hop):
        return graph, None
    seeds, device = hop.seeds, hop.seeds.device
    offsets = torch.empty(seeds.numel() + 1, dtype=torch.int64, device=device)
    offsets = _count_late(graph, hop, False, offsets).cumsum_(0)
    # Waits for the device, to learn how many edges there are.
    size = int(offsets[-1])
    # Never empty: a kernel without an address of it would take the columns of the copy for those of the graph.
    found = torch.empty(max(size, 1), dtype=torch.int64, device=device)
    sums = torch.empty(size if graph.cumulative.numel() else 0, dtype=torch.int64, device=device)
    kinds = torch.empty(size if hop.fanouts.numel() > 1 else 0, dtype=graph.types.dtype, device=device)
    given = *_graph(graph, hop), *_range(graph, hop), *_columns(hop), graph.earliest, graph.order
    launch("gather_late_neighbors", WARP_SIZE * seeds.numel(), *given, offsets, found, sums, kinds)
    # The columns of the copy are the seeds.
    return graph._replace(indptr=offsets, times=found[:0], cumulative=sums, types=kinds), found
