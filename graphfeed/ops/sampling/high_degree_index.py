"""An index of high-degree columns. LABOR uses it to find neighbours with small variates without reading the columns."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_ids, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits
from graphfeed.ops.structure.csc import check_columns, edited


class HighDegreeIndex(NamedTuple):
    """The edges of the largest columns, grouped by source node."""

    columns: torch.Tensor
    """int64: node ids of the indexed columns, sorted by degree, then id. A column's number is its position here."""
    degrees: torch.Tensor
    """int64: degree of each indexed column."""
    starts: torch.Tensor
    """int64, shape (nodes + 1,): where the entries of each node begin."""
    entries: torch.Tensor
    """int64, ascending for each node: the column's number times 2**32, plus the edge's offset in that column."""


def build_high_degree_index(indptr: torch.Tensor, indices: torch.Tensor) -> HighDegreeIndex:
    """Build an index from each node to the largest columns that it is a source of.

    Columns with at most a third of all edges are indexed, once per graph. This takes one pass over these edges with two
    random writes each, and 8 bytes per indexed edge and per node.

    Raises:
        ValueError: The arrays are not a valid graph in CSC.

    Example:
        >>> build_high_degree_index(torch.tensor([0, 2, 4]), torch.tensor([0, 1, 1, 1])).columns
        tensor([], dtype=torch.int64)
    """
    check_vector("indices", indices)
    check_columns("indptr", indptr, indices.numel())  # each time: undetected edits by NumPy would misdirect writes
    degrees, limits = indptr.diff().to(torch.int64), current_limits()
    # An entry has 32 bits for the offset in a column.
    columns = torch.nonzero((degrees >= limits.index_degree) & (degrees < 1 << 32)).flatten()
    columns = columns[degrees[columns].argsort(stable=True)]
    sizes = degrees[columns]
    # Index the largest columns as long as they have at most 1 / index_share of the edges in total.
    is_indexed = sizes.flip(0).cumsum(0).flip(0) <= indices.numel() // limits.index_share
    columns, sizes = columns[is_indexed], sizes[is_indexed]
    starts = buffers.empty_long_lived(indptr.numel() if len(columns) else 1, torch.int64, indptr.device).zero_()
    entries = buffers.empty_long_lived(int(sizes.sum()), torch.int64, indptr.device)
    if len(columns):
        module = kernels("sampling.high_degree_index", indptr)
        graph = as_int64(indptr, indptr), indices.contiguous()
        if not module.build_high_degree_index(*graph, columns, starts, torch.empty_like(starts), entries):
            raise edited()
    return HighDegreeIndex(columns, sizes, starts, entries)


def check_index(index: HighDegreeIndex) -> None:
    """Raise unless the arrays of an index are consistent."""
    for name, values in index._asdict().items():
        check_vector(f"index.{name}", values, (torch.int64,))
    if index.columns.numel() != index.degrees.numel():
        raise ValueError(
            f"index.columns and index.degrees must be equally long, but have {index.columns.numel()} and "
            f"{index.degrees.numel()} values"
        )
    check_columns("index.starts", index.starts, index.entries.numel())
    numbers = index.entries >> 32
    check_ids("the numbers of columns in index.entries", numbers, index.columns.numel())
    if bool(((index.entries & ((1 << 32) - 1)) >= index.degrees[numbers]).any()):
        raise ValueError("index.entries must hold offsets inside their columns; build it with build_high_degree_index")
