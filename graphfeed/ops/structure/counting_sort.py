"""A counting sort of edges that arrive in chunks: the first pass counts them, the second assigns slots."""

import numpy as np
import torch

from graphfeed.ops.arguments import check_ids, check_vector
from graphfeed.ops.backend import kernels


def count_edges(destinations: torch.Tensor, counts: torch.Tensor) -> None:
    """Add the in-degrees of a chunk of an edge list to `counts`, int64, in one pass over the chunk.

    Raises:
        ValueError: An id is out of range.
    """
    check_vector("destinations", destinations)
    check_vector("counts", counts, (torch.int64,))
    check_ids("destinations", destinations, counts.numel())
    kernels("structure.counting_sort", counts).count_edges(destinations.contiguous(), counts)


def assign_slots(destinations: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Return the slot of each edge of a chunk of an edge list, int64, in the list sorted by destination.

    `starts`, int64, has the slot of the next edge of each node, and is advanced for the next chunk.

    Raises:
        ValueError: An id is out of range.

    Example:
        >>> starts = torch.tensor([0, 2])
        >>> assign_slots(torch.tensor([1, 0]), starts), assign_slots(torch.tensor([0, 1]), starts)
        (tensor([2, 0]), tensor([1, 3]))
    """
    check_vector("destinations", destinations)
    check_vector("starts", starts, (torch.int64,))
    check_ids("destinations", destinations, starts.numel())
    places = np.empty(destinations.numel(), dtype=np.int64)
    kernels("structure.counting_sort", starts).assign_slots(destinations.contiguous(), starts, places)
    return torch.from_numpy(places)
