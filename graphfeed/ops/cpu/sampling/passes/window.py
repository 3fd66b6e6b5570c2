"""Passes for windows of mini-batches, which a program samples one after the other: they open each and keep its hops."""

import numpy as np

from graphfeed.ops.cpu.jit import UInt64s, kernel
from graphfeed.ops.cpu.sampling.passes.state import (
    EDGES,
    FIRST_SEED,
    NUMBER,
    ROWS,
    SHORT,
    STARTS,
    ColumnStarts,
    KeptHops,
    Moments,
    NodeIds,
    PickBlock,
    Relations,
    RowBlock,
    RowTable,
    Runs,
    SeedWindow,
)


@kernel
def open_minibatch(
    draws: UInt64s, window: SeedWindow, rows: RowBlock, nodes: NodeIds, moments: Moments, table: RowTable, columns: Runs
) -> None:
    """Copy the keys of the next mini-batch, and its seeds with their times and trees."""
    number, seed, tree, kinds = window.places[NUMBER], window.places[FIRST_SEED], np.int64(0), rows.known.shape[1]
    for place in range(draws.size):
        draws[place] = window.keys[number * draws.size + place]
    for kind in range(kinds):
        count, first = window.counts[number * kinds + kind], rows.firsts[kind]
        rows.known[0, kind] = count
        for place in range(count):
            row = np.uintp(first + place)
            nodes.rows[row] = window.seeds[np.uintp(seed)]
            if window.times.size > 0:
                moments.times[row] = window.times[np.uintp(seed)]
            if window.windows.size > 0:
                moments.windows[row] = window.windows[np.uintp(seed)]
            if table.trees.size > 0:
                table.trees[row] = tree
            seed += 1
            tree += 1
    columns.offsets[0] = 0
    window.places[NUMBER], window.places[FIRST_SEED] = number + 1, seed


@kernel
def keep_hops(
    kinds: Relations, starts: ColumnStarts, rows: RowBlock, nodes: NodeIds, edges: PickBlock, kept: KeptHops
) -> int:  # fmt: skip
    """Append the rows, edges and column starts of a mini-batch to those of the ones before."""
    hops, ends, needed = kinds.indptr_starts.shape[0], kept.ends, kept.needed
    num_edges, num_starts = kinds.edge_starts[hops, 0], kinds.indptr_ends[hops]
    needed[ROWS], needed[EDGES], needed[STARTS] = ends[ROWS], ends[EDGES] + num_edges, ends[STARTS] + num_starts
    for kind in range(rows.known.shape[1]):
        needed[ROWS] += rows.known[hops, kind]
    if (
        kept.rows.size < needed[ROWS]
        or kept.neighbors.size < needed[EDGES]
        or kept.positions.size < needed[EDGES]
        or kept.indptr.size < needed[STARTS]
    ):
        return SHORT
    at = ends[ROWS]
    for kind in range(rows.known.shape[1]):
        for row in range(rows.known[hops, kind]):
            kept.rows[np.uintp(at + row)] = nodes.rows[np.uintp(rows.firsts[kind] + row)]
        at += rows.known[hops, kind]
    at = ends[EDGES]
    for edge in range(num_edges):
        kept.neighbors[np.uintp(at + edge)] = nodes.neighbors[np.uintp(edge)]
    for edge in range(num_edges):
        kept.positions[np.uintp(at + edge)] = edges.positions[np.uintp(edge)]
    at = ends[STARTS]
    for place in range(num_starts):
        kept.indptr[np.uintp(at + place)] = starts.indptr[np.uintp(place)]
    ends[ROWS], ends[EDGES], ends[STARTS] = needed[ROWS], needed[EDGES], needed[STARTS]
    return 0


@kernel
def record_bounds(window: SeedWindow, kinds: Relations, rows: RowBlock, kept: KeptHops) -> None:
    """Append the bounds of a mini-batch's hops to the records."""
    sizes = rows.known.size + kinds.edge_starts.size + kinds.indptr_starts.size + kinds.indptr_ends.size
    at = (window.places[NUMBER] - 1) * sizes
    for row in range(rows.known.shape[0]):
        for kind in range(rows.known.shape[1]):
            kept.records[at] = rows.known[row, kind]
            at += 1
    for row in range(kinds.edge_starts.shape[0]):
        for kind in range(kinds.edge_starts.shape[1]):
            kept.records[at] = kinds.edge_starts[row, kind]
            at += 1
    for row in range(kinds.indptr_starts.shape[0]):
        for kind in range(kinds.indptr_starts.shape[1]):
            kept.records[at] = kinds.indptr_starts[row, kind]
            at += 1
    for row in range(kinds.indptr_ends.size):
        kept.records[at] = kinds.indptr_ends[row]
        at += 1
