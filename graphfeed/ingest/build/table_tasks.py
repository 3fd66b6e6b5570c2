"""Tables that tasks read, on any executor: each task writes files of its own, from the tables of one group."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.tables.column_types import common_types, vector_lengths
from graphfeed.ingest.tables.columns import Batch, ColumnTypes, OnError, Problems
from graphfeed.ingest.tables.table import TableSource
from graphfeed.ops.process import ProgressBar, progress_bar
from graphfeed.storage.datasets import SCRATCH, run_tasks
from graphfeed.storage.memory import map_npy

MOST_TASKS = 64
"""Each task reads the ids of the nodes, so that many small tables are read together."""

ROWS = "rows"
"""The folder, in the scratch folder, of files that are needed only until those of all tasks are joined."""

Piece: TypeAlias = dict[str, Any]
"""What a task says of the files that it wrote: plain values."""
Table = TypeVar("Table")


def file_of(folder: Path, piece: Piece, name: str) -> Path:
    return folder / f"{piece['prefix']}_{name}.npy"


def silent_bar() -> ProgressBar:
    return progress_bar("", None, "row", wanted=False)


def problems_of(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    problems = Problems()
    for piece in pieces:
        problems.add(piece["problems"])
    return problems.as_list()


def marks_of(folder: Path, pieces: Sequence[Piece], name: str) -> NDArray[np.bool_]:
    parts = [map_npy(file_of(folder, piece, name)) for piece in pieces if piece["rows"]]
    return np.concatenate([np.zeros(0, dtype=bool), *parts])


def group_tables(tables: Sequence[Table]) -> list[Sequence[Table]]:
    tasks = min(len(tables), MOST_TASKS)
    bounds = [len(tables) * number // tasks for number in range(tasks + 1)] if tables else []
    return [tables[low:high] for low, high in pairwise(bounds)]


def first_rows(groups: Sequence[Sequence[TableSource]]) -> list[int] | None:
    """Return how many rows come before each group of tables, and how many there are, if that is known."""
    counts = [[source.num_rows() for source in group] for group in groups]
    if any(None in group for group in counts):
        return None
    return list(accumulate((sum(filter(None, group)) for group in counts), initial=0))


@dataclass(frozen=True)
class Columns:
    """What is known of columns over all tables of an entry, before these are read."""

    types: Mapping[str, Any] = field(default_factory=dict)  # Arrow's
    lengths: Mapping[str, int] = field(default_factory=dict)  # of the vectors of those that have some

    @classmethod
    def of(cls, sources: Sequence[TableSource], names: Iterable[str]) -> "Columns":
        types = common_types(sources, list(names))
        return cls(types, vector_lengths(sources, types))


@dataclass(frozen=True)
class Reading:
    """How tables are read: in batches, with a progress bar, and with what to do about wrong rows."""

    most_rows: int
    problems: Problems
    progress: ProgressBar
    columns: Columns = field(default_factory=Columns)

    def batches(self, table: TableSource, names: Sequence[str], may_skip: bool = True) -> Iterator[Batch]:
        """Yield the rows of a table."""

        def skip(text: str) -> None:
            reason = "a line with too few or too many values"
            self.problems.count(table.name, reason, 1, f"{reason}: {text[:80]!r}")

        # Where edges name nodes by row, no line may be left out.
        on_invalid = skip if self.problems.on_error == "skip" and may_skip else None
        types = ColumnTypes(table.schema(), self.columns.types, self.columns.lengths)
        first_row = 0
        for rows in table.batches(names, self.most_rows, on_invalid):
            yield Batch(table, rows, first_row, self.problems, types)
            first_row += len(rows)
            self.progress.update(len(rows))


@dataclass(frozen=True, kw_only=True)
class TableTask(ABC):
    """Reads tables into files of its own."""

    prefix: str  # what the names of the files begin with
    columns: Columns = field(default_factory=Columns)
    sources: Sequence[TableSource] = ()
    on_error: OnError = "raise"
    most_rows: int = 1 << 20
    progress: ProgressBar | None = None  # counts rows, where the task runs in the program

    def __call__(self, folder: Path) -> Piece:
        """Write the files to a folder that `run_tasks` gives, and return their description."""
        (folder / SCRATCH / ROWS).mkdir(parents=True)
        problems = Problems(self.on_error)
        progress = silent_bar() if self.progress is None else self.progress
        reading = Reading(self.most_rows, problems, progress, self.columns)
        piece = self.read(reading, folder / SCRATCH)
        return {"prefix": self.prefix, **piece, "problems": problems.as_list()}

    @abstractmethod
    def read(self, reading: Reading, folder: Path) -> Piece:
        """Write files to a folder or to its `ROWS`, and return what is known of them, with the number of "rows"."""


@dataclass(frozen=True)
class TableTasks:
    """Runs the tasks of an entry of the specification."""

    unfinished: Path  # the folder of the data set, whose scratch folder gets the files
    executor: Executor | None  # None for this thread
    most_rows: int
    on_error: OnError
    progress: ProgressBar

    @property
    def rows(self) -> Path:
        return self.unfinished / SCRATCH / ROWS

    def run(self, tasks: Sequence[TableTask]) -> list[Piece]:
        """Run tasks, unless they are done, and return what they wrote."""
        before, done = self.progress.n, 0
        inside = self.progress if self.executor is None else None
        named = {task.prefix: replace(task, most_rows=self.most_rows, progress=inside) for task in tasks}

        def count(piece: Piece) -> None:
            nonlocal done
            done += piece["rows"]
            self.progress.update(max(before + done - self.progress.n, 0))  # a task in the program has counted its rows

        return list(run_tasks(self.unfinished, named, self.executor, count).values())
