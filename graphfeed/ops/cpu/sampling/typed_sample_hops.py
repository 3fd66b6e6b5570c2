"""Kernel of all hops of a mini-batch on a graph with types, in one call without the interpreter lock.

A hop goes through its picks four times: they are chosen and sorted column by column, their edge types are read and
counted, then each is written once to the part of its edge type, and the sources of all parts are read and relabelled.
All arrays lie in `out` (see `ops.sampling.typed_sample_hops`).
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, kernel, prefetch, without_refcount
from graphfeed.ops.cpu.random import node_state, timed_state, typed_state
from graphfeed.ops.cpu.sampling.edge_types import count_kinds, list_kinds, sort_picks, split_picks
from graphfeed.ops.cpu.sampling.pick import count_picks, pick, read_segment
from graphfeed.ops.cpu.sampling.sample_hops import fill_plain, read_neighbors, relabel, reset_node_map
from graphfeed.ops.cpu.sampling.weighted_picks import fill_weighted


@device_function
def enter_typed_seeds(node_map, first_ids, hop, out):
    """Before the first hop, enter the seeds in the map from node to position."""
    for kind in range(first_ids.size - 1 if hop == 0 else 0):
        # Backwards, so that a seed that occurs twice keeps its first position.
        for row in range(out.known[0, kind] - 1, -1, -1):
            node_map[first_ids[kind] + out.nodes[out.firsts[kind] + row]] = row


@device_function
def open_typed_columns(indptr, first_ids, hop, out):
    """Read where the column of each row starts and how many edges it has, node type after node type.

    Returns where the columns of each node type start, and whether there is room for them.
    """
    num_types = first_ids.size - 1
    column_starts = np.zeros(num_types + 1, np.int64)
    for kind in range(num_types):
        column_starts[kind + 1] = column_starts[kind] + out.known[hop, kind]
    out.needs[:] = 0
    out.needs[0] = column_starts[num_types]
    if out.starts.size < column_starts[num_types]:
        return column_starts, False
    for kind in range(num_types):
        own = out.nodes[out.firsts[kind] : out.firsts[kind] + out.known[hop, kind]]
        last, first_id, column = own.size - 1, np.int64(first_ids[kind]), column_starts[kind]
        for row in range(own.size):
            prefetch(indptr, np.intp(first_id + own[min(row + AHEAD, last)]))
            node = first_id + np.int64(own[np.uintp(row)])
            start = np.int64(indptr[np.uintp(node)])
            out.ids[np.uintp(column + row)] = node
            out.starts[np.uintp(column + row)] = start
            out.degrees[np.uintp(column + row)] = np.int64(indptr[np.uintp(node + 1)]) - start
    return column_starts, True


@device_function
def count_typed_hop(types, cumulative, fanouts, replace, columns, out):
    """Write the running count of the columns' picks; return whether there is room for them."""
    cumulative, types, total = without_refcount(cumulative), without_refcount(types), np.int64(0)
    limit = np.int64(np.iinfo(np.int64).max) if fanouts[0] < 0 else np.int64(fanouts[0])
    plain = cumulative.size == 0 and fanouts.size == 1
    out.offsets[0] = 0
    for column in range(columns):
        degree = out.degrees[column]
        if plain and replace and fanouts[0] > 0:
            total += limit if degree > 0 else 0
        elif plain:
            total += min(degree, limit)
        else:
            low, end = out.starts[column], out.starts[column] + degree
            while low < end:
                high, before, fanout = read_segment(types, cumulative, fanouts, out.bases[column], low, end)
                total += count_picks(cumulative, low, high, before, fanout, replace)
                low = high
        out.offsets[column + 1] = total
    out.needs[1] = total
    return out.picks.size >= total


@device_function
def fill_typed_hop(types, cumulative, fanouts, replace, key, table, columns, out):
    """Write the sampled edges of each column; in time, one node at different times draws differently."""
    offsets, picks, limits = out.offsets[: columns + 1], out.picks[: out.offsets[columns]], out.limits
    if cumulative.size > 0:
        rows = out.ids, out.bases, out.starts, out.degrees
        fill_weighted(cumulative, types, limits, fanouts, replace, key, table, rows, offsets, picks)
    elif fanouts.size == 1 and not replace:
        fill_plain(out.ids, limits, key, out.starts, out.degrees, offsets, table, picks)
    else:
        for column in range(columns):
            at, low, node = offsets[column], out.starts[column], out.ids[column]
            end = low + out.degrees[column]
            state = node_state(key, node) if limits.size == 0 else timed_state(key, node, limits[column])
            while low < end and at < offsets[column + 1]:
                high, before, fanout = read_segment(types, cumulative, fanouts, out.bases[column], low, end)
                count = count_picks(cumulative, low, high, before, fanout, replace)
                if count > 0:
                    own = typed_state(state, types[low]) if fanouts.size > 1 else state
                    pick(cumulative, low, high, before, count, replace, fanout, own, picks, at, table)
                at += count
                low = high


@device_function
def lay_out_hop(kinds, counts, column_starts, merged, hop, out):
    """Assign each edge type that the hop meets its parts of the outputs; return whether there is room for all.

    With `merged`, nodes have one row each, so a node type gets no more new rows than it has nodes.
    """
    first_ids, sources, destinations, _ = kinds
    rows = out.indptr_end[hop]
    for edge_type in range(sources.size):
        out.edge_starts[hop, edge_type + 1] = out.edge_starts[hop, edge_type] + counts[edge_type]
        if counts[edge_type] > 0:
            out.indptr_starts[hop, edge_type] = rows
            destination = destinations[edge_type]
            rows += column_starts[destination + 1] - column_starts[destination] + 1
    out.indptr_end[hop + 1] = rows
    out.edge_starts[hop + 1, 0] = out.edge_starts[hop, sources.size]
    out.needs[2], out.needs[3] = out.edge_starts[hop + 1, 0], rows
    room = out.positions.size >= out.needs[2] and out.indptr.size >= out.needs[3]
    out.known[hop + 1] = out.known[hop]
    for edge_type in range(sources.size):
        out.known[hop + 1, sources[edge_type]] += counts[edge_type]
    for kind in range(first_ids.size - 1):
        if merged:
            all_new = out.known[hop, kind] + np.int64(first_ids[kind + 1]) - np.int64(first_ids[kind])
            out.known[hop + 1, kind] = min(out.known[hop + 1, kind], all_new)
        room = room and out.firsts[kind + 1] - out.firsts[kind] >= out.known[hop + 1, kind]
    return room


@device_function
def relabel_typed_hop(indices, kinds, node_map, hop, out):
    """Read the sources of all edges of a hop, and relabel them, each edge type by itself."""
    first_ids, sources, _, order = kinds
    out.known[hop + 1] = out.known[hop]
    for edge_type in order:
        part = slice(out.edge_starts[hop, edge_type], out.edge_starts[hop, edge_type + 1])
        neighbors, kind = out.neighbors[part], sources[edge_type]
        if neighbors.size > 0:
            read_neighbors(indices, out.positions[part], neighbors)
            first_id, next_id = first_ids[kind], first_ids[kind + 1]
            for edge in range(neighbors.size):
                neighbors[edge] -= first_id
            nodes = out.nodes[out.firsts[kind] : out.firsts[kind + 1]]
            out.known[hop + 1, kind] = relabel(node_map[first_id:next_id], neighbors, nodes, out.known[hop + 1, kind])


@device_function
def split_typed_hop(types, kinds, column_starts, merged, hop, out):
    """Split the picks of a hop by edge type; return False if an output is too short."""
    first_ids, sources, destinations, _ = kinds
    columns = column_starts[column_starts.size - 1]
    picks = out.picks[: out.offsets[columns]]
    counts = np.zeros(sources.size, np.int64)
    count_kinds(types, picks, out.kinds, counts)
    if not lay_out_hop(kinds, counts, column_starts, merged, hop, out):
        return False
    listed, begins = list_kinds(destinations, counts > 0, first_ids.size - 1)
    split_picks(
        picks, out.kinds, out.offsets, column_starts, listed, begins, out.indptr_starts[hop], out.edge_starts[hop],
        out.indptr, out.positions,
    )  # fmt: skip
    return True


@device_function
def reset_typed_map(node_map, first_ids, hop, out):
    """Set the map back to -1 everywhere, after the last hop."""
    for kind in range(first_ids.size - 1):
        own = slice(out.firsts[kind], out.firsts[kind] + out.known[hop, kind])
        reset_node_map(node_map[first_ids[kind] : first_ids[kind + 1]], out.nodes[own])


@kernel
def typed_sample_hops(graph, kinds, fanouts, by_type, replace, keys, table, node_map, hop, out):
    """Sample from hop `hop` on until an output is too short; return the hop reached.

    Args:
        graph: `indptr`, `indices`, `types` and `cumulative`.
        kinds: The first id of each node type; of each edge type the source and the destination; and the edge types in
            the order in which their sources are relabelled.
        fanouts: One number per hop and edge type.
        by_type: Of each hop, whether each edge type has its own fan-out; otherwise the first holds for all together.
        replace: Whether an edge may be chosen more than once.
        keys: One per hop.
        table: Scratch for large fan-outs (see `pick_many`).
        node_map: The position of each known node, -1 elsewhere; reset after the last hop.
        hop: The hop to begin with.
        out: The arrays of `TypedHopArrays`. What is too short for a hop is said in `needs` and `known[hop + 1]`.
    """
    indptr, indices, types, cumulative = graph
    enter_typed_seeds(node_map, kinds[0], hop, out)
    while hop < keys.size:
        own = fanouts[hop] if by_type[hop] else fanouts[hop][:1]
        column_starts, room = open_typed_columns(indptr, kinds[0], hop, out)
        columns = column_starts[column_starts.size - 1]
        if not (room and count_typed_hop(types, cumulative, own, replace, columns, out)):
            return hop
        fill_typed_hop(types, cumulative, own, replace, keys[hop], table, columns, out)
        sort_picks(out.offsets[: columns + 1], out.picks)
        if not split_typed_hop(types, kinds, column_starts, True, hop, out):
            return hop
        relabel_typed_hop(indices, kinds, node_map, hop, out)
        hop += 1
    reset_typed_map(node_map, kinds[0], hop, out)
    return hop
