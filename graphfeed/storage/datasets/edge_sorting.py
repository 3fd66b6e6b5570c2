"""Turns edge lists, which may be larger than memory, into compressed sparse columns in bounded memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ops.checks import check_ids
from graphfeed.ops.progress import ProgressBar, progress_bar
from graphfeed.storage.datasets.array_files import ArrayWriter
from graphfeed.storage.memory.available_memory import memory_limit

PART_EDGES = 1 << 20
"""How many edges are read at a time."""


@dataclass(frozen=True)
class EdgeList:
    """The edges of one type, mapped, with the place of their nodes in the graph."""

    key: str
    """The key of the metadata, for errors."""
    ends: NDArray[Any]
    """Shape (2, edges): sources and destinations, as ids within their node types."""
    number: int
    """The number of the edge type."""
    first_nodes: tuple[int, int]
    """The first id in the graph of the source type and of the destination type."""
    num_nodes: tuple[int, int]
    """The number of nodes of the source type and of the destination type."""
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays of one row per edge, in the order of the list."""

    def __len__(self) -> int:
        """Return the number of edges."""
        return int(self.ends.shape[1])

    def parts(self) -> Iterator[slice]:
        """Return the ranges of edges to read one after the other."""
        return (slice(start, min(start + PART_EDGES, len(self))) for start in range(0, len(self), PART_EDGES))

    def sources(self, part: slice) -> NDArray[np.int64]:
        """Return the sources of some edges, as ids in the graph."""
        return self.ends[0, part].astype(np.int64) + self.first_nodes[0]

    def destinations(self, part: slice) -> NDArray[np.int64]:
        """Return the destinations of some edges, as ids in the graph."""
        return self.ends[1, part].astype(np.int64) + self.first_nodes[1]

    def types(self, part: slice) -> NDArray[Any]:
        """Return the edge types of some edges."""
        return np.full(part.stop - part.start, self.number)

    def rows(self, part: slice) -> NDArray[Any]:
        """Return the positions of some edges in the list."""
        return np.arange(part.start, part.stop)


class SortableEdges(Protocol):
    """Edges of one type that are sorted part by part; what a part is, is their own affair."""

    def parts(self) -> Iterator[Any]:
        """Yield the parts in order."""

    def destinations(self, part: Any) -> NDArray[np.int64]:
        """Return the destinations of a part, as ids in the graph."""


@dataclass(frozen=True)
class EdgeArray:
    """An array of one row per edge, to be written in the order of the graph."""

    path: Path
    dtype: np.dtype[Any]
    row: tuple[int, ...]
    read: Callable[[Any, Any], NDArray[Any]]
    """Returns the rows of a part of some edges."""

    @property
    def row_bytes(self) -> int:
        """The number of bytes per edge."""
        return self.dtype.itemsize * int(np.prod(self.row, dtype=np.int64))


def check_edges(edges: EdgeList) -> None:
    """Raise unless an edge list has the right shape and dtype. Its ids are checked when they are counted."""
    if edges.ends.ndim != 2 or edges.ends.shape[0] != 2:
        raise ValueError(
            f"{edges.key}: The shape of edges should be (2, N), but got {edges.ends.shape}; transpose them"
        )
    if edges.ends.dtype.kind not in "iu":
        raise ValueError(f"{edges.key}: edges must be integers, but are {edges.ends.dtype}; save them as int64")


def count_in_degrees(lists: Sequence[EdgeList], num_nodes: int, progress: ProgressBar) -> NDArray[np.int64]:
    """Check all ids, and return the start of each column and the end of the last one.

    Raises:
        ValueError: An id is not that of a node of its type.
    """
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    counts = torch.from_numpy(indptr[1:])
    for edges in lists:
        for part in edges.parts():
            for end, name in enumerate(("sources", "destinations")):
                ids = torch.from_numpy(edges.ends[end, part].astype(np.int64))
                check_ids(f"{edges.key}: {name}", ids, edges.num_nodes[end])
            ops.count_edges(ids + edges.first_nodes[1], counts)
            progress.update(part.stop - part.start)
    np.cumsum(indptr, out=indptr)
    return indptr


def memory_for_sorting() -> int:
    """Return a quarter of the memory that this process may use, in bytes."""
    limit = memory_limit()
    return 1 << 31 if limit == math.inf else int(limit) // 4


def split_columns(indptr: NDArray[np.int64], most_edges: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of columns with at most `most_edges` edges each, or with a single column."""
    first, end = 0, len(indptr) - 1
    while first < end:
        last = int(np.searchsorted(indptr, indptr[first] + most_edges, side="right")) - 1
        last = min(max(last, first + 1), end)
        yield first, last
        first = last


def write_sorted(
    lists: Sequence[EdgeList], indptr: NDArray[np.int64], arrays: Sequence[EdgeArray], memory: int | None = None
) -> None:
    """Write arrays sorted by destination. Within a column, edges are in the order of the lists.

    Columns are sorted range by range in memory, with one pass over the lists for each range. So files are read and
    written sequentially.

    Args:
        lists: The edge lists.
        indptr: Column starts of all lists together.
        arrays: The arrays to write.
        memory: How many bytes a range of columns may take; by default a quarter of the machine's memory.
    """
    edge_bytes = sum(array.row_bytes for array in arrays) or 1
    most_edges = max((memory_for_sorting() if memory is None else memory) // edge_bytes, 1)
    num_edges = int(indptr[-1])
    with ExitStack() as stack:
        writers = [
            stack.enter_context(ArrayWriter(array.path, (num_edges, *array.row), array.dtype)) for array in arrays
        ]
        ranges = list(split_columns(indptr, most_edges))
        progress = stack.enter_context(progress_bar("sorting edges", len(ranges) * num_edges, "edge"))
        for columns in ranges:
            for writer, block in zip(writers, sort_range(lists, indptr, arrays, columns, progress), strict=True):
                writer.append(block)


def sort_range(
    lists: Sequence[SortableEdges],
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
    everything = size == indptr[-1]
    for edges in lists:
        for part in edges.parts():
            ends = edges.destinations(part)
            own = slice(None) if everything else np.flatnonzero((ends >= first) & (ends < last))
            places = ops.assign_slots(torch.from_numpy(ends[own] - first), starts).numpy()
            for block, array in zip(blocks, arrays, strict=True):
                block[places] = array.read(edges, part)[own]
            progress.update(len(ends))
    return blocks
