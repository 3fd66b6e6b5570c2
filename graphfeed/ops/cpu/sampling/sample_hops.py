"""Kernel of all hops of a mini-batch on a graph of one type, in one call without the interpreter lock.

Each pass is a plain loop of independent reads with its own prefetch, so that many cache misses are in flight at once:
without prefetching, mini-batches take 1.67 times as long (ogbn-products shaped graph, fan-outs 15, 10 and 5), or 1.34
times (ogbn-arxiv).
All arrays of the result, and what later hops need of earlier ones, lie in `out` (see `ops.sampling.sample_hops`).
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, kernel, prefetch, without_refcount
from graphfeed.ops.cpu.random import node_state, timed_state
from graphfeed.ops.cpu.sampling.pick import count_picks, pick, pick_few, pick_many, weight_before
from graphfeed.ops.cpu.sampling.weighted_picks import ROWS_AHEAD, fill_guided


@device_function
def enter_seeds(node_map, hop, out):
    """Before the first hop, enter the seeds in the map from node to position."""
    if hop == 0:
        # Backwards, so that a seed that occurs twice keeps its first position.
        for row in range(out.node_counts[0] - 1, -1, -1):
            node_map[out.nodes[row]] = row


@device_function
def column_starts(hop, out):
    """Return the part of `out.indptr` that belongs to a hop."""
    first = hop
    for earlier in range(hop):
        first += out.node_counts[earlier]
    return out.indptr[first : first + out.node_counts[hop] + 1]


@device_function
def open_columns(indptr, hop, out):
    """Read where the column of each new row starts and how many edges it has; return False if there is no room.

    The rows of the hop before are known already: a hop's rows begin with those of the hop before.
    """
    known, count = (out.node_counts[hop - 1] if hop > 0 else np.int64(0)), out.node_counts[hop]
    out.edge_counts[hop + 1] = out.edge_counts[hop]
    if out.starts.size < count or column_starts(hop, out).size < count + 1:
        return False
    nodes, bases, starts, degrees = out.nodes, out.bases, out.starts, out.degrees
    for row in range(known, count):
        prefetch(indptr, np.intp(nodes[min(row + AHEAD, count - 1)]))
        node = np.uintp(nodes[row])
        start = np.int64(indptr[node])
        bases[row] = start
        starts[row] = start
        degrees[row] = np.int64(indptr[node + np.uintp(1)]) - start
    return True


@device_function
def count_hop(cumulative, fanout, replace, hop, out):
    """Write the running count of the columns' picks; return False if the outputs are too short for them."""
    cumulative, count, total = without_refcount(cumulative), out.node_counts[hop], np.int64(0)
    bases, starts, degrees, rows = out.bases, out.starts, out.degrees, column_starts(hop, out)
    limit = np.int64(np.iinfo(np.int64).max) if fanout < 0 else np.int64(fanout)
    rows[0] = 0
    for row in range(count):
        degree = degrees[row]
        if cumulative.size > 0:
            prefetch(cumulative, np.intp(starts[min(row + ROWS_AHEAD, count - 1)]))
            low = starts[row]
            before = weight_before(cumulative, bases[row], low)
            total += count_picks(cumulative, low, low + degree, before, fanout, replace)
        elif replace and fanout > 0:
            total += limit if degree > 0 else 0
        else:
            total += min(degree, limit)
        rows[row + 1] = total
    edges = out.edge_counts[hop] + total
    out.edge_counts[hop + 1] = edges
    return out.positions.size >= edges and out.nodes.size >= count + total


@device_function
def fill_plain(nodes, row_times, key, starts, degrees, rows, table, positions):
    """Write the sampled edges of each node without weights and replacement, as `pick` does for one node.

    Deciding for each node what holds for all of them takes mini-batches 1.4 times as long (ogbn-arxiv shaped graph).
    """
    at, few = np.int64(0), table.size == 0
    for row in range(rows.size - 1):
        end = np.int64(rows[row + 1])
        count, low, degree, node = end - at, starts[row], degrees[row], nodes[row]
        if count == degree:
            for number in range(count):
                positions[np.uintp(at + number)] = low + number
        else:
            state = node_state(key, node) if row_times.size == 0 else timed_state(key, node, row_times[row])
            if few:
                pick_few(low, degree, count, state, positions, at)
            else:
                pick_many(low, degree, count, state, positions, at, table)
        at = end


@device_function
def fill_hop(cumulative, guides, row_times, fanout, replace, key, table, hop, out):
    """Write the sampled edges of each node of a hop; two rows of one node at different times draw differently."""
    count, rows = out.node_counts[hop], column_starts(hop, out)
    nodes, bases, starts, degrees = out.nodes, out.bases, out.starts, out.degrees
    positions = out.positions[out.edge_counts[hop] : out.edge_counts[hop + 1]]
    if cumulative.size > 0:
        columns = nodes, bases, starts, degrees
        fill_guided(cumulative, guides, row_times, fanout, replace, key, table, columns, rows, positions)
    elif not replace:
        fill_plain(nodes, row_times, key, starts, degrees, rows, table, positions)
    else:
        for row in range(count):
            at = np.int64(rows[row])
            picks = np.int64(rows[row + 1]) - at
            if picks > 0:
                low, node = starts[row], nodes[row]
                state = node_state(key, node) if row_times.size == 0 else timed_state(key, node, row_times[row])
                high = low + degrees[row]
                pick(cumulative, low, high, np.int64(0), picks, replace, fanout, state, positions, at, table)


@device_function
def read_neighbors(indices, positions, neighbors):
    """Read the source node of each sampled edge."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(indices, np.intp(positions[min(edge + AHEAD, last)]))
        neighbors[edge] = indices[np.uintp(positions[edge])]


@device_function
def relabel(node_map, neighbors, nodes, known):
    """Replace ids by positions in `nodes`, and append new ids in order of first appearance; return the new length."""
    last = neighbors.size - 1
    for edge in range(neighbors.size):
        prefetch(node_map, np.intp(neighbors[min(edge + AHEAD, last)]))
        node = neighbors[edge]
        local = node_map[np.uintp(node)]
        if local < 0:
            local = np.int32(known)
            node_map[np.uintp(node)] = local
            nodes[np.uintp(known)] = node
            known += 1
        neighbors[edge] = local
    return known


@device_function
def reset_node_map(node_map, nodes):
    """Set the map back to -1 everywhere: at the cost of the mini-batch's nodes, not of the graph's."""
    last = nodes.size - 1
    for row in range(nodes.size):
        prefetch(node_map, np.intp(nodes[min(row + AHEAD, last)]))
        node_map[np.uintp(nodes[row])] = -1


@kernel
def sample_hops(graph, fanouts, replace, keys, table, node_map, hop, out):
    """Sample from hop `hop` on until an output is too short; return the hop reached.

    `out.nodes[:out.node_counts[hop]]` are the seeds of the hop, and `out.edge_counts[hop]` edges are there already. If
    the outputs are too short for a hop, `out.edge_counts[hop + 1]` says how many edges it needs, and none of them is
    written: the caller makes longer outputs and calls again.

    Args:
        graph: `indptr`, `indices`, `cumulative` and `guides`.
        fanouts: One number per hop.
        replace: Whether an edge may be chosen more than once.
        keys: One per hop.
        table: Scratch for large fan-outs (see `pick_many`).
        node_map: The position of each known node, -1 elsewhere; reset after the last hop.
        hop: The hop to begin with.
        out: The arrays of `HopArrays`.
    """
    indptr, indices, cumulative, guides = graph
    enter_seeds(node_map, hop, out)
    while hop < fanouts.size:
        if not (open_columns(indptr, hop, out) and count_hop(cumulative, fanouts[hop], replace, hop, out)):
            return hop
        fill_hop(cumulative, guides, out.times, fanouts[hop], replace, keys[hop], table, hop, out)
        own = slice(out.edge_counts[hop], out.edge_counts[hop + 1])
        read_neighbors(indices, out.positions[own], out.neighbors[own])
        out.node_counts[hop + 1] = relabel(node_map, out.neighbors[own], out.nodes, out.node_counts[hop])
        hop += 1
    reset_node_map(node_map, out.nodes[: out.node_counts[hop]])
    return hop
