"""Kernels of one hop, including LABOR: count the picks of each column, and write their positions.

A graph without times is a `TemporalGraph` with empty times.
"""

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, constants, launch
from graphfeed.ops.cuda.structure.running_sum import add_up, filled
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK


def count_neighbors(graph, hop, offsets):
    """Write the running sums of the columns' numbers of picks to `offsets`, shape (num_seeds + 1,)."""
    columns, replace = _columns(hop), hop.drawing.replace
    if _has_late(graph, hop):
        _count_late(graph, hop, replace, offsets)
    elif _is_plain(graph, hop):
        launch("count_plain_neighbors", max(columns[1], 1), graph.indptr, *columns, int(hop.fanouts), replace, offsets)
    else:
        threads = max(columns[1], 1) * (WARP_SIZE if graph.cumulative.numel() else 1)
        launch("count_neighbors", threads, *_graph(graph, hop), *_range(graph, hop), *columns, replace, offsets)
    add_up(offsets)


def fill_neighbors(graph, hop, offsets, positions):
    """Write the sampled edges of each column, beginning at `offsets[column]`, with edge types in ascending order."""
    columns, replace, key = _columns(hop), hop.drawing.replace, hop.keys[0]
    if _is_plain(graph, hop):
        given = graph.indptr, *columns, int(hop.fanouts), replace, key, hop.trees
        launch("fill_plain_neighbors", columns[1], *given, offsets, positions)
        return
    graph, found = _gather_late(graph, hop)
    fanouts, table = hop.fanouts.tolist(), None
    # Hash tables of the columns' picks, with two slots per pick; none for small fan-outs.
    if max(fanouts) > MAX_LOOK_BACK:
        table = filled(2 * positions.numel(), -1, torch.int64, positions.device)
    # Some columns may be read completely, to find edges with a weight, or to select all edges of a type.
    walks = graph.cumulative.numel() > 0 or min(fanouts) == -1
    given = *_graph(graph, hop), *_range(graph, hop), *columns, found, graph.order
    asked = replace, hop.drawing.method == "latest", walks, key, hop.trees
    launch("fill_neighbors", columns[1], *given, *asked, offsets, table, positions)


def fill_labor_neighbors(graph, hop, offsets, positions):
    """Like `fill_neighbors`, for LABOR: select the edges with the smallest variates."""
    graph, found = _gather_late(graph, hop)
    columns = _columns(hop)
    scratch = [buffers.empty(positions.numel(), positions, positions.device) for _ in range(2)]
    given = *_graph(graph, hop), *_range(graph, hop), *columns, found, graph.order, graph.indices
    variates = *hop.keys, hop.drawing.switch_threshold
    launch(
        "fill_labor_neighbors", WARP_SIZE * columns[1],
        *given, hop.drawing.replace, *variates, offsets, *scratch, positions,
    )  # fmt: skip


def _is_plain(graph, hop):
    """Return whether the hop is of the most common kind, which has specialized kernels with fewer registers."""
    simple = hop.fanouts.numel() == 1 and 0 <= int(hop.fanouts) <= MAX_LOOK_BACK and hop.drawing.method != "latest"
    return simple and not graph.cumulative.numel() and not hop.moments.times.numel()


# The fields of the structs `Graph`, `TimeRange` and `Columns` of the device code.
def _graph(graph, hop):
    # A table of fan-outs, unless there is only one.
    if hop.fanouts.numel() > 1:
        return graph.indptr, graph.cumulative, graph.types, constants(tuple(hop.fanouts.tolist()), hop.seeds.device), 0
    return graph.indptr, graph.cumulative, graph.types, None, int(hop.fanouts)


def _range(graph, hop):
    return graph.times, hop.moments.windows, hop.moments.times


def _columns(hop):
    return hop.seeds, hop.seeds.numel(), hop.num_seeds


def _has_late(graph, hop):
    """Return whether edges have second times that windows may exclude."""
    return graph.earliest.numel() > 0 and hop.moments.windows.numel() > 0


def _count_late(graph, hop, replace, offsets):
    """Write the number of picks of each column for edges with second times; return the number of eligible edges."""
    # Both have an additional first value, 0.
    eligible_offsets = torch.empty_like(offsets)
    given = *_graph(graph, hop), *_range(graph, hop), *_columns(hop), graph.earliest, replace
    launch("count_late_neighbors", WARP_SIZE * max(hop.seeds.numel(), 1), *given, offsets, eligible_offsets)
    return eligible_offsets


def _gather_late(graph, hop):
    """Return the graph and None, or a copy of the edges whose second time is eligible and their positions in it."""
    if not _has_late(graph, hop):
        return graph, None
    seeds, device = hop.seeds, hop.seeds.device
    offsets = torch.empty(seeds.numel() + 1, dtype=torch.int64, device=device)
    offsets = _count_late(graph, hop, False, offsets).cumsum_(0)
    # Synchronizes to read the number of edges.
    size = int(offsets[-1])
    # Never empty: with a null pointer, the kernel would treat the columns of the copy as those of the graph.
    found = torch.empty(max(size, 1), dtype=torch.int64, device=device)
    sums = torch.empty(size if graph.cumulative.numel() else 0, dtype=torch.int64, device=device)
    kinds = torch.empty(size if hop.fanouts.numel() > 1 else 0, dtype=graph.types.dtype, device=device)
    given = *_graph(graph, hop), *_range(graph, hop), *_columns(hop), graph.earliest, graph.order
    launch("gather_late_neighbors", WARP_SIZE * seeds.numel(), *given, offsets, found, sums, kinds)
    # The columns of the copy are the seeds.
    return graph._replace(indptr=offsets, times=found[:0], cumulative=sums, types=kinds), found
