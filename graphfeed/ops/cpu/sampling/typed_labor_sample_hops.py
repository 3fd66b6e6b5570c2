"""Kernel of all hops of LABOR on a graph with types, in one call without the interpreter lock."""

from graphfeed.ops.cpu.jit import device_function, kernel, without_refcount
from graphfeed.ops.cpu.sampling.bottom_k import COLUMNS_AHEAD, prefetch_column
from graphfeed.ops.cpu.sampling.labor_sample_neighbors import new_scratch, pick_labor, uncounted
from graphfeed.ops.cpu.sampling.pick import count_picks, read_segment
from graphfeed.ops.cpu.sampling.typed_sample_hops import (
    count_typed_hop,
    enter_typed_seeds,
    open_typed_columns,
    relabel_typed_hop,
    reset_typed_map,
    split_typed_hop,
)


@device_function
def fill_typed_labor(graph, fanouts, replace, draws, offsets, scratch, out):
    """Write the sampled edges of each column, in ascending order; the caller keeps the arrays, so that none is counted.

    Args:
        graph: `indptr`, `indices`, `types` and `cumulative`.
        fanouts: One number, or one per edge type.
        replace: Whether an edge may be chosen more than once.
        draws: The two keys and the switch threshold.
        offsets: Where each column's picks start.
        scratch: As `new_scratch` makes it.
        out: The arrays of `TypedHopArrays`.
    """
    _, indices, types, cumulative = graph
    indices, types, cumulative = without_refcount(indices), without_refcount(types), without_refcount(cumulative)
    picks, fanouts, scratch = without_refcount(out.picks), without_refcount(fanouts), uncounted(scratch)
    starts, degrees, last = without_refcount(out.starts), without_refcount(out.degrees), offsets.size - 2
    for column in range(last + 1):
        coming = min(column + COLUMNS_AHEAD, last)
        prefetch_column(indices, starts[coming], degrees[coming])
        at, until, start = offsets[column], offsets[column + 1], starts[column]
        low, end = start, start + degrees[column]
        while at < until:
            high, before, fanout = read_segment(types, cumulative, fanouts, start, low, end)
            count = count_picks(cumulative, low, high, before, fanout, replace) if fanouts.size > 1 else until - at
            if count > 0:
                places = picks[at : at + count]
                pick_labor(indices, cumulative, low, high, before, replace, fanout, draws, scratch, places)
            at, low = at + count, high


@kernel
def typed_labor_sample_hops(graph, kinds, fanouts, by_type, replace, keys, switch_threshold, node_map, hop, out):
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `typed_sample_hops`).

    Args:
        graph: `indptr`, `indices`, `types` and `cumulative`.
        kinds: This, `fanouts`, `by_type` and `replace` are as there.
        fanouts: One number per hop and edge type.
        by_type: Of each hop, whether each edge type has its own fan-out.
        replace: Whether an edge may be chosen more than once.
        keys: Two per hop.
        switch_threshold: Which part of the nodes draws by the second key.
        node_map: The position of each known node, -1 elsewhere; reset after the last hop.
        hop: The hop to begin with.
        out: The arrays of `TypedHopArrays`.
    """
    indptr, indices, types, cumulative = graph
    enter_typed_seeds(node_map, kinds[0], hop, out)
    while hop < fanouts.shape[0]:
        own = fanouts[hop] if by_type[hop] else fanouts[hop][:1]
        column_starts, room = open_typed_columns(indptr, kinds[0], hop, out)
        columns = column_starts[column_starts.size - 1]
        if not (room and count_typed_hop(types, cumulative, own, replace, columns, out)):
            return hop
        offsets = out.offsets[: columns + 1]
        draws = keys[hop, 0], keys[hop, 1], switch_threshold
        fill_typed_labor(graph, own, replace, draws, offsets, new_scratch(offsets), out)
        if not split_typed_hop(types, kinds, column_starts, True, hop, out):
            return hop
        relabel_typed_hop(indices, kinds, node_map, hop, out)
        hop += 1
    reset_typed_map(node_map, kinds[0], hop, out)
    return hop
