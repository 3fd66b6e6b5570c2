"""The nodes that walks visit most."""

from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import check_count, check_tensors, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers

MOST_TOP = 1 << 24
"""Upper limit of the number of nodes of a seed."""


class Ranked(NamedTuple):
    """The best nodes of each seed, by descending value, then by id."""

    indptr: torch.Tensor
    """int64, shape (seeds + 1,): the first node of each seed."""
    nodes: torch.Tensor
    """int64: the nodes."""
    values: torch.Tensor
    """int64: the number of visits of each node, or its score."""


def count_visits(visits: torch.Tensor, top: int) -> Ranked:
    """Return the `top` nodes that each row of visits has most often, with their numbers; -1 is not counted.

    Args:
        visits: int64, shape (seeds, visits).

    Raises:
        ValueError: The visits have another shape, or `top` is out of range.

    Example:
        >>> count_visits(torch.tensor([[4, 2, 4, -1, 3]]), 2)
        Ranked(indptr=tensor([0, 2]), nodes=tensor([4, 2]), values=tensor([2, 1]))
    """
    check_tensors(visits=visits)
    check_vector("visits", visits.flatten(), (torch.int64,))
    check_count("top", top, 0, MOST_TOP)
    if visits.dim() != 2:
        raise ValueError(f"visits must have 2 dimensions, one row per seed, but has shape {tuple(visits.shape)}")
    module = kernels("sampling.count_visits", visits)
    width = min(int(top), visits.shape[1])
    nodes, counts = (buffers.empty(len(visits) * width, torch.int64, visits.device) for _ in range(2))
    starts = torch.zeros(len(visits) + 1, dtype=torch.int64, device=visits.device)
    # By NumPy: torch would wake its threads, which waits for busy cores.
    ordered = torch.from_numpy(np.sort(visits.numpy(), axis=1)) if visits.is_cpu else visits.sort(1).values
    module.count_visits(ordered, width, starts, nodes, counts)
    total = int(starts[-1])
    return Ranked(starts, nodes[:total], counts[:total])
