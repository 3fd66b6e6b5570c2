"""A counting sort of edges that come in parts: first all are counted, then each is assigned its slot."""

import numpy as np
import torch

from graphfeed.ops.arguments import check_ids, check_vector
from graphfeed.ops.backend import kernels


def count_edges(destinations: torch.Tensor, counts: torch.Tensor) -> None:
    """Add to `counts` how many of the edges end at each node, in one pass over the part.

    Args:
        destinations: A part of the edge list, int32 or int64.
        counts: int64, one per node; updated in place.

    Raises:
        TypeError: The ids are neither int32 nor int64.
        ValueError: An id is not one of the nodes.
    """
    check_vector("destinations", destinations)
    check_vector("counts", counts, (torch.int64,))
    check_ids("destinations", destinations, counts.numel())
    kernels("structure.counting_sort", counts).count_edges(destinations.contiguous(), counts)


def assign_slots(destinations: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Return each edge's slot in an order by destination, and advance `starts` for the next part.

    Args:
        destinations: A part of the edge list, int32 or int64.
        starts: int64, one per node: the slot of its next edge; updated in place.

    Returns:
        int64, one per edge.

    Raises:
        TypeError: The ids are neither int32 nor int64.
        ValueError: An id is not one of the nodes.

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
