"""Personalized PageRank of seeds."""

from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import check_count, check_ids, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.count_visits import MOST_TOP, Ranked, pick_ranked
from graphfeed.ops.structure.csc import edited

MASS = 1 << 32
"""The mass of a seed: the sum of all scores and residuals."""
LEAST_ALPHA = 1 << 21
FIRST_SLOTS = 1 << 10
"""Initial size of the hash table, which grows."""


def push_mass(
    indptr: torch.Tensor, indices: torch.Tensor, seeds: torch.Tensor, top: int, alpha: int, bound: int
) -> tuple[Ranked, torch.Tensor]:
    """Return the `top` nodes of each seed by personalized PageRank against the edges, and the mass that is left over.

    A seed begins with a residual of 2**32. In each round, all nodes with a residual of at least `bound` times their
    degree are pushed: the share `alpha` becomes part of the score, the rest is divided equally among the in-edges, and
    what can't be divided stays with the score. A node without in-edges keeps everything. So scores and residuals are
    integers whose sum is always 2**32, and don't depend on any order.

    Args:
        indptr, indices: A graph in compressed sparse columns, whose arrays are checked where they are read.
        seeds: int64: ids of nodes.
        top: Number of nodes.
        alpha: From 2**21 to 2**31, in units of 2**-31: with less, there would be thousands of rounds.
        bound: From 1 to 2**32, in units of 2**-32.

    Returns:
        The nodes with their scores, and the sum of the residuals of each seed, int64. The true score of a node is at
        most as much larger than its score as the sum of the residuals and of what could not be divided.

    Raises:
        ValueError: A seed is not a node, a number is out of range, or the graph is not valid.

    Example:
        >>> ranked, left = push_mass(torch.tensor([0, 1, 1]), torch.tensor([1]), torch.tensor([0]), 2, 1 << 30, 1)
        >>> ranked.nodes.tolist(), (ranked.values / MASS).tolist(), left.tolist()
        ([0, 1], [0.5, 0.5], [0])
    """
    for name, ids in (("indptr", indptr), ("indices", indices)):
        check_vector(name, ids)
    check_vector("seeds", seeds, (torch.int64,))
    check_ids("seeds", seeds, indptr.numel() - 1)
    check_count("top", top, 0, MOST_TOP)
    check_count("alpha", alpha, LEAST_ALPHA, 1 << 31)
    check_count("bound", bound, 1, MASS)
    module = kernels("sampling.page_rank", indptr, indices=indices, seeds=seeds)
    width = min(int(top), max(indptr.numel() - 1, 0))
    nodes, scores = (buffers.empty((seeds.numel(), width), torch.int64) for _ in range(2))
    sizes, left = (torch.zeros(seeds.numel(), dtype=torch.int64, device="cpu") for _ in range(2))
    limits, done, slots = torch.tensor([alpha, bound], device="cpu"), 0, FIRST_SLOTS
    columns = as_int64(indptr, nodes), indices.contiguous(), seeds.contiguous(), limits
    while True:
        done = module.push_mass(*columns, done, new_table(module, slots), nodes, scores, sizes, left)
        if done < 0:
            raise edited()
        if done == seeds.numel():
            return pick_ranked(nodes, scores, sizes), left
        slots *= 4


def new_table(module: Any, slots: int) -> Any:
    """Return an empty hash table with a number of slots."""
    columns = {name: buffers.POOL.empty(slots, np.int64) for name in module.PushTable._fields}
    columns["keys"].fill(-1)
    return module.PushTable(**columns)
