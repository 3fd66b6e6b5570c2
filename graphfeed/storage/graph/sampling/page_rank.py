"""Personalized PageRank with one hop for each round."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import brief, check_count
from graphfeed.ops.sampling import MASS, MOST_TOP, Ranked

if TYPE_CHECKING:
    from graphfeed.storage.graph.sampling_graph import SamplingGraph

Ints = NDArray[np.int64]


def rank_by_hops(graph: "SamplingGraph", seeds: torch.Tensor, top: int, alpha: int, bound: int) -> Ranked:
    """Return the result of `ops.push_mass` by reading the in-edges of all nodes that a round may push in one hop."""
    size, rows = int(graph.num_nodes), np.arange(len(seeds))  # type: ignore[arg-type]
    # A number for each pair of a seed and a node that it has reached.
    keys, residuals = rows * size + seeds.numpy(), np.full(len(seeds), MASS)
    scores = np.zeros_like(residuals)
    known, degrees = np.empty(0, np.int64), np.empty(0, np.int64)
    while True:
        pushed = np.flatnonzero(residuals >= bound)
        # The degree of a node that was never read is unknown.
        pushed = pushed[residuals[pushed] >= bound * np.maximum(look_up(known, degrees, keys[pushed] % size), 1)]
        if not len(pushed):
            break
        nodes = np.unique(keys[pushed] % size)
        csc = graph.in_subgraph(torch.from_numpy(nodes).to(seeds.dtype)).sampled_csc
        indptr, sources = csc.indptr.numpy().astype(np.int64), csc.indices.numpy().astype(np.int64)
        known, first = np.unique(np.concatenate([known, nodes]), return_index=True)
        degrees = np.concatenate([degrees, np.diff(indptr)])[first]
        column = np.searchsorted(nodes, keys[pushed] % size)
        counts = np.diff(indptr)[column]
        enough = residuals[pushed] >= bound * np.maximum(counts, 1)
        pushed, column, counts = pushed[enough], column[enough], counts[enough]
        amounts = residuals[pushed].astype(np.uint64)
        rest = (amounts - np.maximum(amounts * np.uint64(alpha) >> np.uint64(31), np.uint64(1))).astype(np.int64)
        shares = rest // np.maximum(counts, 1) * (counts > 0)
        scores[pushed] += residuals[pushed] - shares * counts
        residuals[pushed] = 0
        # The positions of the in-edges of all pushed nodes.
        places = np.arange(counts.sum()) + np.repeat(indptr[:-1][column] - np.cumsum(counts) + counts, counts)
        reached = np.repeat(keys[pushed] // size * size, counts) + sources[places]
        keys, owners = np.unique(np.concatenate([keys, reached]), return_inverse=True)
        before = len(residuals)
        # Sums of up to 2**32 are exact in float64.
        added = np.concatenate([residuals, np.repeat(shares, counts)])
        residuals = np.bincount(owners, added, len(keys)).astype(np.int64)
        scores = np.bincount(owners[:before], scores, len(keys)).astype(np.int64)
    return take_best(keys // size, keys % size, scores, len(seeds), top)


def check_page_rank(edge_types: Sequence[str], top: int, alpha: float, bound: float) -> None:
    """Raise unless a graph with these edge types can rank nodes by these parameters."""
    if edge_types:
        raise ValueError(f"PageRank needs a graph without types, but it has {brief(list(edge_types))}")
    check_count("top", top, 1, MOST_TOP)
    if not 0.001 <= alpha <= 1:
        raise ValueError(f"alpha must be in 0.001 .. 1, but is {brief(alpha)}")
    if not 0 < bound <= 1:
        raise ValueError(f"bound must be above 0 and at most 1, but is {brief(bound)}")


def look_up(known: Ints, values: Ints, wanted: Ints) -> Ints:
    """Return the values of known numbers, which ascend; 0 for others."""
    if not len(known):
        return np.zeros_like(wanted)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[places] == wanted, values[places], 0)


def take_best(rows: Ints, nodes: Ints, scores: Ints, num_rows: int, top: int) -> Ranked:
    """Return the nodes with the highest scores of each row."""
    order = np.lexsort((nodes, -scores, rows))
    order = order[scores[order] > 0]
    starts = np.searchsorted(rows[order], np.arange(num_rows))
    order = order[np.arange(len(order)) - starts[rows[order]] < top]
    indptr = np.searchsorted(rows[order], np.arange(num_rows + 1))
    return Ranked(*map(torch.from_numpy, (indptr, nodes[order], scores[order])))
