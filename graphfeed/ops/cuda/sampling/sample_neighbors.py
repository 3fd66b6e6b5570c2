"""Kernels of one hop: count the picks of each column, fill in their positions; LABOR, too.

A graph without times comes as a `TemporalGraph` whose times are empty. Windows are given as the first time inside of
each.
"""

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch, upload
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK


def count_neighbors(graph, hop, offsets):
    """Write the running sum of the columns' picks to `offsets` (one longer than the seeds)."""
    indptr, weights, types = graph.indptr, graph.cumulative, graph.types
    if _has_late(graph, hop):
        _count_late(graph, hop, hop.drawing.replace, offsets)
    elif _is_plain(graph, hop):
        launch("count_plain_neighbors", max(hop.seeds.numel(), 1), *_plain(graph, hop), offsets)
    else:
        launch(
            "count_neighbors", max(hop.seeds.numel(), 1) * (WARP_SIZE if weights.numel() else 1),
            indptr, indptr.itemsize, weights, types, types.itemsize, graph.times, *_asked(hop),
            *_fanout_arguments(hop), hop.drawing.replace, hop.seeds.numel(),
            hop.num_seeds, offsets,
        )  # fmt: skip
    offsets.cumsum_(0)


def fill_neighbors(graph, hop, offsets, positions):
    """Write the sampled edges of each column from `offsets[column]` on, a column's edge types in ascending order."""
    if _is_plain(graph, hop):
        launch("fill_plain_neighbors", hop.seeds.numel(), *_plain(graph, hop), hop.keys[0], offsets, positions)
        return
    graph, found = _gather_late(graph, hop)
    indptr, weights, types, order = graph.indptr, graph.cumulative, graph.types, graph.order
    fanouts, table = hop.fanouts.tolist(), None
    # Two slots per pick, as hash tables of the columns' picks; none if fan-outs are small.
    if max(fanouts) > MAX_LOOK_BACK:
        table = torch.full((2 * positions.numel(),), -1, dtype=torch.int64, device=positions.device)
    # Some columns may be read whole: to find the edges that have a weight, or to take all of a type.
    walks = weights.numel() > 0 or min(fanouts) == -1
    launch(
        "fill_neighbors", hop.seeds.numel(),
        indptr, indptr.itemsize, weights, types, types.itemsize, graph.times, order, order.itemsize, found,
        *_asked(hop), *_fanout_arguments(hop), hop.drawing.replace,
        hop.drawing.method == "latest", walks, hop.keys[0], hop.seeds.numel(),
        hop.num_seeds, offsets, table, positions,
    )  # fmt: skip


def fill_labor_neighbors(graph, hop, offsets, positions):
    """Write as `fill_neighbors` the edges of the smallest variates, which the columns share."""
    graph, found = _gather_late(graph, hop)
    indptr, indices, weights, types, order = graph.indptr, graph.indices, graph.cumulative, graph.types, graph.order
    launch(
        "fill_labor_neighbors", WARP_SIZE * hop.seeds.numel(),
        indptr, indptr.itemsize, indices, indices.itemsize, weights, types, types.itemsize, graph.times, order,
        order.itemsize, found, *_asked(hop), *_fanout_arguments(hop), hop.drawing.replace,
        *hop.keys, hop.drawing.switch_threshold, hop.seeds.numel(),
        hop.num_seeds, offsets, torch.empty_like(positions), torch.empty_like(positions), positions,
    )  # fmt: skip


def _is_plain(graph, hop):
    """Tell whether picks are of the most common kind, which have kernels of their own, with fewer registers."""
    simple = hop.fanouts.numel() == 1 and 0 <= int(hop.fanouts) <= MAX_LOOK_BACK and hop.drawing.method != "latest"
    return simple and not graph.cumulative.numel() and not hop.moments.times.numel()


def _plain(graph, hop):
    starts, seeds, asked = graph.indptr, hop.seeds, (int(hop.fanouts), hop.drawing.replace)
    return starts, starts.itemsize, seeds, seeds.itemsize, *asked, seeds.numel(), hop.num_seeds


def _asked(hop):
    return hop.seeds, hop.seeds.itemsize, hop.moments.windows, hop.moments.times


def _fanout_arguments(hop):
    if hop.fanouts.numel() == 1:
        return None, int(hop.fanouts)
    # A table for the kernels; a single number needs none.
    return upload(hop.fanouts, hop.seeds.device), 0


def _has_late(graph, hop):
    """Tell whether edges have a second time, which a window may exclude."""
    return graph.earliest.numel() > 0 and hop.moments.windows.numel() > 0


def _count_late(graph, hop, replace, offsets):
    """Write how many edges are picked of each column where edges have a second time; return how many may be."""
    # Both have a place more: the first, for none.
    indptr, types, eligible_offsets = graph.indptr, graph.types, torch.empty_like(offsets)
    launch(
        "count_late_neighbors", WARP_SIZE * max(hop.seeds.numel(), 1),
        indptr, indptr.itemsize, graph.times, graph.earliest, graph.cumulative, types, types.itemsize, *_asked(hop),
        *_fanout_arguments(hop), replace, hop.seeds.numel(), hop.num_seeds, offsets, eligible_offsets,
    )  # fmt: skip
    return eligible_offsets


def _gather_late(graph, hop):
    """Return the graph, or a copy of the edges whose second time is not too early; and where these are in it."""
    if not _has_late(graph, hop):
        return graph, None
    indptr, types, order, seeds, device = graph.indptr, graph.types, graph.order, hop.seeds, hop.seeds.device
    offsets = torch.empty(seeds.numel() + 1, dtype=torch.int64, device=device)
    offsets = _count_late(graph, hop, False, offsets).cumsum_(0)
    # Waits for the device, to learn how many edges there are.
    size = int(offsets[-1])
    # Never empty: a kernel without an address of it would take the columns of the copy for those of the graph.
    found = torch.empty(max(size, 1), dtype=torch.int64, device=device)
    sums = torch.empty(size if graph.cumulative.numel() else 0, dtype=torch.int64, device=device)
    kinds = torch.empty(size if hop.fanouts.numel() > 1 else 0, dtype=types.dtype, device=device)
    launch(
        "gather_late_neighbors", WARP_SIZE * seeds.numel(),
        indptr, indptr.itemsize, graph.times, graph.earliest, graph.cumulative, types, types.itemsize, order,
        order.itemsize, *_asked(hop), _fanout_arguments(hop)[0], seeds.numel(), hop.num_seeds, offsets, found,
        sums, kinds,
    )  # fmt: skip
    # The columns of the copy are the seeds.
    return graph._replace(indptr=offsets, times=found[:0], cumulative=sums, types=kinds), found
