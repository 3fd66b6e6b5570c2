"""Efficient neighbour sampling in plain NumPy, vectorised over all seeds of a hop.

Without replacement it runs Floyd's algorithm for all rows at once, one draw after the other; a row
no longer than its fan-out is taken whole. Relabelling goes through a dense map, in which the first
appearance of a node is the one that is written last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hop:
    """Sampled in-edges of the first nodes of `nodes`."""

    nodes: Array
    """Ids of all nodes known after the hop, its seeds first."""
    indptr: Ints
    indices: Ints
    """Positions in `nodes`."""
    positions: Ints
    """Positions in the graph's edge arrays."""


class Sampler:
    """Samples all hops of a mini-batch, each from all nodes found so far."""

    def __init__(self, indptr: Array, indices: Array, *, replace: bool = False) -> None:
        self.indptr = indptr
        self.indices = indices
        self.replace = replace
        self.last_seen = np.empty(len(indptr) - 1, np.int64)
        self.rng = np.random.default_rng(0)

    def sample(self, seeds: Array, fanouts: Sequence[int]) -> list[Hop]:
        """Return the hops, starting with that of the seeds. The fan-outs have the same order."""
        hops: list[Hop] = []
        nodes = seeds
        for fanout in fanouts:
            counts, positions = self.pick(nodes, fanout)
            nodes, labels = self.relabel(np.concatenate([nodes, self.indices[positions]]))
            indptr = np.concatenate([[0], np.cumsum(counts)])
            hops.append(Hop(nodes, indptr, labels[len(counts) :], positions))
        return hops

    def pick(self, seeds: Array, fanout: int) -> tuple[Ints, Ints]:
        """Return the number of edges of each seed, and their concatenated positions."""
        starts = self.indptr[seeds]
        degrees = self.indptr[seeds + 1] - starts
        if self.replace:
            counts = np.where(degrees > 0, fanout, 0)
            draws = self.rng.random((len(seeds), fanout)) * degrees[:, None]
            offsets = draws.astype(np.int64)
        else:
            counts = np.minimum(degrees, fanout)
            offsets = self.distinct(degrees, fanout)
        kept = np.arange(fanout) < counts[:, None]
        return counts, (starts[:, None] + offsets)[kept]

    def distinct(self, degrees: Ints, fanout: int) -> Ints:
        """Draw `fanout` distinct numbers below each degree, or all of them if the degree is smaller."""
        offsets = np.empty((len(degrees), fanout), np.int64)
        for draw in range(fanout):
            last = degrees - fanout + draw
            pick = (self.rng.random(len(degrees)) * (last + 1)).astype(np.int64)
            taken = (offsets[:, :draw] == pick[:, None]).any(axis=1)
            offsets[:, draw] = np.where(taken, last, pick)
        short = degrees <= fanout
        offsets[short] = np.arange(fanout)
        return offsets

    def relabel(self, nodes: Array) -> tuple[Array, Ints]:
        """Return the distinct nodes by first appearance, and the position of each node in them."""
        order = np.arange(len(nodes))
        self.last_seen[nodes[::-1]] = order[::-1]
        first = self.last_seen[nodes]
        is_new = first == order
        return nodes[is_new], (np.cumsum(is_new) - 1)[first]
