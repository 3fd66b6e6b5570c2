"""Assigns nodes to parts in a stream: block by block, each node to the part that has most of its neighbours."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.progress import progress_bar
from graphfeed.storage.graph.graph_arrays import GraphArrays

PASSES = 10
"""How often the graph is read at most."""
SETTLED = 0.001
"""No further pass is made after one that moves no larger share of the nodes."""
SLACK = 0.03
"""By which share a part may have more nodes of a type than the mean."""
BLOCKS = 64
"""Nodes of a block don't see where the others go; so a node type has this many blocks at least."""
BLOCK_SCORES = 1 << 19
"""How many pairs of a node and a part are looked at together."""
BLOCK_EDGES = 1 << 19
"""How many edges are read together."""

Ints = NDArray[np.int64]


def ldg_memory(num_nodes: int, num_parts: int) -> int:
    """Return how many bytes `assign_by_ldg` takes at most beside the graph, however many edges that has.

    Example:
        >>> ldg_memory(num_nodes=111_000_000, num_parts=8) / 2**20 < 500
        True
    """
    scores = max(BLOCK_SCORES, min(num_parts, num_nodes))
    return 4 * num_nodes + 64 * scores + 64 * BLOCK_EDGES + (1 << 20)


def assign_by_ldg(graph: GraphArrays, num_parts: int) -> torch.Tensor:
    """Return the part of each node by linear deterministic greedy partitioning, in several passes.

    A node goes to the part where most of its in-neighbours are, weighted by the room that is left there (Stanton and
    Kliot: Streaming graph partitioning for large distributed graphs, KDD 2012). Later passes see where all other nodes
    went before (Nishimura and Ugander: Restreaming graph partitioning, KDD 2013). A part has at most 3 percent more
    nodes of each type than the mean, rounded up. Nodes without neighbours in any part fill the emptiest parts.

    Only in-edges are read, in order, so that the arrays may be mapped files larger than memory. A graph with edges in
    both directions is partitioned best. Ten passes over 10 million edges took six seconds.

    Args:
        graph: The graph.
        num_parts: The number of parts.

    Returns:
        int32, shape (nodes,), in the order of the graph's ids.
    """
    indptr, indices = graph.csc_indptr.cpu().numpy(), graph.indices.cpu().numpy()
    offsets = [0, graph.total_num_nodes] if graph.node_type_offset is None else graph.first_ids()
    parts = np.full(graph.total_num_nodes, -1, dtype=np.int32)
    # Empty parts are filled from the first on, so that no part behind the number of nodes gets any.
    filled = min(num_parts, max(graph.total_num_nodes, 1))
    # One slot more, for nodes that have no part yet.
    loads = np.zeros((len(offsets) - 1, filled + 1), dtype=np.int64)
    with progress_bar("assigning nodes", PASSES * indices.size, "edge") as progress:
        for _ in range(PASSES):
            moved = 0
            for kind, (first, last) in enumerate(pairwise(offsets)):
                limit = int(np.ceil((last - first) / num_parts * (1 + SLACK)))
                for start, stop in blocks(first, last, num_parts):
                    before = parts[start:stop].copy()
                    loads[kind] -= np.bincount(before + 1, minlength=filled + 1)
                    neighbors = count_neighbors(indptr[start : stop + 1], indices, parts, filled)
                    parts[start:stop] = place(neighbors, loads[kind, 1:], limit)
                    loads[kind] += np.bincount(parts[start:stop] + 1, minlength=filled + 1)
                    moved += int(np.count_nonzero(parts[start:stop] != before))
                    progress.update(int(indptr[stop] - indptr[start]))
            if moved <= SETTLED * parts.size:
                break
    return torch.from_numpy(parts)


def blocks(first: int, last: int, num_parts: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of nodes that are placed together."""
    step = max(min((last - first) // BLOCKS, BLOCK_SCORES // num_parts), 1)
    for start in range(first, last, step):
        yield start, min(start + step, last)


def count_neighbors(indptr: NDArray[Any], indices: NDArray[Any], parts: NDArray[np.int32], num_parts: int) -> Ints:
    """Return how many in-neighbours each node of a block has in each part, shape (nodes, parts)."""
    size = indptr.size - 1
    counts = np.zeros(size * (num_parts + 1), dtype=np.int64)
    for start in range(int(indptr[0]), int(indptr[-1]), BLOCK_EDGES):
        stop = min(start + BLOCK_EDGES, int(indptr[-1]))
        slots = np.repeat(np.arange(size) * (num_parts + 1), np.diff(indptr.clip(start, stop)))
        slots += parts[indices[start:stop]]
        slots += 1
        counts += np.bincount(slots, minlength=counts.size)
    return counts.reshape(size, num_parts + 1)[:, 1:]


def place(neighbors: Ints, loads: Ints, limit: int) -> NDArray[np.int32]:
    """Return a part for each node of a block, such that no part has more than `limit` nodes.

    Where more nodes want to a part than it has room for, those that want it most are first.

    Args:
        neighbors: How many neighbours each node has in each part.
        loads: How many nodes each part has without the block.
        limit: How many it may have.
    """
    found = np.full(len(neighbors), -1, dtype=np.int32)
    room = limit - loads
    scores = neighbors * room
    waiting = np.flatnonzero(scores.max(axis=1, initial=0) > 0)
    while waiting.size:
        best = scores[waiting].argmax(axis=1)
        order = np.lexsort((-scores[waiting, best], best))
        wanted = best[order]
        rank = np.arange(wanted.size) - np.searchsorted(wanted, wanted)
        fits = rank < room[wanted]
        found[waiting[order[fits]]] = wanted[fits]
        room -= np.bincount(wanted[fits], minlength=room.size)
        scores[:, room == 0] = 0
        waiting = np.sort(waiting[order[~fits]])
        waiting = waiting[scores[waiting].max(axis=1, initial=0) > 0]
    others = np.flatnonzero(found < 0)
    found[others] = np.repeat(np.arange(room.size), fill(limit - room, others.size))
    return found


def fill(loads: Ints, count: int) -> Ints:
    """Return how many of some nodes each part gets, so that the emptiest parts are filled to one level."""
    rising = np.sort(loads)
    # How many nodes it takes to fill all parts below each part's level up to it.
    needed = np.arange(rising.size) * rising - (np.cumsum(rising) - rising)
    filled = int(np.searchsorted(needed, count, side="right"))
    level, rest = divmod(count + int(rising[:filled].sum()), filled)
    gets = np.maximum(level - loads, 0)
    gets[np.argsort(loads, kind="stable")[:rest]] += 1
    return gets
