"""Sorts edges, which may be larger than memory, into compressed sparse columns in bounded memory."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ops.arguments import check_ids
from graphfeed.ops.process import ProgressBar
from graphfeed.storage.datasets.array_files import ArrayWriter
from graphfeed.storage.memory.memory_limits import memory_limit

PART_EDGES = 1 << 20
"""How many edges are read at a time."""


@dataclass(frozen=True)
class Edges(ABC):
    """The edges of one type, which are read part by part. What a part is, is up to the subclass."""

    type: str | None
    """The edge type; None in a graph without types."""
    number: int
    """The number of the edge type."""
    first_nodes: tuple[int, int]
    """The first id in the graph of the source type and of the destination type."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of edges."""

    @abstractmethod
    def parts(self, first: int, last: int, /) -> Iterator[Any]:
        """Yield, in order, parts with all edges whose destinations are in the graph's nodes `first` to before `last`.

        There may be other edges among them.
        """

    @abstractmethod
    def column(self, name: str, part: Any) -> NDArray[Any]:
        """Return some rows of a column; those of "source" and "destination" are ids within their node types."""

    def read(self, name: str, part: Any) -> NDArray[Any]:
        """Return some rows of a column; sources and destinations are ids in the graph, and "type" is the number."""
        if name in {"source", "destination"}:
            return self.column(name, part).astype(np.int64, copy=False) + self.first_nodes[name == "destination"]
        return np.array(self.number) if name == "type" else self.column(name, part)


@dataclass(frozen=True)
class EdgeList(Edges):
    """The edges of one type as an array, which may be mapped."""

    key: str
    """The key of the metadata, for errors."""
    ends: NDArray[Any]
    """Shape (2, edges): sources and destinations, as ids within their node types."""
    num_nodes: tuple[int, int]
    """The number of nodes of the source type and of the destination type."""
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays of one row per edge, in the order of the list, by the name of their column."""

    def __post_init__(self) -> None:
        if self.ends.ndim != 2 or self.ends.shape[0] != 2:
            raise ValueError(
                f"{self.key}: The shape of edges should be (2, N), but got {self.ends.shape}; transpose them"
            )
        if self.ends.dtype.kind not in "iu":
            raise ValueError(f"{self.key}: edges must be integers, but are {self.ends.dtype}; save them as int64")

    def __len__(self) -> int:
        """Return the number of edges."""
        return int(self.ends.shape[1])

    def parts(self, _first: int, _last: int, /) -> Iterator[slice]:
        """Yield all ranges of edges: a list is in no order."""
        return (slice(start, min(start + PART_EDGES, len(self))) for start in range(0, len(self), PART_EDGES))

    def column(self, name: str, part: slice) -> NDArray[Any]:
        """Return some rows of a column. Ids of nodes are checked; "row" is the position in the list."""
        if name == "row":
            return np.arange(part.start, part.stop)
        if name not in {"source", "destination"}:
            return self.attributes[name][part]
        end = int(name == "destination")
        ids = self.ends[end, part].astype(np.int64)
        check_ids(f"{self.key}: {name}s", torch.from_numpy(ids), self.num_nodes[end])
        return ids


@dataclass(frozen=True)
class EdgeArray:
    """An array of one row per edge, to be written in the order of the graph."""

    path: Path
    column: str
    dtype: np.dtype[Any]
    row: tuple[int, ...] = ()
    """The shape of a row."""


def memory_for_sorting() -> int:
    """Return a quarter of the memory that this process may use, in bytes."""
    limit = memory_limit()
    return 1 << 31 if limit == math.inf else int(limit) // 4


def count_columns(edges: Sequence[Edges], num_nodes: int, progress: ProgressBar) -> NDArray[np.int64]:
    """Return the start of each column, and the end of the last one."""
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    for own in edges:
        for part in own.parts(0, num_nodes):
            destinations = own.read("destination", part)
            ops.count_edges(torch.from_numpy(destinations), torch.from_numpy(indptr[1:]))
            progress.update(len(destinations))
    np.cumsum(indptr, out=indptr)
    return indptr


def split_columns(indptr: NDArray[np.int64], most_edges: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of columns with at most `most_edges` edges each, or with a single column."""
    first, end = 0, len(indptr) - 1
    while first < end:
        # As many columns as hold so many edges, and at least one.
        last = int(np.searchsorted(indptr, indptr[first] + most_edges, side="right")) - 1
        last = min(max(last, first + 1), end)
        yield first, last
        first = last


def write_sorted(
    edges: Sequence[Edges],
    indptr: NDArray[np.int64],
    arrays: Sequence[EdgeArray],
    memory: int,
    progress: ProgressBar,
) -> None:
    """Write arrays sorted by destination. Within a column, edges are in the order of their types and rows.

    Columns are sorted range by range in memory, and for each range the edges are read that may be in it. So files are
    read and written sequentially.

    Args:
        edges: The edges of each type.
        indptr: Column starts of all types together.
        arrays: The arrays to write.
        memory: How many bytes a range of columns may take.
        progress: Is updated with each edge that is sorted.
    """
    edge_bytes = sum(array.dtype.itemsize * math.prod(array.row) for array in arrays) or 1
    with ExitStack() as stack:
        shapes = [(int(indptr[-1]), *array.row) for array in arrays]
        writers = [
            stack.enter_context(ArrayWriter(array.path, shape, array.dtype))
            for array, shape in zip(arrays, shapes, strict=True)
        ]
        for columns in split_columns(indptr, max(memory // edge_bytes, 1)):
            if indptr[columns[0]] < indptr[columns[1]]:
                for writer, block in zip(writers, sort_range(edges, indptr, arrays, columns, progress), strict=True):
                    writer.append(block)


def sort_range(
    edges: Sequence[Edges],
    indptr: NDArray[np.int64],
    arrays: Sequence[EdgeArray],
    columns: tuple[int, int],
    progress: ProgressBar,
) -> list[NDArray[Any]]:
    """Return the rows of a range of columns for each of the arrays."""
    first, last = columns
    starts = torch.from_numpy(indptr[first:last] - indptr[first])
    size = int(indptr[last] - indptr[first])
    blocks = [np.empty((size, *array.row), dtype=array.dtype) for array in arrays]
    for own in edges:
        for part in own.parts(first, last):
            ends = own.read("destination", part)
            chosen = slice(None) if size == indptr[-1] else np.flatnonzero((ends >= first) & (ends < last))
            slots = ops.assign_slots(torch.from_numpy(ends[chosen] - first), starts).numpy()
            for block, array in zip(blocks, arrays, strict=True):
                values = own.read(array.column, part)
                block[slots] = values[chosen] if values.ndim else values
            progress.update(len(slots))
    return blocks
