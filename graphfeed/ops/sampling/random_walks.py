"""Random walks along the edges of a graph."""

import torch

from graphfeed.ops.arguments import LARGEST, MOST_VALUES, check_count, check_ids, check_seed, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import edited


def random_walks(
    indptr: torch.Tensor, indices: torch.Tensor, starts: torch.Tensor, num_steps: int, key: int, first_step: int = 0
) -> torch.Tensor:
    """Return the nodes of uniform random walks, int64, shape (walks, num_steps + 1), beginning with `starts`.

    A step leads from a column to the source of one of its in-edges, so walks go against the direction of the edges.
    A walk that reaches a node without in-edges stays there. Walk `i` depends only on the key, its start and `i`.
    `starts` is int32 or int64. `first_step` is the number of steps that the walks have already taken.

    Raises:
        ValueError: A start is not a node of the graph, a number of steps is negative, or the graph is not valid.

    Example:
        >>> random_walks(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2]), torch.tensor([0, 1]), 3, 7)
        tensor([[0, 1, 2, 2],
                [1, 2, 2, 2]])
    """
    # The kernel checks what it reads.
    check_vector("indptr", indptr)
    check_vector("indices", indices)
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
