"""Which nodes lie in the large columns, so that those need not be read to find the neighbours of small variates."""

from typing import NamedTuple

import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels
from graphfeed.ops.checks import check_vector

LEAST_EDGES = 1024
"""A shorter column is read as soon as its neighbours are looked up."""
PART = 3
"""At most one of so many edges is in the index."""


class HubIndex(NamedTuple):
    """Large columns, by their neighbours."""

    columns: torch.Tensor
    """int64: their node ids, by degree, of equal degree by id; an entry's hub is a position in them."""
    degrees: torch.Tensor
    """int64: how many edges each has."""
    starts: torch.Tensor
    """int64, shape (nodes + 1,): where the entries of each node begin."""
    entries: torch.Tensor
    """int64, ascending in each node: the hub times 2**32, plus the place of an edge from this node in its column."""


def index_hubs(indptr: torch.Tensor, indices: torch.Tensor) -> HubIndex:
    """Index the largest columns, at most a third of all edges.

    Made once a graph, in one pass over these edges with two random writes each; 8 bytes for each of them, and 8 a node.

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source node of each edge, int32 or int64, each one of the nodes.

    Raises:
        TypeError: A tensor of another dtype.

    Example:
        >>> index_hubs(torch.tensor([0, 2, 4]), torch.tensor([0, 1, 1, 1])).columns
        tensor([], dtype=torch.int64)
    """
    check_vector("indptr", indptr)
    check_vector("indices", indices)
    degrees = indptr.diff().to(torch.int64)
    columns = torch.nonzero((degrees >= LEAST_EDGES) & (degrees < 1 << 32)).flatten()
    columns = columns[degrees[columns].argsort(stable=True)]
    sizes = degrees[columns]
    kept = sizes.flip(0).cumsum(0).flip(0) <= indices.numel() // PART
    columns, sizes = columns[kept], sizes[kept]
    starts = buffers.empty_long_lived(indptr.numel() if len(columns) else 1, torch.int64, indptr.device).zero_()
    entries = buffers.empty_long_lived(int(sizes.sum()), torch.int64, indptr.device)
    if len(columns):
        graph = (indptr.numpy(), indices.numpy(), columns.numpy())
        kernels("sampling.high_degree_index", indptr).index_hubs(*graph, starts.numpy(), entries.numpy())
    return HubIndex(columns, sizes, starts, entries)
