"""Passes that open the columns of a hop: they find their edges, and initialize the states of their draws."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Int64s, UInt64s, device_function, kernel, prefetch
from graphfeed.ops.cpu.random import node_state, time_state, tree_key, type_state
from graphfeed.ops.cpu.sampling.passes.state import (
    COUNT,
    EDITED,
    FIRST_NEW,
    NEEDED,
    SHORT,
    Indptr,
    Moments,
    NodeIds,
    NodeMap,
    Relations,
    RowBlock,
    RowTable,
    Runs,
    TypePerEdge,
)
from graphfeed.ops.cpu.search import near_end, run_end


@kernel
def check_seed_ranges(rows: RowBlock, nodes: NodeIds) -> int:
    """Return EDITED if a seed is not a node of its type."""
    outside = np.int64(0)
    for kind in range(rows.firsts.size - 1):
        own, last = nodes.rows[rows.firsts[kind] :], rows.first_ids[kind + 1] - rows.first_ids[kind] - 1
        for row in range(rows.known[0, kind]):
            node = np.int64(own[np.uintp(row)])
            outside |= node | (last - node)
    return EDITED if outside < 0 else 0


@kernel
def mark_rows(hop: int, enter: bool, rows: RowBlock, nodes: NodeIds, node_map: NodeMap) -> None:
    """Write the index of each row, or -1, to the map: one random write per row, prefetched."""
    for kind in range(rows.firsts.size - 1):
        own, places = nodes.rows[rows.firsts[kind] :], node_map.places[rows.first_ids[kind] :]
        # Backwards, so that the first of duplicate seeds is written last.
        for row in range(rows.known[hop, kind] - 1, -1, -1):
            prefetch(places, own[np.uintp(max(row - AHEAD, 0))])
            places[np.uintp(own[np.uintp(row)])] = row if enter else -1


@kernel
def open_columns(
    hop: int, graph: Indptr, fanouts: Int64s, keep: bool, only_new: bool, rows: RowBlock, nodes: NodeIds, columns: Runs
) -> int:
    """Read the start and the degree of each row's column: one random read per row, prefetched."""
    indptr, kinds, bounds = graph.indptr, rows.firsts.size - 1, columns.bounds
    # Later passes read these edges. A program may have edited `indptr` since the graph was checked, also through a
    # NumPy array that shares its memory, so it is compared with the number of edges here.
    num_edges, outside = graph.num_edges[0], np.int64(0)
    bounds[0] = 0
    for kind in range(kinds):
        bounds[kind + 1] = bounds[kind] + rows.known[hop, kind]
    count = bounds[kinds]
    if columns.starts.size < count:
        columns.sizes[NEEDED] = count
        return SHORT
    columns.sizes[COUNT], columns.sizes[FIRST_NEW], columns.fanouts[0] = count, 0, fanouts[0]
    for kind in range(kinds):
        own, first_id, last = nodes.rows[rows.firsts[kind] :], rows.first_ids[kind], rows.known[hop, kind] - 1
        known = rows.known[hop - 1, kind] if hop > 0 else np.int64(0)
        if only_new:
            columns.degrees[bounds[kind] : bounds[kind] + known] = 0
        # With one node type, the columns of the previous hop are kept; with `only_new` they no longer have edges.
        if keep:
            columns.sizes[FIRST_NEW] = known
        elif only_new:
            columns.bases[bounds[kind] : bounds[kind] + known] = columns.starts[bounds[kind] : bounds[kind] + known] = 0
        for row in range(known if keep or only_new else 0, last + 1):
            prefetch(indptr, first_id + own[np.uintp(min(row + AHEAD, last))])
            node, column = first_id + np.int64(own[np.uintp(row)]), np.uintp(bounds[kind] + row)
            start, end = indptr[np.uintp(node)], indptr[np.uintp(node + 1)]
            # One term is negative unless 0 <= start <= end <= num_edges. If start, end >= 0, no difference overflows.
            outside |= start | end | (end - start) | (num_edges - end)
            columns.ids[column] = node
            columns.bases[column] = start
            columns.starts[column] = start
            columns.degrees[column] = end - start
    return EDITED if outside < 0 else 0


@kernel
def draw_states(draws: UInt64s, rows: RowBlock, columns: Runs, moments: Moments, table: RowTable) -> None:
    """Write the initial state of each column's draws, from the key of the hop.

    A node has different draws at another time, and in the tree of another seed.
    """
    for kind in range(rows.firsts.size - 1):
        first, low = rows.firsts[kind], columns.bounds[kind]
        for number in range(low, columns.bounds[kind + 1]):
            column = np.uintp(number)
            key = columns.keys[column] if columns.keys.size > 0 else draws[0]
            if table.trees.size > 0:
                key = tree_key(key, table.trees[np.uintp(first + number - low)])
            columns.states[column] = node_state(key, columns.ids[column])
            if moments.limits.size > 0:
                columns.states[column] = time_state(columns.states[column], moments.limits[column])


@kernel
def split_columns(graph: TypePerEdge, fanouts: Int64s, columns: Runs, runs: Runs) -> int:
    """Split each column into one run per edge type, by bisection: for fan-outs per edge type."""
    types, count = graph.types, 0
    for number in range(columns.sizes[COUNT]):
        column = np.uintp(number)
        low = columns.starts[column]
        end = low + columns.degrees[column]
        while low < end:
            high, edge_type = run_end(types, low, end), types[np.uintp(low)]
            if not 0 <= edge_type < fanouts.size:
                return EDITED
            if count < runs.starts.size:
                run = np.uintp(count)
                runs.ids[run], runs.bases[run] = number, columns.bases[column]
                runs.starts[run], runs.degrees[run] = low, high - low
                runs.states[run] = type_state(columns.states[column], edge_type)
                runs.fanouts[run] = fanouts[np.uintp(edge_type)]
            # Counted even if the arrays are full, so that the next attempt has enough space.
            count += 1
            low = high
    runs.sizes[COUNT], runs.sizes[FIRST_NEW], runs.sizes[NEEDED] = count, 0, count
    if count > runs.starts.size:
        return SHORT
    runs.offsets[0] = columns.offsets[0]
    return 0


@kernel
def split_relations(hop: int, graph: TypePerEdge, fanouts: Int64s, kinds: Relations, columns: Runs, runs: Runs) -> int:
    """Like `split_columns`, with the runs of each edge type together: one for each column of its destination type.

    Picks are then written to the places that they have in the results.
    """
    types, bounds = graph.types, runs.bounds
    bounds[0] = 0
    for edge_type in range(fanouts.size):
        kind = kinds.destinations[edge_type]
        bounds[edge_type + 1] = bounds[edge_type] + columns.bounds[kind + 1] - columns.bounds[kind]
    count = bounds[fanouts.size]
    runs.sizes[COUNT], runs.sizes[FIRST_NEW], runs.sizes[NEEDED] = count, 0, count
    if count > runs.starts.size:
        return SHORT
    for edge_type in range(fanouts.size):
        first, shift = bounds[edge_type], columns.bounds[kinds.destinations[edge_type]] - bounds[edge_type]
        for number in range(first, bounds[edge_type + 1]):
            run, column = np.uintp(number), np.uintp(number + shift)
            runs.ids[run], runs.fanouts[run], runs.degrees[run] = number + shift, fanouts[edge_type], 0
            runs.starts[run] = runs.bases[run] = columns.bases[column]
    for kind in range(columns.bounds.size - 1):
        for number in range(columns.bounds[kind], columns.bounds[kind + 1]):
            column = np.uintp(number)
            low = columns.starts[column]
            end = low + columns.degrees[column]
            while low < end:
                edge_type = types[np.uintp(low)]
                if not 0 <= edge_type < fanouts.size or kinds.destinations[edge_type] != kind:
                    return EDITED
                # Most columns have edges of one type, and each has a last one.
                high = end if types[np.uintp(end - 1)] == edge_type else near_end(types, low, end)
                run = np.uintp(bounds[edge_type] + number - columns.bounds[kind])
                runs.starts[run], runs.degrees[run] = low, high - low
                runs.states[run] = type_state(columns.states[column], edge_type)
                low = high
    runs.offsets[0] = kinds.edge_starts[hop, 0]
    return 0


@kernel
def join_runs(runs: Runs, columns: Runs) -> None:
    """Write the offsets of each column's picks, from those of its runs."""
    run, count = 0, runs.sizes[COUNT]
    for column in range(columns.sizes[COUNT]):
        columns.offsets[column] = runs.offsets[run]
        while run < count and runs.ids[run] == column:
            run += 1
    columns.offsets[columns.sizes[COUNT]] = runs.offsets[count]


@device_function
def fanout_of(columns, run):
    return columns.fanouts[np.uintp(run)] if columns.fanouts.size > 1 else columns.fanouts[0]
