"""Sorts edges, which may be larger than memory, into compressed sparse columns in bounded memory."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ops.arguments import check_ids
from graphfeed.ops.process import ProgressBar
from graphfeed.storage.datasets.array_files import ArrayWriter
from graphfeed.storage.datasets.file_tasks import LEAST_TASKS, FileTask
from graphfeed.storage.memory.memory_limits import memory_limit
from graphfeed.storage.memory.outside_files import map_npy

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
        """Yield, in order, parts with all edges, and perhaps others, to the graph's nodes `first` to before `last`."""

    def destinations(self, num_nodes: int) -> Iterator[NDArray[Any]]:
        """Yield the destinations of all edges, part by part, as ids in the graph."""
        return (self.read("destination", part) for part in self.parts(0, num_nodes))

    @abstractmethod
    def column(self, name: str, part: Any) -> NDArray[Any]:
        """Return some rows of a column; those of "source" and "destination" are ids within their node types."""

    def read(self, name: str, part: Any) -> NDArray[Any]:
        """Return some rows of a column; sources and destinations are ids in the graph, and "type" is the number."""
        if name in {"source", "destination"}:
            # Ids within a type, moved to where the type begins.
            return self.column(name, part).astype(np.int64, copy=False) + self.first_nodes[name == "destination"]
        # The type is one number for all rows.
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
        # Copied to int64, as sorting needs it; only a part is in memory at a time.
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

    @property
    def row_bytes(self) -> int:
        """What a row takes."""
        return self.dtype.itemsize * math.prod(self.row)


class Sorting(NamedTuple):
    """Who sorts edges."""

    memory: int
    """How many bytes they may take while they are sorted, in each worker."""
    executor: Executor | None = None
    """The workers, which read the edges from files that all see under the same path; None for this thread."""


def memory_for_sorting() -> int:
    """Return a quarter of the memory that this process may use, in bytes."""
    limit = memory_limit()
    return 1 << 31 if limit == math.inf else int(limit) // 4


def count_columns(edges: Sequence[Edges], num_nodes: int, progress: ProgressBar) -> NDArray[np.int64]:
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    for own in edges:
        for destinations in own.destinations(num_nodes):
            # Counted one place behind their columns, so that the running sums are the starts of columns.
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


def sort_tasks(
    edges: Sequence[Edges], indptr_file: Path, arrays: Sequence[EdgeArray], sorting: Sorting
) -> dict[str, FileTask]:
    """Return tasks by name that write arrays sorted by destination, each the rows of a range of columns."""
    # A task sorts its range in memory, and reads the edges that may be in it. So files are read and written in order.
    # Within a column, edges are in the order of their types and rows.
    indptr: NDArray[Any] = map_npy(indptr_file)
    size, row_bytes = int(indptr[-1]), sum(array.row_bytes for array in arrays) or 1
    for array in arrays:
        with ArrayWriter(array.path, (size, *array.row), array.dtype, first=0):
            pass  # it may have no rows
    edges = [replace(own) for own in edges]  # without what they keep in memory, for tasks travel to workers
    # With an executor there are enough ranges for all workers, if there are so many columns.
    least = 1 if sorting.executor is None else LEAST_TASKS
    most_edges = max(min(sorting.memory // row_bytes, -(-size // least)), 1)
    # Ranges without edges have nothing to write.
    ranges = [(first, last) for first, last in split_columns(indptr, most_edges) if indptr[first] < indptr[last]]
    return {
        f"{first}_{last}": partial(write_range, edges, indptr_file, arrays, (first, last)) for first, last in ranges
    }


def write_range(
    edges: Sequence[Edges], indptr_file: Path, arrays: Sequence[EdgeArray], columns: tuple[int, int], aside: Path
) -> int:
    """Write the rows of a range of columns to each of the arrays, and return how many."""
    first, last = columns
    indptr = map_npy(indptr_file)
    begin, end, size = map(int, indptr[[first, last, -1]])
    # Column starts may be int32; places are counted in int64. There is one number a column, and no second one beside.
    starts = indptr[first:last].astype(np.int64)
    starts -= begin
    for array, block in zip(arrays, sort_range(edges, starts, end - begin, arrays, first), strict=True):
        # The run that this task belongs to is over, and another one may write to the same file.
        if not aside.exists():
            raise FileNotFoundError(f"{aside} is gone: another run writes {array.path} now")
        with ArrayWriter(array.path, (size, *array.row), array.dtype, first=begin) as writer:
            writer.append(block)
    return end - begin


def sort_range(
    edges: Sequence[Edges], starts: NDArray[np.int64], size: int, arrays: Sequence[EdgeArray], first: int
) -> list[NDArray[Any]]:
    """Return so many rows, those of the columns from `first`, for each array; `starts` is where these columns begin."""
    last = first + len(starts)
    blocks = [np.empty((size, *array.row), dtype=array.dtype) for array in arrays]
    for own in edges:
        for part in own.parts(first, last):
            ends = own.read("destination", part)
            chosen = (ends >= first) & (ends < last)
            # Often all of a part is in the range: then nothing is copied.
            some = slice(None) if chosen.all() else np.flatnonzero(chosen)
            # `starts` is moved along: the next part of the same column goes behind this one.
            slots = ops.assign_slots(torch.from_numpy(ends[some] - first), torch.from_numpy(starts)).numpy()
            for block, array in zip(blocks, arrays, strict=True):
                values = own.read(array.column, part)
                block[slots] = values[some] if values.ndim else values
    return blocks
