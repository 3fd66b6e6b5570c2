"""Kernel of all hops of temporal LABOR on a graph with types, in one call without the interpreter lock."""

from graphfeed.ops.cpu.jit import kernel
from graphfeed.ops.cpu.sampling.temporal_labor_sample_hops import fill_runs
from graphfeed.ops.cpu.sampling.temporal_labor_sample_neighbors import fill_labor_ranks
from graphfeed.ops.cpu.sampling.typed_temporal_sample_hops import (
    count_timed_hop,
    finish_timed_hop,
    is_one_run,
    open_timed_columns,
    own_windows,
)


@kernel
def typed_temporal_labor_sample_hops(
    graph, kinds, fanouts, by_type, replace, timed, edge_times, keys, switch_threshold, hop, out
):  # fmt: skip
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `typed_temporal_sample_hops`).

    Args:
        graph: This, `kinds`, `fanouts`, `by_type`, `replace`, `timed` and `edge_times` are as there.
        kinds: Of node types and edge types.
        fanouts: One number per hop and edge type.
        by_type: Of each hop, whether each edge type has its own fan-out.
        replace: Whether an edge may be chosen more than once.
        timed: What is by rank, for hops with one fan-out and for those with one per edge type.
        edge_times: The time at which the next hop queries each edge's source, or empty.
        keys: Two per hop.
        switch_threshold: Which part of the nodes draws by the second key.
        hop: The hop to begin with.
        out: The arrays of `TypedHopArrays`.
    """
    indptr, indices, types, _ = graph
    while hop < fanouts.shape[0]:
        own = fanouts[hop] if by_type[hop] else fanouts[hop][:1]
        times, order, links, earliest, cumulative = timed[1] if by_type[hop] else timed[0]
        column_starts, room = open_timed_columns(indptr, kinds[0], hop, out)
        columns = column_starts[column_starts.size - 1]
        if not (room and count_timed_hop(indptr, types, times, earliest, cumulative, own, replace, columns, out)):
            return hop
        offsets, draws = out.offsets[: columns + 1], (keys[hop, 0], keys[hop, 1], switch_threshold)
        if is_one_run(earliest, own, out):
            runs = out.bases, out.starts, out.degrees
            fill_runs(indices, order, links, cumulative, own[0], replace, draws, offsets, runs, out.picks)
        else:
            ids, firsts, limits = out.ids[:columns], own_windows(columns, out), out.limits[:columns]
            fill_labor_ranks(
                indptr, times, earliest, cumulative, types, indices, order, links, ids, firsts, limits, own, replace,
                draws, offsets, out.picks,
            )  # fmt: skip
        if not finish_timed_hop((indices, types, edge_times), kinds, order, links, column_starts, hop, out):
            return hop
        hop += 1
    return hop
