"""Edges in scratch files, split by ranges of destinations while they are read, so that each range is sorted alone."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.tables.table import TableSource
from graphfeed.storage.datasets import LEAST_TASKS, Edges
from graphfeed.storage.memory import map_npy

LEAST_ROWS, MOST_ROWS = 1 << 12, 1 << 20
"""The fewest and the most edges that are read at a time."""
MOST_RANGES = 256
BYTES_PER_EDGE = 32
"""What an edge takes while its range is sorted, roughly."""
PART_BYTES = 128
"""What an edge takes, at most, while it is read and put in its slot."""

Segment: TypeAlias = tuple[int, int]
"""The first one of some rows of the files, and how many they are."""


def rows_at_a_time(memory: int) -> int:
    return min(max(memory // 4 // PART_BYTES, LEAST_ROWS), MOST_ROWS)  # a quarter of it


def num_ranges(sources: Sequence[TableSource], memory: int, executor: Executor | None) -> int:
    """Return into how many ranges to split edges while they are read, so that each can be sorted in some memory."""
    edges = 0
    for source in sources:
        rows = source.num_rows()
        # Two ids with what separates them rarely take less than 12 bytes of text.
        edges += source.source.stat().st_size // 12 if rows is None else rows
    least = 1 if executor is None else LEAST_TASKS
    return int(min(max(-(-edges * BYTES_PER_EDGE // max(memory, 1)), least), MOST_RANGES))


@dataclass(frozen=True)
class EdgeFiles:
    """Where the edges of a type are in scratch files."""

    folder: Path
    prefix: str
    num_ranges: int  # how many the destinations were split into
    num_nodes: int  # of the destination's type
    columns: tuple[str, ...]

    def path(self, column: str) -> Path:
        return self.folder / f"{self.prefix}_{column}.npy"

    def range_of(self, destinations: NDArray[np.int64]) -> NDArray[np.int64]:
        return destinations * self.num_ranges // max(self.num_nodes, 1)

    def counts(self) -> NDArray[np.int64]:
        """Return how many edges each batch has in each range."""
        path = self.path("counts")
        if not path.exists():
            return np.zeros((0, self.num_ranges), dtype=np.int64)
        return np.array(map_npy(path))


@dataclass(frozen=True)
class ScratchEdges(Edges):
    """The edges of a type in scratch files, read without mapping these, so that memory stays bounded."""

    files: EdgeFiles
    num_edges: int
    constants: dict[str, Any]  # values of columns that are the same for all edges
    most_rows: int  # how many edges to read at a time
    first_row: int = 0  # the number of the first edge, if other files have those of the type that come before

    def __len__(self) -> int:
        return self.num_edges

    @cached_property
    def headers(self) -> dict[str, tuple[int, np.dtype[Any]]]:
        """Where the rows of each column begin in its file, and their dtype."""
        mapped = {name: map_npy(self.files.path(name)) for name in self.files.columns}
        return {name: (int(array.offset), array.dtype) for name, array in mapped.items()}

    @cached_property
    def segments(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many edges each batch has in each range, and where they begin in the files."""
        counts = self.files.counts()
        return counts, (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)

    def parts(self, first: int, last: int, /) -> Iterator[list[Segment]]:
        """Yield the segments that are read together: those of the ranges that `first` and `last` are in."""
        low, high = (min(max(node - self.first_nodes[1], 0), self.files.num_nodes) for node in (first, last))
        counts, all_starts = self.segments
        if low >= high or not counts.size:
            return
        begin, end = (int(self.files.range_of(np.array(node))) for node in (low, high - 1))
        starts = all_starts[:, begin].tolist()
        sizes = counts[:, begin : end + 1].sum(axis=1).tolist()
        part: list[Segment] = []
        room = self.most_rows
        for start, rows in zip(starts, sizes, strict=True):
            while rows:
                size = min(rows, room)
                part.append((start, size))
                start, rows, room = start + size, rows - size, room - size
                if not room:
                    yield part
                    part, room = [], self.most_rows
        if part:
            yield part

    def column(self, name: str, part: list[Segment]) -> NDArray[Any]:
        """Return some rows of a column."""
        if name in self.constants:
            return np.array(self.constants[name])
        begin, dtype = self.headers[name]
        with self.files.path(name).open("rb") as file:
            parts = []
            for start, rows in part:
                file.seek(begin + start * dtype.itemsize)
                parts.append(np.fromfile(file, dtype, rows))
        values = np.concatenate(parts)
        return values + self.first_row if name == "row" else values
