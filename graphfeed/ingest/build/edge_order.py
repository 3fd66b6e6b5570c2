"""Sorts edges from scratch files by destination, in bounded memory, and goes on where a run was interrupted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ingest.build.edge_reader import EdgeFiles, Note
from graphfeed.ingest.build.growing_array import GrowingArray
from graphfeed.ops.progress import ProgressBar
from graphfeed.storage.datasets.edge_sorting import EdgeArray, sort_range, split_columns

LEAST_ROWS, MOST_ROWS = 1 << 12, 1 << 20
"""The fewest and the most edges that are read at a time."""
PART_BYTES = 128
"""What an edge takes, at most, while it is read and put in its place."""


@dataclass(frozen=True)
class Segment:
    """Rows of the files of some edges, one behind the other."""

    start: int
    rows: int


@dataclass(frozen=True)
class SortedEdges:
    """The edges of one type in scratch files, with their place in the graph.

    Args:
        files: The scratch files.
        number: The number of the edge type.
        first_nodes: The first id in the graph of the source type and of the destination type.
        constants: Values of columns that are the same for all edges.
    """

    files: EdgeFiles
    number: int
    first_nodes: tuple[int, int]
    constants: dict[str, Any]

    def headers(self) -> dict[str, tuple[int, np.dtype[Any]]]:
        """Return for each column where its rows begin in the file, and their dtype."""
        found = {}
        for name in self.files.columns:
            path = self.files.path(name)
            if path.exists():
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)
                found[name] = (int(mapped.offset), mapped.dtype)
        return found

    def within(self, first: int, last: int, most_rows: int) -> "EdgesInRange":
        """Return the edges that may end at some nodes of the graph, from `first` to before `last`."""
        low = min(max(first - self.first_nodes[1], 0), self.files.num_nodes)
        high = min(max(last - self.first_nodes[1], 0), self.files.num_nodes)
        counts = self.files.counts()
        if low >= high or not counts.size:
            return EdgesInRange(self, (), {}, most_rows)
        begin, end = (int(self.files.range_of(np.array([node]))[0]) for node in (low, high - 1))
        starts = np.cumsum(counts.reshape(-1)).reshape(counts.shape) - counts
        sizes = counts[:, begin : end + 1].sum(axis=1)
        segments = [Segment(int(start), int(size)) for start, size in zip(starts[:, begin], sizes, strict=True) if size]
        return EdgesInRange(self, tuple(segments), self.headers(), most_rows)


@dataclass(frozen=True)
class EdgesInRange:
    """Some of the edges of a type, read part by part without mapping the files, so that memory stays bounded."""

    edges: SortedEdges
    segments: tuple[Segment, ...]
    headers: dict[str, tuple[int, np.dtype[Any]]]
    most_rows: int

    def parts(self) -> Iterator[tuple[Segment, ...]]:
        """Yield segments that are read together."""
        part: list[Segment] = []
        room = self.most_rows
        for segment in self.segments:
            start, rows = segment.start, segment.rows
            while rows:
                size = min(rows, room)
                part.append(Segment(start, size))
                start, rows, room = start + size, rows - size, room - size
                if not room:
                    yield tuple(part)
                    part, room = [], self.most_rows
        if part:
            yield tuple(part)

    def column(self, name: str, part: tuple[Segment, ...]) -> NDArray[Any]:
        """Return some rows of a column."""
        if name in self.edges.constants:
            return np.full(sum(segment.rows for segment in part), self.edges.constants[name])
        start, dtype = self.headers[name]
        with self.edges.files.path(name).open("rb") as file:
            found = []
            for segment in part:
                file.seek(start + segment.start * dtype.itemsize)
                found.append(np.fromfile(file, dtype, segment.rows))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def destinations(self, part: tuple[Segment, ...]) -> NDArray[np.int64]:
        """Return the destinations of a part, as ids in the graph."""
        return self.column("destination", part).astype(np.int64) + self.edges.first_nodes[1]

    def sources(self, part: tuple[Segment, ...]) -> NDArray[np.int64]:
        """Return the sources of a part, as ids in the graph."""
        return self.column("source", part).astype(np.int64) + self.edges.first_nodes[0]

    def types(self, part: tuple[Segment, ...]) -> NDArray[Any]:
        """Return the edge types of a part."""
        return np.full(sum(segment.rows for segment in part), self.edges.number)


def count_columns(
    edges: Sequence[SortedEdges], num_nodes: int, most_rows: int, progress: ProgressBar
) -> NDArray[np.int64]:
    """Return the start of each column, and the end of the last one."""
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    counts = torch.from_numpy(indptr[1:])
    for own in edges:
        within = own.within(0, num_nodes, most_rows)
        for part in within.parts():
            ends = within.destinations(part)
            ops.count_edges(torch.from_numpy(ends), counts)
            progress.update(len(ends))
    np.cumsum(indptr, out=indptr)
    return indptr


def rows_at_a_time(memory: int) -> int:
    """Return how many edges to read at a time, so that they take a quarter of some memory at most."""
    return min(max(memory // 4 // PART_BYTES, LEAST_ROWS), MOST_ROWS)


def write_in_order(
    edges: Sequence[SortedEdges],
    arrays: Sequence[EdgeArray],
    indptr: NDArray[np.int64],
    memory: int,
    state: dict[str, Any] | None,
    note: Note,
    progress: ProgressBar,
) -> None:
    """Write arrays sorted by destination; in each column, edges are in the order of their types and tables.

    A range of columns is sorted at a time. Only the parts of the scratch files that have such destinations are read.

    Args:
        edges: The edges of each type.
        arrays: The arrays to write.
        indptr: Column starts.
        memory: How many bytes this may take. Half of it is for the range that is sorted.
        state: What was noted, to go on from there.
        note: Notes how far this is, after each range.
        progress: Is told of each edge.
    """
    edge_bytes = sum(array.row_bytes for array in arrays)
    most_edges = max(memory // 2 // edge_bytes, 1)
    done = 0 if state is None else int(state["columns"])
    written = int(indptr[done])
    progress.update(written)
    open_arrays = [GrowingArray(array.path, array.dtype, array.row, written) for array in arrays]
    try:
        rest = indptr[done:]
        for first, last in split_columns(rest, most_edges):
            columns = (first + done, last + done)
            if indptr[columns[0]] == indptr[columns[1]]:
                continue
            own = [part.within(*columns, rows_at_a_time(memory)) for part in edges]
            for array, block in zip(open_arrays, sort_range(own, indptr, arrays, columns, progress), strict=True):
                array.append(block)
            for array in open_arrays:
                array.sync()
            note(columns=columns[1])
        for array in open_arrays:
            array.close()
    finally:
        for array in open_arrays:
            array.file.close()


def id_arrays(folder: Path, ids: np.dtype[Any], types: np.dtype[Any] | None) -> list[EdgeArray]:
    """Return the arrays that every graph has: sources, and with types the type of each edge."""
    arrays = [EdgeArray(folder / "indices.npy", ids, (), EdgesInRange.sources)]
    if types is not None:
        arrays.append(EdgeArray(folder / "type_per_edge.npy", types, (), EdgesInRange.types))
    return arrays


def column_array(path: Path, name: str, dtype: np.dtype[Any]) -> EdgeArray:
    """Return an array of a column of the edges."""

    def read(edges: EdgesInRange, part: tuple[Segment, ...]) -> NDArray[Any]:
        return edges.column(name, part)

    return EdgeArray(path, dtype, (), read)
