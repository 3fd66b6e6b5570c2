"""What the tasks that read rows of nodes and of edges have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from graphfeed.ingest.build.growing_arrays import Place
from graphfeed.ingest.build.row_outputs import RowOutputs, references_of
from graphfeed.ingest.build.spec import Table
from graphfeed.ingest.build.table_tasks import ROWS, TableTask, first_rows, group_tables
from graphfeed.ingest.tables.table import TableSource


@dataclass(frozen=True, kw_only=True)
class RowTask(TableTask):
    """Reads rows, with their features, labels and splits."""

    table: Table
    spec_folder: Path  # where the paths of arrays begin
    first_row: int = 0  # how many rows the tables have that come before
    # Where the features belong, if that is known because no row is left out: they are written there then, rather than
    # into files of the task.
    place: Place | None = None

    def split(self, sources: Sequence[TableSource], prefix: Path, starts: Sequence[int] | None = None) -> list[Self]:
        """Return the tasks that read tables."""
        groups = group_tables(sources)
        # How many rows come before each group and, at last, how many there are; None if that isn't known.
        starts = first_rows(groups) if starts is None else starts
        given = references_of(self.table)
        # Arrays have rows for all tables. A single task reads all if it isn't known which are whose, or if an array is
        # in an archive, which each task would read as a whole.
        if given and (starts is None or not all(name.endswith(".npy") for name in given)):
            groups, starts = [sources], starts and [0, starts[-1]]
        tasks = [replace(self, prefix=f"{self.prefix}_{number}", sources=group) for number, group in enumerate(groups)]
        if starts is None:
            return tasks
        place = Place(prefix, starts[-1]) if self.on_error == "raise" else None
        return [
            replace(task, first_row=first, place=place and replace(place, first_row=first))
            for task, first in zip(tasks, starts, strict=False)
        ]

    def outputs(self, folder: Path) -> RowOutputs:
        return RowOutputs(folder / ROWS, self.prefix, self.table, self.spec_folder, self.first_row, self.place)
