"""Kernel of all hops of LABOR on a graph of one type, in one call without the interpreter lock."""

import numpy as np

from graphfeed.ops.cpu.jit import device_function, kernel, prefetch, without_refcount
from graphfeed.ops.cpu.sampling.bottom_k import COLUMNS_AHEAD, pick_candidates, prefetch_column, sort
from graphfeed.ops.cpu.sampling.high_degree_index import collect_by_index
from graphfeed.ops.cpu.sampling.labor_sample_neighbors import new_scratch, pick_labor, uncounted
from graphfeed.ops.cpu.sampling.sample_hops import (
    column_starts,
    count_hop,
    enter_seeds,
    open_columns,
    relabel,
    reset_node_map,
)

ROWS_BEHIND = 4
"""How many rows after its picks a row's sources are read: by then those that an index has found are prefetched, and
those of columns that were read are in the cache still."""


@device_function
def pick_by_index(indices, bucket, counts, high_halves, candidates, low, scratch, places):
    """Choose from the candidates that the index has found for a column; return whether that was possible."""
    size = counts[bucket]
    if not places.size <= size <= candidates.shape[1]:
        return False
    if not pick_candidates(indices, high_halves[bucket], candidates[bucket], scratch[4], size, low, places):
        return False
    sort(places)
    for place in places:
        prefetch(indices, np.intp(place))
    return True


@device_function
def fill_hop(indices, cumulative, index, nodes, fanout, replace, draws, starts, degrees, rows, positions, neighbors):
    """Write the sampled edges of each node of a hop, and their sources."""
    scratch = new_scratch(rows)
    row_buckets = np.empty(nodes.size, np.int32)
    # Weights and replacement scale the limit of each edge, so no column has one limit for all.
    indexed = fanout if cumulative.size == 0 and not replace else 0
    counts, high_halves, candidates = collect_by_index(index, nodes, indexed, draws, degrees, row_buckets)
    fill_rows(
        indices, cumulative, fanout, replace, draws, starts, degrees, rows, row_buckets, counts, high_halves,
        candidates, scratch, positions, neighbors,
    )  # fmt: skip


@device_function
def fill_rows(
    indices, cumulative, fanout, replace, draws, starts, degrees, rows, row_buckets, counts, high_halves, candidates,
    scratch, positions, neighbors,
):  # fmt: skip
    """Do so, given the candidates that the index has found for the rows; the caller keeps the arrays."""
    indices, cumulative = without_refcount(indices), without_refcount(cumulative)
    positions, neighbors = without_refcount(positions), without_refcount(neighbors)
    high_halves, candidates = without_refcount(high_halves), without_refcount(candidates)
    scratch = uncounted(scratch)
    last = rows.size - 2
    for row in range(last + 1 + ROWS_BEHIND if last >= 0 else 0):
        coming = min(row + COLUMNS_AHEAD, last)
        if row_buckets[coming] < 0:
            prefetch_column(indices, starts[coming], degrees[coming])
        if row <= last:
            places = positions[rows[row] : rows[row + 1]]
            low, high, bucket = starts[row], starts[row] + degrees[row], row_buckets[row]
            found = places.size == 0
            if bucket >= 0 and not found:
                found = pick_by_index(indices, bucket, counts, high_halves, candidates, low, scratch, places)
            if not found:
                pick_labor(indices, cumulative, low, high, 0, replace, fanout, draws, scratch, places)
        if row >= ROWS_BEHIND:
            for edge in range(rows[row - ROWS_BEHIND], rows[row - ROWS_BEHIND + 1]):
                neighbors[np.uintp(edge)] = indices[np.uintp(positions[np.uintp(edge)])]


@kernel
def labor_sample_hops(graph, index, fanouts, replace, keys, switch_threshold, node_map, hop, out):
    """Sample from hop `hop` on until an output is too short; return the hop reached (see `sample_hops`).

    Args:
        graph: `indptr`, `indices` and `cumulative`.
        index: The arrays of a `HighDegreeIndex`; empty arrays index nothing.
        fanouts: One number per hop.
        replace: Whether an edge may be chosen more than once.
        keys: Two per hop.
        switch_threshold: Which part of the nodes draws by the second key.
        node_map: The position of each known node, -1 elsewhere; reset after the last hop.
        hop: The hop to begin with.
        out: The arrays of `HopArrays`.
    """
    indptr, indices, cumulative = graph
    enter_seeds(node_map, hop, out)
    while hop < fanouts.size:
        if not (open_columns(indptr, hop, out) and count_hop(cumulative, fanouts[hop], replace, hop, out)):
            return hop
        count, own = out.node_counts[hop], slice(out.edge_counts[hop], out.edge_counts[hop + 1])
        positions, neighbors = out.positions[own], out.neighbors[own]
        fill_hop(
            indices, cumulative, index, out.nodes[:count], fanouts[hop], replace,
            (keys[hop, 0], keys[hop, 1], switch_threshold), out.starts, out.degrees, column_starts(hop, out), positions,
            neighbors,
        )  # fmt: skip
        out.node_counts[hop + 1] = relabel(node_map, neighbors, out.nodes, count)
        hop += 1
    reset_node_map(node_map, out.nodes[: out.node_counts[hop]])
    return hop
