"""Personalized PageRank of seeds."""

from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import NOTHING, brief, check_count, check_ids, check_length, check_tensors, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.count_visits import MOST_TOP, Ranked
from graphfeed.ops.structure.csc import edited

MASS = 1 << 32
"""The mass of a seed: the sum of all scores and residuals."""
LEAST_ALPHA = 1 << 21
FIRST_SLOTS = 1 << 12
"""Initial size of the hash table, which grows."""


def push_mass(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    top: int,
    alpha: int,
    bound: int,
    *,
    groups: torch.Tensor = NOTHING,
    short_degrees: torch.Tensor = NOTHING,
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
        groups: int64: the first node of each of several groups that cover the nodes, and the number of nodes. Then the
            `top` nodes of each group are returned, in a row for each seed and group.
        short_degrees: uint8: the result of `shorten_degrees`, with which the columns of most nodes are not read.

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
    check_tensors(groups=groups, short_degrees=short_degrees)
    num_nodes = max(indptr.numel() - 1, 0)
    check_ids("seeds", seeds, num_nodes)
    if not groups.numel():
        groups = torch.tensor([0, num_nodes], device="cpu")
    check_vector("groups", groups, (torch.int64,))
    bounds = groups.tolist()
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != num_nodes or bounds != sorted(bounds):
        raise ValueError(f"groups must ascend from 0 to {num_nodes}, the number of nodes, but are {brief(bounds)}")
    check_count("top", top, 0, MOST_TOP)
    check_count("alpha", alpha, LEAST_ALPHA, 1 << 31)
    check_count("bound", bound, 1, MASS)
    if short_degrees.numel():
        check_vector("short_degrees", short_degrees, (torch.uint8,))
        check_length("short_degrees", short_degrees, num_nodes, "node")
    given = {"indices": indices, "seeds": seeds, "groups": groups, "short_degrees": short_degrees}
    module = kernels("sampling.page_rank", indptr, **given)
    degrees = short_degrees.to(torch.uint8).contiguous()
    rows, width = seeds.numel() * (groups.numel() - 1), min(int(top), num_nodes)
    nodes, scores = (buffers.empty(rows * width, torch.int64) for _ in range(2))
    starts, left = (torch.zeros(size, dtype=torch.int64, device="cpu") for size in (rows + 1, seeds.numel()))
    limits, done, slots = torch.tensor([alpha, bound], device="cpu"), 0, FIRST_SLOTS
    columns = as_int64(indptr, nodes), indices.contiguous(), degrees, seeds.contiguous(), limits, groups.contiguous()
    while True:
        done = module.push_mass(*columns, done, new_table(module, slots), width, starts, nodes, scores, left)
        if done < 0:
            raise edited()
        if done == seeds.numel():
            total = int(starts[-1])
            return Ranked(starts, nodes[:total], scores[:total]), left
        slots *= 4


def shorten_degrees(indptr: torch.Tensor) -> torch.Tensor:
    """Return the number of edges of each column, or 255 for more, as uint8.

    Example:
        >>> shorten_degrees(torch.tensor([0, 3, 1000])).tolist()
        [3, 255]
    """
    # By NumPy: torch would wake its threads, which waits for busy cores.
    return torch.from_numpy(np.minimum(np.diff(indptr.numpy()), 255).astype(np.uint8))


def new_table(module: Any, slots: int) -> Any:
    """Return an empty hash table with a number of slots."""
    columns = {name: buffers.POOL.empty(slots // 2, np.int64) for name in module.PushTable._fields}
    columns["table"] = buffers.POOL.empty(slots, np.int64)
    columns["table"].fill(-1)
    return module.PushTable(**columns)
