"""Kernel of all hops in time on a graph with types, in one call without the interpreter lock.

With one fan-out for all edge types, the eligible edges of a column are one run of ranks: columns are reduced to it, and
sampled as those without times are. Otherwise each column is searched segment by segment, as for a single hop.
"""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.sampling.edge_types import sort_picks
from graphfeed.ops.cpu.sampling.sample_hops import read_neighbors
from graphfeed.ops.cpu.sampling.temporal_eligibility import (
    inherit,
    place_ranks,
    repeat_rows,
    restrict_runs,
    window_start,
)
from graphfeed.ops.cpu.sampling.temporal_sample_hops import take_latest
from graphfeed.ops.cpu.sampling.temporal_sample_neighbors import count_in_time, fill_ranks
from graphfeed.ops.cpu.sampling.typed_sample_hops import (
    count_typed_hop,
    fill_typed_hop,
    open_typed_columns,
    split_typed_hop,
)


@device_function
def open_timed_columns(indptr, first_ids, hop, out):
    """Do as `open_typed_columns`, and read the time and the window of each column."""
    column_starts, room = open_typed_columns(indptr, first_ids, hop, out)
    for kind in range(first_ids.size - 1 if room else 0):
        first, low, high = out.firsts[kind], column_starts[kind], column_starts[kind + 1]
        for column in range(low, high):
            out.limits[column] = out.times[first + column - low]
        for column in range(low, high if out.windows.size > 0 else low):
            out.window_starts[column] = window_start(out.limits[column], out.windows[first + column - low])
    if room:
        for column in range(column_starts[first_ids.size - 1]):
            out.bases[column] = out.starts[column]
    return column_starts, room


@device_function
def own_windows(columns, out):
    """Return the first time inside of the window of each column; empty without windows."""
    return out.window_starts[: columns if out.windows.size > 0 else 0]


@device_function
def is_one_run(earliest, fanouts, out):
    """Tell whether the eligible edges of each column are one run, of which one fan-out takes some."""
    return fanouts.size == 1 and (earliest.size == 0 or out.windows.size == 0)


@device_function
def count_timed_hop(indptr, types, times, earliest, cumulative, fanouts, replace, columns, out):
    """Write the running count of the columns' picks; return whether there is room for them."""
    firsts, limits = own_windows(columns, out), out.limits[:columns]
    if is_one_run(earliest, fanouts, out):
        if times.size > 0:
            restrict_runs(times, firsts, limits, out.starts[:columns], out.degrees[:columns])
        return count_typed_hop(types, cumulative, fanouts, replace, columns, out)
    ids, offsets = out.ids[:columns], out.offsets[: columns + 1]
    count_in_time(indptr, times, earliest, cumulative, types, ids, firsts, limits, fanouts, replace, offsets)
    out.needs[1] = offsets[columns]
    return out.picks.size >= offsets[columns]


@device_function
def finish_timed_hop(graph, kinds, order, links, column_starts, hop, out):
    """Split the picks of a hop, which are ranks, by edge type, and give each edge a row; return False without room."""
    indices, types, edge_times = graph
    columns = column_starts[column_starts.size - 1]
    offsets = out.offsets[: columns + 1]
    picks = out.picks[: offsets[columns]]
    place_ranks(order, links, out.bases, offsets, picks)
    sort_picks(offsets, picks)
    if not split_typed_hop(types, kinds, column_starts, False, hop, out):
        return False
    append_typed_rows(indices, edge_times, kinds, hop, out)
    return True


@device_function
def append_typed_rows(indices, edge_times, kinds, hop, out):
    """Append a row for each edge of a hop to those of its source's node type, each edge type by itself."""
    first_ids, sources, destinations, order = kinds
    out.known[hop + 1] = out.known[hop]
    for edge_type in order:
        part = slice(out.edge_starts[hop, edge_type], out.edge_starts[hop, edge_type + 1])
        positions, neighbors = out.positions[part], out.neighbors[part]
        if positions.size == 0:
            continue
        source, destination = sources[edge_type], destinations[edge_type]
        known, count = out.known[hop + 1, source], out.known[hop, destination]
        begin = out.indptr_starts[hop, edge_type]
        repeat_rows(out.indptr[begin : begin + count + 1], neighbors)
        own = slice(out.firsts[source] + known, out.firsts[source] + known + positions.size)
        columns = slice(out.firsts[destination], out.firsts[destination] + count)
        if out.windows.size > 0:
            inherit(out.windows[columns], neighbors, out.windows[own])
        if edge_times.size > 0:
            read_neighbors(edge_times, positions, out.times[own])
        else:
            inherit(out.times[columns], neighbors, out.times[own])
        nodes, first_id = out.nodes[own], first_ids[source]
        read_neighbors(indices, positions, nodes)
        for edge in range(positions.size):
            nodes[np.uintp(edge)] -= first_id
            neighbors[np.uintp(edge)] = known + edge
        out.known[hop + 1, source] = known + positions.size


@kernel
def typed_temporal_sample_hops(
    graph, kinds, fanouts, by_type, replace, timed, edge_times, latest, keys, table, hop, out
):  # fmt: skip
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `typed_sample_hops`).

    Args:
        graph: `indptr`, `indices`, `types`, and no weights: this, `kinds` and `fanouts` are as there.
        kinds: Of node types and edge types.
        fanouts: One number per hop and edge type.
        by_type: Of each hop, whether each edge type has its own fan-out.
        replace: Whether an edge may be chosen more than once.
        timed: `times`, `order`, `links`, `earliest` and `cumulative` of `TemporalGraph`: for hops with one fan-out, and
            for those with one per edge type.
        edge_times: As `TemporalGraph` has them.
        latest: Whether to take the latest edges instead of random ones.
        keys: One per hop.
        table: Scratch for large fan-outs (see `pick_many`).
        hop: The hop to begin with.
        out: The arrays of `TypedHopArrays`.
    """
    indptr, indices, types, _ = graph
    while hop < keys.size:
        own = fanouts[hop] if by_type[hop] else fanouts[hop][:1]
        times, order, links, earliest, cumulative = timed[1] if by_type[hop] else timed[0]
        column_starts, room = open_timed_columns(indptr, kinds[0], hop, out)
        columns = column_starts[column_starts.size - 1]
        if not (room and count_timed_hop(indptr, types, times, earliest, cumulative, own, replace, columns, out)):
            return hop
        offsets = out.offsets[: columns + 1]
        if not is_one_run(earliest, own, out):
            ids, firsts, limits = out.ids[:columns], own_windows(columns, out), out.limits[:columns]
            fill_ranks(
                indptr, times, earliest, cumulative, types, ids, firsts, limits, own, replace, latest, keys[hop],
                offsets, table, out.picks,
            )  # fmt: skip
        elif latest:
            take_latest(out.starts, out.degrees, offsets, out.picks)
        else:
            fill_typed_hop(types, cumulative, own, replace, keys[hop], table, columns, out)
        if not finish_timed_hop((indices, types, edge_times), kinds, order, links, column_starts, hop, out):
            return hop
        hop += 1
    return hop
