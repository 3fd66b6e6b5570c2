"""Edges in a table of the engine, from which the graph's arrays are sorted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.array_files import as_numpy
from graphfeed.ingest.tables.engine import Engine
from graphfeed.storage.datasets import Edges


@dataclass(frozen=True)
class TableEdges(Edges):
    """The edges of one type in a table, in the order of their rows."""

    file: Path
    table: str
    num_edges: int
    memory: int
    columns: Sequence[str]
    constants: Mapping[str, Any]
    """Values of attributes that are the same for all edges."""

    def __len__(self) -> int:
        return self.num_edges

    def parts(self, first: int, last: int, /) -> Iterator[Any]:
        """Yield batches of the edges of some columns of the graph."""
        low, high = first - self.first_nodes[1], last - self.first_nodes[1]
        columns = ", ".join(["source", "destination", *self.columns])
        return self.stream(f"SELECT {columns} FROM {self.table} WHERE destination >= {low} AND destination < {high}")

    def destinations(self, _num_nodes: int) -> Iterator[NDArray[Any]]:
        """Yield the destinations of all edges, without reading the rest."""
        parts = self.stream(f"SELECT destination FROM {self.table}")
        return (self.read("destination", part) for part in parts)

    def stream(self, sql: str) -> Iterator[Any]:
        """Yield batches of a query, in a worker's own connection."""
        with Engine(self.file, self.memory // 4, read_only=True) as engine:
            yield from engine.stream(sql)

    def column(self, name: str, part: Any) -> NDArray[Any]:
        """Return some rows of a column."""
        return np.array(self.constants[name]) if name in self.constants else as_numpy(part.column(name))
