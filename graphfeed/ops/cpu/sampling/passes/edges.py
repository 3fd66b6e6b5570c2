"""Passes that read the sources of sampled edges, and assign rows to them."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, kernel, prefetch
from graphfeed.ops.cpu.sampling.passes.state import (
    ALWAYS,
    EDITED,
    SHORT,
    ColumnStarts,
    Moments,
    NodeIds,
    NodeMap,
    PickBlock,
    Relations,
    RowBlock,
    RowTable,
    Sources,
)
from graphfeed.ops.cpu.search import find_key, first_slot

BLOCK = 512
"""Number of sources that are read before they are checked, while they are in the cache. With a check in the loop that
reads them, mini-batches of three hops take 1.08 times as long (400,000 nodes, 10 million edges)."""


@kernel
def read_neighbors(hop: int, graph: Sources, rows: RowBlock, kinds: Relations, edges: PickBlock, nodes: NodeIds) -> int:
    """Read the source of each sampled edge: one random read per edge, prefetched."""
    # Later passes use the sources as indices. A program may have edited these since the graph was checked, also through
    # a NumPy array that shares their memory, so each is compared with the number of nodes here.
    neighbors = nodes.neighbors
    for edge_type in range(kinds.sources.size):
        kind, first, end = (
            kinds.sources[edge_type],
            kinds.edge_starts[hop, edge_type],
            kinds.edge_starts[hop, edge_type + 1],
        )
        first_id, last, outside = rows.first_ids[kind], end - 1, np.int64(0)
        last_node = rows.first_ids[kind + 1] - first_id - 1
        for block in range(first, end, BLOCK):
            stop = min(block + BLOCK, end)
            for edge in range(block, stop):
                prefetch(graph.indices, edges.positions[np.uintp(min(edge + AHEAD, last))])
                neighbors[np.uintp(edge)] = graph.indices[np.uintp(edges.positions[np.uintp(edge)])] - first_id
            # A separate loop, which LLVM turns into SIMD. One of the two terms is negative if a node is out of range.
            for edge in range(block, stop):
                node = np.int64(neighbors[np.uintp(edge)])
                outside |= node | (last_node - node)
        if outside < 0:
            return EDITED
    return 0


@kernel
def relabel_hop(hop: int, rows: RowBlock, kinds: Relations, nodes: NodeIds, node_map: NodeMap) -> None:
    """Replace ids by positions in the rows, and append new ids in order of first appearance."""
    for kind in range(rows.known.shape[1]):
        rows.known[hop + 1, kind] = rows.known[hop, kind]
    for edge_type in kinds.order:
        kind = kinds.sources[edge_type]
        first, end = kinds.edge_starts[hop, edge_type], kinds.edge_starts[hop, edge_type + 1]
        known, last = rows.known[hop + 1, kind], end - 1
        own, ids = node_map.places[rows.first_ids[kind] :], nodes.rows[rows.firsts[kind] :]
        # One random read per edge and one random write per new row, prefetched.
        for edge in range(first, end):
            prefetch(own, nodes.neighbors[np.uintp(min(edge + AHEAD, last))])
            node = nodes.neighbors[np.uintp(edge)]
            local = own[np.uintp(node)]
            if local < 0:
                local = np.int32(known)
                own[np.uintp(node)] = local
                ids[np.uintp(known)] = node
                known += 1
            nodes.neighbors[np.uintp(edge)] = local
        rows.known[hop + 1, kind] = known


@kernel
def enter_rows(hop: int, rows: RowBlock, nodes: NodeIds, table: RowTable) -> None:
    """Fill the table with the rows known before a hop, and remove all other entries."""
    table.keys[:] = -1
    for kind in range(rows.firsts.size - 1):
        # Backwards, so that the first of duplicate seeds of one tree is found.
        for row in range(rows.known[hop, kind] - 1, -1, -1):
            place = rows.firsts[kind] + row
            key = rows.first_ids[kind] + np.int64(nodes.rows[np.uintp(place)]) + base_of(rows, table, place)
            slot = np.uintp(find_key(table.keys, table.keys.size, key))
            table.keys[slot], table.places[slot] = key, row


@device_function
def base_of(rows, table, place):
    """Return the offset of ids of the graph in the tree of a row."""
    return table.trees[np.uintp(place)] * rows.first_ids[rows.firsts.size - 1] if table.trees.size > 0 else np.int64(0)


@kernel
def relabel_by_table(
    hop: int, rows: RowBlock, moments: Moments, kinds: Relations, starts: ColumnStarts, nodes: NodeIds, table: RowTable
) -> int:
    """Like `relabel_hop`, with a table, and per seed if there are trees. New rows get the time of their column."""
    keys, most = table.keys, np.int64(0)
    for kind in range(rows.known.shape[1]):
        most += rows.known[hop + 1, kind]
    # At least half of the slots must be free.
    if 2 * most > keys.size:
        return SHORT
    for kind in range(rows.known.shape[1]):
        rows.known[hop + 1, kind] = rows.known[hop, kind]
    for edge_type in kinds.order:
        first, end = kinds.edge_starts[hop, edge_type], kinds.edge_starts[hop, edge_type + 1]
        kind, destination = kinds.sources[edge_type], kinds.destinations[edge_type]
        begin, known, first_row = kinds.indptr_starts[hop, edge_type], rows.known[hop + 1, kind], rows.firsts[kind]
        last = rows.known[hop, destination] - 1
        # An edge type without edges in the hop has no column starts.
        for number in range(-1, last + 1 if end > first else -1):
            # One random read per edge, prefetched a column ahead.
            coming, column = rows.firsts[destination] + min(number + 1, last), rows.firsts[destination] + number
            base = rows.first_ids[kind] + base_of(rows, table, coming)
            low, high = column_edges(starts, begin, min(number + 1, last))
            for edge in range(first + low, first + high):
                prefetch(keys, first_slot(keys.size, base + np.int64(nodes.neighbors[np.uintp(edge)])))
            if number < 0:
                continue
            base = rows.first_ids[kind] + base_of(rows, table, column)
            low, high = column_edges(starts, begin, number)
            for edge in range(first + low, first + high):
                node = nodes.neighbors[np.uintp(edge)]
                key = base + np.int64(node)
                slot = np.uintp(find_key(keys, keys.size, key))
                if keys[slot] < 0:
                    keys[slot], table.places[slot] = key, known
                    row = np.uintp(first_row + known)
                    nodes.rows[row] = node
                    if table.trees.size > 0:
                        table.trees[row] = table.trees[np.uintp(column)]
                    if moments.times.size > 0:
                        moments.times[row] = moments.times[np.uintp(column)]
                    if moments.windows.size > 0:
                        moments.windows[row] = moments.windows[np.uintp(column)]
                    known += 1
                nodes.neighbors[np.uintp(edge)] = table.places[slot]
        rows.known[hop + 1, kind] = known
    return 0


@device_function
def column_edges(starts, begin, column):
    return starts.indptr[np.uintp(begin + column)], starts.indptr[np.uintp(begin + column + 1)]


@kernel
def append_rows(
    hop: int, rows: RowBlock, moments: Moments, kinds: Relations, edges: PickBlock, starts: ColumnStarts, nodes: NodeIds
) -> None:
    """Append a row for each edge. Its time, if any, is that of its column or, if edges have times, that of the edge."""
    indptr, edge_times = starts.indptr, moments.edge_times
    for kind in range(rows.known.shape[1]):
        rows.known[hop + 1, kind] = rows.known[hop, kind]
    for edge_type in kinds.order:
        first, end = kinds.edge_starts[hop, edge_type], kinds.edge_starts[hop, edge_type + 1]
        source, destination = kinds.sources[edge_type], kinds.destinations[edge_type]
        known, begin = rows.known[hop + 1, source], kinds.indptr_starts[hop, edge_type]
        # The row of an edge is `shift + edge`.
        shift, columns, last = rows.firsts[source] + known - first, rows.firsts[destination], end - 1
        timed = moments.times.size > 0
        for column in range(rows.known[hop, destination] if timed and end > first else 0):
            time = moments.times[np.uintp(columns + column)]
            low, high = indptr[np.uintp(begin + column)], indptr[np.uintp(begin + column + 1)]
            for edge in range(first + low, first + high):
                moments.times[np.uintp(shift + edge)] = time
            if moments.windows.size > 0:
                for edge in range(first + low, first + high):
                    moments.windows[np.uintp(shift + edge)] = moments.windows[np.uintp(columns + column)]
        # The time of an edge costs one random read.
        for edge in range(first, end if edge_times.size > 0 else first):
            prefetch(edge_times, edges.positions[np.uintp(min(edge + AHEAD, last))])
            time = edge_times[np.uintp(edges.positions[np.uintp(edge)])]
            # An edge that always exists has no time.
            if time != ALWAYS:
                moments.times[np.uintp(shift + edge)] = time
        for edge in range(first, end):
            nodes.rows[np.uintp(shift + edge)] = nodes.neighbors[np.uintp(edge)]
            nodes.neighbors[np.uintp(edge)] = known + edge - first
        rows.known[hop + 1, source] = known + end - first
