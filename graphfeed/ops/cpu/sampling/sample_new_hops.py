"""Kernel of all hops that each sample what the hop before found, on a graph of one type (see `sample_hops`)."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel, without_refcount
from graphfeed.ops.cpu.random import node_state
from graphfeed.ops.cpu.sampling.pick import count_picks, pick, weight_before
from graphfeed.ops.cpu.sampling.sample_hops import (
    column_starts,
    enter_seeds,
    fill_plain,
    open_columns,
    read_neighbors,
    relabel,
    reset_node_map,
)
from graphfeed.ops.cpu.sampling.weighted_picks import fill_guided


@device_function
def count_new(cumulative, fanout, replace, known, hop, out):
    """Write the running count of the picks, of which earlier columns have none; return False if there is no room."""
    cumulative, count, total = without_refcount(cumulative), out.node_counts[hop], np.int64(0)
    bases, starts, degrees, rows = out.bases, out.starts, out.degrees, column_starts(hop, out)
    rows[: known + 1] = 0
    for row in range(known, count):
        low = starts[row]
        before = weight_before(cumulative, bases[row], low)
        total += count_picks(cumulative, low, low + degrees[row], before, fanout, replace)
        rows[row + 1] = total
    edges = out.edge_counts[hop] + total
    out.edge_counts[hop + 1] = edges
    return out.positions.size >= edges and out.nodes.size >= count + total


@device_function
def fill_new(cumulative, guides, fanout, replace, key, table, known, hop, out):
    """Write the sampled edges of each new node."""
    count, rows = out.node_counts[hop], column_starts(hop, out)
    nodes, bases, starts, degrees = out.nodes, out.bases, out.starts, out.degrees
    positions = out.positions[out.edge_counts[hop] : out.edge_counts[hop + 1]]
    own = slice(known, count)
    if cumulative.size == 0 and not replace:
        fill_plain(nodes[own], out.times, key, starts[own], degrees[own], rows[known:], table, positions)
        return
    if cumulative.size > 0:
        columns = nodes[own], bases[own], starts[own], degrees[own]
        fill_guided(cumulative, guides, out.times, fanout, replace, key, table, columns, rows[known:], positions)
        return
    for row in range(known, count):
        at = np.int64(rows[row])
        picks = np.int64(rows[row + 1]) - at
        if picks > 0:
            low, high = starts[row], starts[row] + degrees[row]
            state = node_state(key, nodes[row])
            pick(cumulative, low, high, np.int64(0), picks, replace, fanout, state, positions, at, table)


@kernel
def sample_new_hops(graph, fanouts, replace, keys, table, node_map, hop, out):
    """Do as the kernel `sample_hops`, but sample in each hop only the nodes that the hop before added."""
    indptr, indices, cumulative, guides = graph
    enter_seeds(node_map, hop, out)
    while hop < fanouts.size:
        known = out.node_counts[hop - 1] if hop > 0 else np.int64(0)
        if not (open_columns(indptr, hop, out) and count_new(cumulative, fanouts[hop], replace, known, hop, out)):
            return hop
        fill_new(cumulative, guides, fanouts[hop], replace, keys[hop], table, known, hop, out)
        own = slice(out.edge_counts[hop], out.edge_counts[hop + 1])
        read_neighbors(indices, out.positions[own], out.neighbors[own])
        out.node_counts[hop + 1] = relabel(node_map, out.neighbors[own], out.nodes, out.node_counts[hop])
        hop += 1
    reset_node_map(node_map, out.nodes[: out.node_counts[hop]])
    return hop
