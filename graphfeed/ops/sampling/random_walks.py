"""Walk at random along the edges of a graph."""

import torch

from graphfeed.ops.arguments import LARGEST, MOST_VALUES, check_count, check_ids, check_seed, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import edited, ensure_csc


def random_walks(
    indptr: torch.Tensor, indices: torch.Tensor, starts: torch.Tensor, num_steps: int, key: int, first_step: int = 0
) -> torch.Tensor:
    """Return the nodes of random walks: each step goes along one of a node's edges, all of them equally likely.

    A step leads from a column to the source of one of its edges, so against the direction of a graph in compressed
    sparse columns. A walk that comes to a node without edges stays there. Walk `i` is a function of the key, of its
    start and of `i` alone. The result is int64, shape (walks, num_steps + 1): the starts, int32 or int64, come first.
    `first_step` is how many steps the walks have taken before.

    Raises:
        ValueError: A start lies outside of the graph, a number of steps is negative, or the arrays are not a graph's.

    Example:
        >>> random_walks(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2]), torch.tensor([0, 1]), 3, 7)
        tensor([[0, 1, 2, 2],
                [1, 2, 2, 2]])
    """
    ensure_csc(indptr, indices)
    check_vector("starts", starts)
    check_ids("starts", starts, indptr.numel() - 1)
    check_count("num_steps", num_steps, 0, MOST_VALUES)
    check_count("first_step", first_step, 0, LARGEST)
    check_seed("key", key)
    module = kernels("sampling.random_walks", indptr, indices=indices, starts=starts)
    out = buffers.empty((starts.numel(), num_steps + 1), torch.int64, indptr.device)
    given = as_int64(indptr, out), indices.contiguous(), as_int64(starts, out)
    if not module.random_walks(*given, key, first_step, out):
        raise edited()
    return out
