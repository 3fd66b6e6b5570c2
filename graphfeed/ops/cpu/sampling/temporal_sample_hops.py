"""All hops of a mini-batch in time on a graph of one type, in one call without the interpreter lock."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel
from graphfeed.ops.cpu.random import timed_state
from graphfeed.ops.cpu.sampling.pick import LOOK_BACK, pick, pick_few, pick_many
from graphfeed.ops.cpu.sampling.temporal_eligibility import close_timed_hop, open_timed_hop, weight_before


@device_function
def take_latest(starts, sizes, out_indptr, positions):
    """Write the last edges of each column."""
    for row in range(starts.size):
        at, to = out_indptr[row], out_indptr[row + 1]
        rank = starts[row] + sizes[row] - (to - at)
        for edge in range(at, to):
            positions[edge] = rank
            rank += 1


@device_function
def fill_plain(nodes, row_times, key, starts, sizes, out_indptr, table, positions):
    """Write the sampled edges of each node: no weights, no replacement."""
    at = np.int64(0)
    for row in range(nodes.size):
        end = np.int64(out_indptr[row + 1])
        count, low, size = end - at, starts[row], sizes[row]
        if count == size:
            for number in range(count):
                positions[np.uintp(at + number)] = low + number
        elif count <= LOOK_BACK:
            pick_few(low, size, count, timed_state(key, nodes[row], row_times[row]), positions, at)
        else:
            pick_many(low, size, count, timed_state(key, nodes[row], row_times[row]), positions, at, table)
        at = end


@device_function
def fill_any(
    cumulative, nodes, row_times, fanout, replace, key, bases, starts, sizes, out_indptr, table, positions
):  # fmt: skip
    """Write the sampled edges of each node, weighted or with replacement."""
    for row in range(nodes.size):
        at = np.int64(out_indptr[row])
        count = np.int64(out_indptr[row + 1]) - at
        if count > 0:
            low = starts[row]
            before = weight_before(cumulative, bases[row], low)
            state = timed_state(key, nodes[row], row_times[row])
            pick(cumulative, low, low + sizes[row], before, count, replace, fanout, state, positions, at, table)


@kernel
def temporal_sample_hops(
    indptr, indices, times, order, links, edge_times, cumulative, fanouts, replace, latest, window, keys, table, hop,
    nodes, row_times, node_counts, bases, starts, sizes, out_indptr, edge_counts, positions, neighbors,
):  # fmt: skip
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `sample_hops`)."""
    while hop < fanouts.size:
        row = open_timed_hop(
            indptr, times, cumulative, fanouts, replace, window, hop, nodes, row_times, node_counts, bases, starts,
            sizes, out_indptr, edge_counts, positions,
        )  # fmt: skip
        if row < 0:
            return hop
        count, fanout = node_counts[hop], fanouts[hop]
        columns, at_times, low, many = nodes[:count], row_times[:count], starts[:count], sizes[:count]
        rows = out_indptr[row : row + count + 1]
        picked = positions[edge_counts[hop] : edge_counts[hop + 1]]
        if latest:
            take_latest(low, many, rows, picked)
        elif cumulative.size == 0 and not replace:
            fill_plain(columns, at_times, keys[hop], low, many, rows, table, picked)
        else:
            fill_any(cumulative, columns, at_times, fanout, replace, keys[hop], bases, low, many, rows, table, picked)
        close_timed_hop(
            indices, order, links, edge_times, hop, nodes, row_times, node_counts, bases, rows, edge_counts,
            positions, neighbors,
        )  # fmt: skip
        hop += 1
    return hop
