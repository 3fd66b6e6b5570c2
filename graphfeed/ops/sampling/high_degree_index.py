"""An index of high-degree columns, with which LABOR finds neighbours of small variates without reading them."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_ids, check_vector
from graphfeed.ops.arguments.verified import check_once, mark_valid
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import check_columns, edited, ensure_csc

MIN_DEGREE = 1024
"""Reading a smaller column takes no longer than looking its neighbours up."""
MAX_SHARE = 3
"""At most one edge in this many is indexed, which bounds the memory."""


class HighDegreeIndex(NamedTuple):
    """An index of the largest columns: the neighbours of high-degree nodes, by neighbour."""

    columns: torch.Tensor
    """int64: their node ids, by degree and then by id. A column's position here is its number."""
    degrees: torch.Tensor
    """int64: how many edges each has."""
    starts: torch.Tensor
    """int64, shape (nodes + 1,): where the entries of each node begin."""
    entries: torch.Tensor
    """int64, ascending within each node: a column's number times 2**32, plus an edge's place in it."""


def build_high_degree_index(indptr: torch.Tensor, indices: torch.Tensor) -> HighDegreeIndex:
    """Index which of the largest columns, with at most a third of all edges, each node is a source of.

    This is done once per graph. It takes one pass over the indexed edges with two random writes each, and 8 bytes per
    indexed edge and per node.

    Raises:
        ValueError: The arrays are not those of a graph.

    Example:
        >>> build_high_degree_index(torch.tensor([0, 2, 4]), torch.tensor([0, 1, 1, 1])).columns
        tensor([], dtype=torch.int64)
    """
    ensure_csc(indptr, indices)
    check_columns("indptr", indptr, indices.numel())  # again: NumPy's edits don't show, and the kernel writes by them
    degrees = indptr.diff().to(torch.int64)
    # An entry has 32 bits for the place in a column.
    columns = torch.nonzero((degrees >= MIN_DEGREE) & (degrees < 1 << 32)).flatten()
    columns = columns[degrees[columns].argsort(stable=True)]
    sizes = degrees[columns]
    # The largest ones, as long as these and all larger ones have at most their share of the edges.
    is_indexed = sizes.flip(0).cumsum(0).flip(0) <= indices.numel() // MAX_SHARE
    columns, sizes = columns[is_indexed], sizes[is_indexed]
    starts = buffers.empty_long_lived(indptr.numel() if len(columns) else 1, torch.int64, indptr.device).zero_()
    entries = buffers.empty_long_lived(int(sizes.sum()), torch.int64, indptr.device)
    if len(columns):
        module = kernels("sampling.high_degree_index", indptr)
        graph = as_int64(indptr, indptr), indices.contiguous()
        if not module.build_high_degree_index(*graph, columns, starts, torch.empty_like(starts), entries):
            raise edited()
    index = HighDegreeIndex(columns, sizes, starts, entries)
    mark_valid("high-degree index", tuple(index))
    return index


def ensure_index(index: HighDegreeIndex) -> None:
    """What `build_high_degree_index` has returned is not checked."""
    check_once("high-degree index", tuple(index), lambda: check_index(index))


def check_index(index: HighDegreeIndex) -> None:
    """Raise unless the arrays of an index fit together."""
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
        raise ValueError("index.entries must hold places inside of their columns; build_high_degree_index makes it")
