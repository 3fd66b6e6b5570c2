"""Sort edges, which may be larger than memory, into compressed sparse columns in bounded memory."""

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
from graphfeed.ops.process import ProgressBar, current_limits
from graphfeed.storage.datasets.array_files import ArrayWriter
from graphfeed.storage.datasets.file_tasks import LEAST_TASKS, FileTask
from graphfeed.storage.memory.memory_limits import memory_limit
from graphfeed.storage.memory.outside_files import map_npy


@dataclass(frozen=True)
class Edges(ABC):
    """The edges of one type, which are read in parts. Subclasses define what a part is."""

    type: str | None
    """Edge type; None in a graph without types."""
    number: int
    """Number of the edge type."""
    first_nodes: tuple[int, int]
    """First id in the graph of the source type and of the destination type."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of edges."""

    @abstractmethod
    def parts(self, first: int, last: int, /) -> Iterator[Any]:
        """Yield parts in order, which have all edges to the graph's nodes in `first:last`, and perhaps others."""

    def destinations(self, num_nodes: int) -> Iterator[NDArray[Any]]:
        """Yield the destinations of all edges as ids in the graph, part by part."""
        return (self.read("destination", part) for part in self.parts(0, num_nodes))

    @abstractmethod
    def column(self, name: str, part: Any) -> NDArray[Any]:
        """Return a column of a part. Values of "source" and "destination" are ids within their node types."""

    def read(self, name: str, part: Any) -> NDArray[Any]:
        """Return a column of a part. Sources and destinations are ids in the graph, and "type" is the type's number."""
        if name in {"source", "destination"}:
            # Add the first id of the node type.
            return self.column(name, part).astype(np.int64, copy=False) + self.first_nodes[name == "destination"]
        # The type is the same number for all rows.
        return np.array(self.number) if name == "type" else self.column(name, part)


@dataclass(frozen=True)
class EdgeFiles(Edges):
    """The edges of one type in an array, which may be mapped."""

    key: str
    """Key in the metadata, for error messages."""
    ends: NDArray[Any]
    """Shape (2, edges): sources and destinations, as ids within their node types."""
    num_nodes: tuple[int, int]
    """Number of nodes of the source type and of the destination type."""
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays with one row per edge, in the order of the list, by column name."""

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
        """Yield all ranges of edges, because a list has no order."""
        step = current_limits().part_values
        return (slice(start, min(start + step, len(self))) for start in range(0, len(self), step))

    def column(self, name: str, part: slice) -> NDArray[Any]:
        """Return a column of a range. Node ids are checked; "row" is the position in the list."""
        if name == "row":
            return np.arange(part.start, part.stop)
        if name not in {"source", "destination"}:
            return self.attributes[name][part]
        end = int(name == "destination")
        # Converted to int64 for sorting; only a part is in memory at a time.
        ids = self.ends[end, part].astype(np.int64)
        check_ids(f"{self.key}: {name}s", torch.from_numpy(ids), self.num_nodes[end])
        return ids


@dataclass(frozen=True)
class EdgeArray:
    """An array with one row per edge, to be written in the order of the graph."""

    path: Path
    column: str
    dtype: np.dtype[Any]
    row: tuple[int, ...] = ()
    """Shape of a row."""

    @property
    def row_bytes(self) -> int:
        """Size of a row in bytes."""
        return self.dtype.itemsize * math.prod(self.row)


class Sorting(NamedTuple):
    """Resources for sorting edges."""

    memory: int
    """Bytes that edges may take while they are sorted, in each worker."""
    executor: Executor | None = None
    """Workers that read the edges from files, which they all see under the same path; None for this thread."""


def memory_for_sorting() -> int:
    """Return a quarter of the memory that this process may use, in bytes."""
    limit = memory_limit()
    return 1 << 31 if limit == math.inf else int(limit) // 4


def count_in_degrees(edges: Sequence[Edges], num_nodes: int, progress: ProgressBar) -> NDArray[np.int64]:
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    for own in edges:
        for destinations in own.destinations(num_nodes):
            # Counted one position after their columns, so that the running sums are the starts of columns.
            ops.count_edges(torch.from_numpy(destinations), torch.from_numpy(indptr[1:]))
            progress.update(len(destinations))
    np.cumsum(indptr, out=indptr)
    return indptr


def split_column_ranges(indptr: NDArray[np.int64], most_edges: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of columns with at most `most_edges` edges each, or with a single column."""
    first, end = 0, len(indptr) - 1
    while first < end:
        # As many columns as have at most that many edges, and at least one.
        last = int(np.searchsorted(indptr, indptr[first] + most_edges, side="right")) - 1
        last = min(max(last, first + 1), end)
        yield first, last
        first = last


def sort_tasks(
    edges: Sequence[Edges], indptr_file: Path, arrays: Sequence[EdgeArray], sorting: Sorting
) -> dict[str, FileTask]:
    """Return tasks by name that write arrays sorted by destination, each the rows of a range of columns."""
    # A task sorts its range in memory, and reads the edges that may belong to it. So files are read and written in
    # order. Within a column, edges are in the order of their types and rows.
    indptr: NDArray[Any] = map_npy(indptr_file)
    size, row_bytes = int(indptr[-1]), sum(array.row_bytes for array in arrays) or 1
    for array in arrays:
        with ArrayWriter(array.path, (size, *array.row), array.dtype, first=0):
            pass  # it may have no rows
    edges = [replace(own) for own in edges]  # without cached data, because tasks are sent to workers
    # With an executor there are enough ranges for all workers, if the number of columns allows it.
    least = 1 if sorting.executor is None else LEAST_TASKS
    most_edges = max(min(sorting.memory // row_bytes, -(-size // least)), 1)
    # Ranges without edges have nothing to write.
    ranges = [(first, last) for first, last in split_column_ranges(indptr, most_edges) if indptr[first] < indptr[last]]
    return {
        f"{first}_{last}": partial(write_range, edges, indptr_file, arrays, (first, last)) for first, last in ranges
    }


def write_range(
    edges: Sequence[Edges], indptr_file: Path, arrays: Sequence[EdgeArray], columns: tuple[int, int], aside: Path
) -> int:
    """Write the rows of a range of columns to each array, and return their number."""
    first, last = columns
    indptr = map_npy(indptr_file)
    begin, end, size = map(int, indptr[[first, last, -1]])
    # Column starts may be int32; positions are counted in int64, in a single array with one number per column.
    starts = indptr[first:last].astype(np.int64)
    starts -= begin
    for array, block in zip(arrays, sort_range(edges, starts, end - begin, arrays, first), strict=True):
        # This task's run has ended, and another one may be writing to the same file.
        if not aside.exists():
            raise FileNotFoundError(f"{aside} is gone: another run writes {array.path} now")
        with ArrayWriter(array.path, (size, *array.row), array.dtype, first=begin) as writer:
            writer.append(block)
    return end - begin


def sort_range(
    edges: Sequence[Edges], starts: NDArray[np.int64], size: int, arrays: Sequence[EdgeArray], first: int
) -> list[NDArray[Any]]:
    """Return `size` rows for each array: the rows of the columns starting at `first`, whose offsets are `starts`."""
    last = first + len(starts)
    blocks = [np.empty((size, *array.row), dtype=array.dtype) for array in arrays]
    for own in edges:
        for part in own.parts(first, last):
            ends = own.read("destination", part)
            chosen = (ends >= first) & (ends < last)
            # If the whole part is in the range, as is common, nothing is copied.
            some = slice(None) if chosen.all() else np.flatnonzero(chosen)
            # `starts` is advanced: the next part of a column comes after this one.
            slots = ops.assign_slots(torch.from_numpy(ends[some] - first), torch.from_numpy(starts)).numpy()
            for block, array in zip(blocks, arrays, strict=True):
                values = own.read(array.column, part)
                block[slots] = values[some] if values.ndim else values
    return blocks
