"""All hops of a mini-batch on a graph of one type, in one call without the interpreter lock.

Each pass is a plain loop of independent loads with its own prefetch, so that many cache misses are in flight.
"""

import numpy as np

from graphfeed.ops.cpu.jit import AHEAD, device_function, kernel, prefetch, without_refcount
from graphfeed.ops.cpu.random import node_state
from graphfeed.ops.cpu.sampling.pick import LOOK_BACK, count_picks, pick, pick_few, pick_many

ROWS_AHEAD = 8


@device_function
def count_plain(indptr, nodes, fanout, starts, degrees, out_indptr):
    """Write row starts, degrees and the running count of picks of each node; return the sum."""
    most = np.int64(np.iinfo(np.int64).max) if fanout < 0 else np.int64(fanout)
    total = np.int64(0)
    last = nodes.size - 1
    out_indptr[0] = 0
    for row in range(nodes.size):
        prefetch(indptr, np.intp(nodes[min(row + AHEAD, last)]))
        node = np.uintp(nodes[row])
        start = np.int64(indptr[node])
        degree = np.int64(indptr[node + np.uintp(1)]) - start
        starts[row] = start
        degrees[row] = degree
        total += min(degree, most)
        out_indptr[row + 1] = total
    return total


@device_function
def count_any(cumulative, fanout, replace, starts, degrees, out_indptr):
    """Write the running count of picks, weighted or with replacement, after `count_plain`; return the sum."""
    cumulative, starts, degrees = without_refcount(cumulative), without_refcount(starts), without_refcount(degrees)
    total = np.int64(0)
    last = starts.size - 1
    for row in range(starts.size):
        prefetch(cumulative, np.intp(starts[min(row + ROWS_AHEAD, last)]))
        total += count_picks(cumulative, starts[row], starts[row] + degrees[row], 0, fanout, replace)
        out_indptr[row + 1] = total
    return total


@device_function
def fill_plain(nodes, key, starts, degrees, out_indptr, table, positions):
    """Write the sampled edges of each node: no weights, no replacement."""
    at = np.int64(out_indptr[0])
    for row in range(nodes.size):
        end = np.int64(out_indptr[row + 1])
        count, low, degree = end - at, starts[row], degrees[row]
        if count == degree:
            for number in range(count):
                positions[np.uintp(at + number)] = low + number
        elif count <= LOOK_BACK:
            pick_few(low, degree, count, node_state(key, nodes[row]), positions, at)
        else:
            pick_many(low, degree, count, node_state(key, nodes[row]), positions, at, table)
        at = end


@device_function
def fill_any(cumulative, nodes, fanout, replace, key, starts, degrees, out_indptr, table, positions):
    """Write the sampled edges of each node, weighted or with replacement."""
    cumulative, positions, table = without_refcount(cumulative), without_refcount(positions), without_refcount(table)
    for row in range(nodes.size):
        at = np.int64(out_indptr[row])
        count = np.int64(out_indptr[row + 1]) - at
        if cumulative.size > 0:
            coming = min(row + ROWS_AHEAD, nodes.size - 1)
            prefetch(cumulative, np.intp(starts[coming] + degrees[coming] - 1))
        if count > 0:
            low, high = starts[row], starts[row] + degrees[row]
            state = node_state(key, nodes[row])
            pick(cumulative, low, high, 0, count, replace, fanout, state, positions, at, table)


@device_function
def read_neighbors(indices, positions, neighbors):
    """Read the source node of each sampled edge."""
    last = positions.size - 1
    for edge in range(positions.size):
        prefetch(indices, np.intp(positions[min(edge + AHEAD, last)]))
        neighbors[edge] = indices[np.uintp(positions[edge])]


@device_function
def relabel(node_map, neighbors, nodes, known):
    """Replace ids by positions in `nodes`, append those not met before; return the new length."""
    last = neighbors.size - 1
    for edge in range(neighbors.size):
        prefetch(node_map, np.intp(neighbors[min(edge + AHEAD, last)]))
        node = neighbors[edge]
        local = node_map[np.uintp(node)]
        # No branch: whether a node is new can't be predicted, so both stores are made always.
        new = local < 0
        local = np.int32(known) if new else local
        node_map[np.uintp(node)] = local
        nodes[np.uintp(known)] = node
        known += np.int64(new)
        neighbors[edge] = local
    return known


@device_function
def place_seeds(node_map, seeds):
    """Enter the seeds in the map from node to position; of a seed that occurs twice, the first place."""
    for row in range(seeds.size - 1, -1, -1):
        node_map[seeds[row]] = row


@device_function
def open_hop(
    indptr, cumulative, fanouts, replace, hop, nodes, node_counts, starts, degrees, out_indptr, edge_counts, positions
):  # fmt: skip
    """Count the picks of a hop; return where its column starts begin, or -1 where an output is too short for it."""
    count = node_counts[hop]
    first = edge_counts[hop]
    row = hop
    for earlier in range(hop):
        row += node_counts[earlier]
    edge_counts[hop + 1] = first
    if starts.size < count or out_indptr.size < row + count + 1:
        return np.int64(-1)
    rows = out_indptr[row : row + count + 1]
    total = count_plain(indptr, nodes[:count], fanouts[hop], starts, degrees, rows)
    if cumulative.size > 0 or replace:
        total = count_any(cumulative, fanouts[hop], replace, starts[:count], degrees, rows)
    edge_counts[hop + 1] = first + total
    if positions.size < first + total or nodes.size < count + total:
        return np.int64(-1)
    return np.int64(row)


@device_function
def close_hop(indices, hop, node_map, nodes, node_counts, edge_counts, positions, neighbors):
    """Read and relabel what a hop has picked."""
    own = slice(edge_counts[hop], edge_counts[hop + 1])
    read_neighbors(indices, positions[own], neighbors[own])
    node_counts[hop + 1] = relabel(node_map, neighbors[own], nodes, node_counts[hop])


@device_function
def forget(node_map, nodes):
    """Reset the map."""
    for row in range(nodes.size):
        node_map[nodes[row]] = -1


@kernel
def sample_hops(
    indptr, indices, cumulative, fanouts, replace, keys, node_map, table, hop,
    nodes, node_counts, starts, degrees, out_indptr, edge_counts, positions, neighbors,
):  # fmt: skip
    """Sample from hop `hop` on until an output is too short; return the hop reached.

    `nodes[:node_counts[hop]]` are the seeds of the hop and `edge_counts[hop]` edges are there already. Where the
    outputs are too short for a hop, `edge_counts[hop + 1]` says how many edges it needs and nothing of it is written.
    `node_map` holds the position of each known node and -1 elsewhere; after the last hop it is reset.
    """
    if hop == 0:
        place_seeds(node_map, nodes[: node_counts[0]])
    while hop < fanouts.size:
        row = open_hop(
            indptr, cumulative, fanouts, replace, hop, nodes, node_counts, starts, degrees, out_indptr, edge_counts,
            positions,
        )  # fmt: skip
        if row < 0:
            return hop
        seeds = nodes[: node_counts[hop]]
        rows = out_indptr[row : row + seeds.size + 1]
        picked = positions[edge_counts[hop] : edge_counts[hop + 1]]
        if cumulative.size == 0 and not replace:
            fill_plain(seeds, keys[hop], starts, degrees, rows, table, picked)
        else:
            fill_any(cumulative, seeds, fanouts[hop], replace, keys[hop], starts, degrees, rows, table, picked)
        close_hop(indices, hop, node_map, nodes, node_counts, edge_counts, positions, neighbors)
        hop += 1
    forget(node_map, nodes[: node_counts[hop]])
    return hop
