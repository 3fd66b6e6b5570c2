"""A counting sort of edges that come in parts: first all are counted, then each is assigned its slot."""

import numpy as np
import torch

from graphfeed.ops.arguments import check_ids, check_vector
from graphfeed.ops.backend import kernels


def count_edges(destinations: torch.Tensor, counts: torch.Tensor) -> None:
    """Add to `counts`, int64, how many edges of a part of an edge list end at each node, in one pass over the part.

    Raises:
        ValueError: An id is not one of the nodes.
    """
    check_vector("destinations", destinations)
    check_vector("counts", counts, (torch.int64,))
    check_ids("destinations", destinations, counts.numel())
    kernels("structure.counting_sort", counts).count_edges(destinations.contiguous(), counts)


def assign_slots(destinations: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Return the slot of each edge of a part of an edge list, int64, in an order by destination.

    `starts`, int64, has the slot of each node's next edge, and is advanced for the next part.

    Raises:
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
