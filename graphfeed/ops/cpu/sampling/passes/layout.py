"""Passes that group the picks of a hop by edge type, and write them to the results."""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, Int64s, device_function, kernel, prefetch
from graphfeed.ops.cpu.sampling.passes.state import (
    COUNT,
    EDITED,
    JOINED,
    SHORT,
    ColumnStarts,
    EdgeIds,
    KeptHops,
    NodeIds,
    PickBlock,
    Relations,
    RowBlock,
    RowTable,
    Runs,
    TypePerEdge,
)

FEW = 8
"""Up to this many edges of a column are written as if it had so many: a constant count needs no branches."""
FEW_PICKS = 32
"""Up to this many picks are sorted by insertion."""


@kernel
def sort_picks(skips_whole: bool, columns: Runs, picks: PickBlock) -> None:
    """Sort the picks of each run; optionally not those of runs of which all edges were picked, in order."""
    for column in range(columns.sizes[COUNT]):
        low, high = columns.offsets[np.uintp(column)], columns.offsets[np.uintp(column + 1)]
        if not (skips_whole and high - low == columns.degrees[np.uintp(column)]):
            sort_values(picks.positions[low:high])


@device_function
def sort_values(values):
    """Sort values in place: few by insertion, many by heapsort unless they are sorted already."""
    size, falls = values.size, 0
    if size <= FEW_PICKS:
        for place in range(1, size):
            value, at = values[np.uintp(place)], place
            while at > 0 and values[np.uintp(at - 1)] > value:
                values[np.uintp(at)] = values[np.uintp(at - 1)]
                at -= 1
            values[np.uintp(at)] = value
        return
    for place in range(1, size):
        falls += values[np.uintp(place)] < values[np.uintp(place - 1)]
    if falls == 0:
        return
    for parent in range(size // 2 - 1, -1, -1):
        sift_down(values, parent, size)
    for end in range(size - 1, 0, -1):
        values[0], values[np.uintp(end)] = values[np.uintp(end)], values[0]
        sift_down(values, 0, end)


@device_function
def sift_down(values, parent, end):
    """Move a value down to its place in a max-heap."""
    while 2 * parent + 1 < end:
        child = 2 * parent + 1
        if child + 1 < end and values[np.uintp(child + 1)] > values[np.uintp(child)]:
            child += 1
        if values[np.uintp(child)] <= values[np.uintp(parent)]:
            break
        values[np.uintp(child)], values[np.uintp(parent)] = values[np.uintp(parent)], values[np.uintp(child)]
        parent = child


@kernel
def read_types(graph: TypePerEdge, columns: Runs, picks: PickBlock, counts: Int64s) -> int:
    """Read the edge type of each pick, one random read, prefetched, and count the picks of each type."""
    types, last = graph.types, columns.offsets[columns.sizes[COUNT]] - 1
    counts[:] = 0
    for place in range(last + 1):
        prefetch(types, picks.positions[np.uintp(min(place + AHEAD, last))])
        edge_type = types[np.uintp(picks.positions[np.uintp(place)])]
        if not 0 <= edge_type < counts.size:
            return EDITED
        picks.types[np.uintp(place)] = edge_type
        counts[np.uintp(edge_type)] += 1
    return 0


@kernel
def count_picks(columns: Runs, counts: Int64s) -> None:
    """Count the picks of a hop without types."""
    counts[0] = columns.offsets[columns.sizes[COUNT]] - columns.offsets[0]


@kernel
def count_relations(runs: Runs, counts: Int64s) -> None:
    """Count the picks of each edge type in runs of `split_relations`."""
    for edge_type in range(counts.size):
        counts[edge_type] = runs.offsets[runs.bounds[edge_type + 1]] - runs.offsets[runs.bounds[edge_type]]


@kernel
def lay_out(
    hop: int, merged: bool, counts: Int64s, columns: Runs, rows: RowBlock, kinds: Relations, edges: PickBlock,
    starts: ColumnStarts,
) -> int:  # fmt: skip
    """Assign to each edge type with picks in the hop its ranges in the results.

    Until the pass that relabels the neighbours, `rows.known[hop + 1]` is an upper bound.
    """
    bounds, ends = kinds.edge_starts, kinds.indptr_ends
    ends[hop + 1] = ends[hop]
    for edge_type in range(counts.size):
        bounds[hop, edge_type + 1] = bounds[hop, edge_type] + counts[edge_type]
        # An edge type without picks in the hop gets no column starts.
        if counts[edge_type] > 0:
            kinds.indptr_starts[hop, edge_type] = ends[hop + 1]
            destination = kinds.destinations[edge_type]
            ends[hop + 1] += columns.bounds[destination + 1] - columns.bounds[destination] + 1
    bounds[hop + 1, 0] = bounds[hop, counts.size]
    is_short = edges.positions.size < bounds[hop + 1, 0] or starts.indptr.size < ends[hop + 1]
    # The number of new neighbours is known after relabelling; here it is bounded.
    for kind in range(rows.firsts.size - 1):
        new = np.int64(0)
        for edge_type in range(counts.size):
            if kinds.sources[edge_type] == kind:
                new += counts[edge_type]
        rows.known[hop + 1, kind] = rows.known[hop, kind] + new
        if merged:
            most = rows.known[0, kind] + rows.first_ids[kind + 1] - rows.first_ids[kind]
            rows.known[hop + 1, kind] = min(rows.known[hop + 1, kind], most)
        is_short |= rows.firsts[kind + 1] - rows.firsts[kind] < rows.known[hop + 1, kind]
    return SHORT if is_short else 0


@kernel
def write_starts(hop: int, columns: Runs, kinds: Relations, starts: ColumnStarts) -> None:
    """Write the column starts of a hop without types, whose picks are in the results already."""
    offsets, count, at = columns.offsets, columns.sizes[COUNT], kinds.indptr_starts[hop, 0]
    # Offsets count the picks of all hops, column starts those of one hop.
    first = offsets[0]
    for column in range(count + 1 if offsets[count] > first else 0):
        starts.indptr[np.uintp(at + column)] = offsets[np.uintp(column)] - first
    offsets[0] = offsets[count]


@kernel
def write_relation_starts(hop: int, runs: Runs, kinds: Relations, starts: ColumnStarts) -> None:
    """Write the column starts of each edge type from runs of `split_relations`, whose picks are in the results."""
    for edge_type in range(kinds.sources.size):
        first, end = kinds.edge_starts[hop, edge_type], kinds.edge_starts[hop, edge_type + 1]
        low, at = runs.bounds[edge_type], kinds.indptr_starts[hop, edge_type]
        for column in range(runs.bounds[edge_type + 1] - low + 1 if end > first else 0):
            starts.indptr[np.uintp(at + column)] = runs.offsets[np.uintp(low + column)] - first


@kernel
def split_picks(
    hop: int, counts: Int64s, scratch: Int64s, columns: Runs, picks: PickBlock, kinds: Relations, edges: PickBlock,
    starts: ColumnStarts,
) -> None:  # fmt: skip
    """Write each pick to the range of its edge type, and the column starts of each type, in one pass."""
    indptr = starts.indptr
    cursors, listed = scratch[: counts.size], scratch[counts.size :]
    for edge_type in range(counts.size):
        cursors[edge_type] = kinds.edge_starts[hop, edge_type]
    for node_type in range(columns.bounds.size - 1):
        first, found = columns.bounds[node_type], 0
        for edge_type in range(counts.size):
            if kinds.destinations[edge_type] == node_type and counts[edge_type] > 0:
                indptr[kinds.indptr_starts[hop, edge_type]] = 0
                listed[found] = edge_type
                found += 1
        for column in range(first, columns.bounds[node_type + 1]):
            for place in range(columns.offsets[np.uintp(column)], columns.offsets[np.uintp(column + 1)]):
                edge_type = np.uintp(picks.types[np.uintp(place)])
                edges.positions[np.uintp(cursors[edge_type])] = picks.positions[np.uintp(place)]
                cursors[edge_type] += 1
            for number in range(found):
                edge_type = listed[np.uintp(number)]
                row = kinds.indptr_starts[hop, edge_type] + column - first + 1
                indptr[np.uintp(row)] = cursors[np.uintp(edge_type)] - kinds.edge_starts[hop, edge_type]


@kernel
def write_joined_hops(
    kinds: Relations, starts: ColumnStarts, rows: RowBlock, nodes: NodeIds, table: RowTable, edges: PickBlock,
    edge_ids: EdgeIds, kept: KeptHops,
) -> int:  # fmt: skip
    """For each edge type, append the rows of its edges, hop after hop, then their columns, then their ids.

    The ids of the rows of each node type follow, and their trees. Without `edge_ids`, positions are the ids of edges.
    """
    hops, place, out, ids = kinds.edge_starts.shape[0] - 1, kept.ends[JOINED], kept.joined, edge_ids.ids
    numbers = np.int64(0)
    for kind in range(rows.firsts.size - 1):
        numbers += rows.known[hops, kind] * (2 if table.trees.size > 0 else 1)
    kept.needed[JOINED] = place + 3 * kinds.edge_starts[hops, 0] + numbers
    if out.size < kept.needed[JOINED]:
        return SHORT
    for edge_type in range(kinds.sources.size):
        count = np.int64(0)
        for hop in range(hops):
            count += kinds.edge_starts[hop, edge_type + 1] - kinds.edge_starts[hop, edge_type]
        # Columns are written first, because more of them are written than there are (`FEW`), up to the ids.
        at, last = place + count, out.size - FEW
        for hop in range(hops):
            first, end = kinds.edge_starts[hop, edge_type], kinds.edge_starts[hop, edge_type + 1]
            begin, columns = kinds.indptr_starts[hop, edge_type], rows.known[hop, kinds.destinations[edge_type]]
            # An edge type without edges in the hop has no column starts.
            for column in range(columns if end > first else 0):
                low, high = starts.indptr[np.uintp(begin + column)], starts.indptr[np.uintp(begin + column + 1)]
                if high - low <= FEW and at + low <= last:
                    for edge in range(FEW):
                        out[np.uintp(at + low + edge)] = column
                else:
                    for edge in range(at + low, at + high):
                        out[np.uintp(edge)] = column
            at += end - first
        for hop in range(hops):
            first, end = kinds.edge_starts[hop, edge_type], kinds.edge_starts[hop, edge_type + 1]
            for edge in range(first, end):
                out[np.uintp(place + edge - first)] = nodes.neighbors[np.uintp(edge)]
            at = place + 2 * count - first
            for edge in range(first, end if ids.size == 0 else first):
                out[np.uintp(at + edge)] = edges.positions[np.uintp(edge)]
            for edge in range(first, end if ids.size > 0 else first):
                prefetch(ids, edges.positions[np.uintp(min(edge + AHEAD, end - 1))])
                out[np.uintp(at + edge)] = ids[np.uintp(edges.positions[np.uintp(edge)])]
            place += end - first
        place += 2 * count
    for kind in range(rows.firsts.size - 1):
        for row in range(rows.known[hops, kind]):
            out[np.uintp(place + row)] = nodes.rows[np.uintp(rows.firsts[kind] + row)]
        place += rows.known[hops, kind]
    for kind in range(rows.firsts.size - 1 if table.trees.size > 0 else 0):
        for row in range(rows.known[hops, kind]):
            out[np.uintp(place + row)] = table.trees[np.uintp(rows.firsts[kind] + row)]
        place += rows.known[hops, kind]
    kept.ends[JOINED] = place
    return 0
