"""Reads the nodes of a type: their ids, features, labels, splits and times."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.growing_arrays import GrowingArrays
from graphfeed.ingest.build.node_ids import (
    IdCollector,
    NodeIds,
    RowIds,
    TextIds,
    first_of_each,
    integer_ids,
    text_buffers,
)
from graphfeed.ingest.build.row_outputs import RowOutputs
from graphfeed.ingest.build.spec import NodeTable
from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.ingest.tables.column_types import common_types, has_text_ids
from graphfeed.ingest.tables.columns import Batch, ColumnTypes, OnError, Problems
from graphfeed.ingest.tables.table import TableSource
from graphfeed.ops.process import ProgressBar, progress_bar
from graphfeed.storage.memory import check_nodes_fit


@dataclass
class Reading:
    """How tables are read: in batches, with a progress bar, and with what to do about wrong rows."""

    most_rows: int
    problems: Problems
    progress: ProgressBar
    widths: dict[str, int] = field(default_factory=dict)
    """The lengths of vectors, by column, in the tables so far."""

    def batches(
        self,
        table: TableSource,
        columns: Sequence[str],
        common: Mapping[str, Any] | None = None,
        counted: bool = True,
        may_skip: bool = True,
    ) -> Iterator[Batch]:
        """Yield the rows of a table.

        Args:
            table: The table.
            columns: Which columns to read.
            common: The types that columns have over all tables.
            counted: Whether lines that are skipped are counted; not if the table is read again.
            may_skip: Whether lines of CSV files with too few or too many values may be skipped as other wrong rows are.
        """

        def skip(text: str) -> None:
            reason = "a line with too few or too many values"
            self.problems.count(table.name, reason, int(counted), f"{reason}: {text[:80]!r}")

        on_invalid = skip if self.problems.on_error == "skip" and may_skip else None
        types = ColumnTypes(table.schema(), common, self.widths)
        first_row = 0
        for rows in table.batches(columns, self.most_rows, on_invalid):
            yield Batch(table, rows, first_row, self.problems, types)
            first_row += len(rows)
            self.progress.update(len(rows))


class NodeReader:
    """Reads the nodes of a type into files.

    Args:
        table: The entry of the specification.
        sources: Its tables.
        reading: How they are read.
    """

    def __init__(self, table: NodeTable, sources: Sequence[TableSource], reading: Reading) -> None:
        self.table, self.sources, self.reading = table, sources, reading

    def read(self, folder: Path, scratch: Path, prefix: str, spec_folder: Path) -> tuple[NodeIds, dict[str, Any]]:
        """Write the files of the nodes, and return their ids and a description of the files."""
        if self.table.id is not None:
            ids, first = self.read_ids(self.table.id)
        else:
            ids, first = None, np.zeros(0, dtype=bool)
        names = None
        if self.table.names is not None:  # Each node has one, because no row can be left out; several may share one.
            names = select(*self.read_column(self.table.names, "raise"))
        outputs = RowOutputs(folder, prefix, self.table, spec_folder)
        kept: list[NDArray[np.bool_]] = []
        count = 0
        with GrowingArrays(scratch) as times, outputs.out:
            if self.table.time is not None:
                times.append(f"{prefix}_time", np.zeros(0, dtype=np.int64))
            columns = [*outputs.columns(), *filter(None, [self.time_column])]
            common = common_types(self.sources, columns)
            columns += filter(None, [self.table.id])
            reading = self.reading
            if not self.sources:  # there are no rows to be shown
                reading = replace(reading, progress=progress_bar("", None, "row", wanted=False))
            for source in self.sources or [self.rows_of_arrays(outputs)]:
                may_skip = self.table.id is not None
                named = columns or source.schema().names[:1]
                for batch in reading.batches(source, named, common, may_skip=may_skip):
                    if ids is not None and self.table.id is not None:
                        batch.ids(self.table.id, not isinstance(ids, np.ndarray))
                        is_first = first[outputs.rows : outputs.rows + len(batch)]
                        batch.refuse(self.table.id, ~is_first, "which an earlier row has already")
                    count += self.write(batch, outputs, times, count)
                    kept.append(~batch.drop)
        described = outputs.describe() | {"count": count, "time": self.table.time is not None}
        if ids is None:
            return RowIds(count, names), described
        return select(ids, np.concatenate([np.zeros(0, dtype=bool), *kept])), described

    @property
    def time_column(self) -> str | None:
        """The column of the times, if there is one."""
        return self.table.time if isinstance(self.table.time, str) else None

    def write(self, batch: Batch, outputs: RowOutputs, times: GrowingArrays, count: int) -> int:
        """Write a batch, and return how many rows are kept. Where rows are the ids, none may be left out."""
        rows = outputs.read(batch)
        time = None
        if self.time_column is not None:
            time = batch.integers(self.time_column, "a time")
        if self.table.id is None and batch.drop.any():
            row = batch.first_row + int(np.argmax(batch.drop))
            raise ValueError(
                f"{batch.table.name}, row {row} can't be left out, because edges name these nodes by row; correct it, "
                "or name a column of ids"
            )
        kept = len(batch) - int(batch.drop.sum())
        seeds = np.arange(count, count + kept, dtype=np.int64)
        items = {"seeds": seeds}
        if self.table.time is not None:
            values = np.full(len(batch), self.table.time, dtype=np.int64) if time is None else time
            items["timestamp"] = batch.keep(values)
            times.append(f"{outputs.prefix}_time", items["timestamp"])
        outputs.write(batch, rows, items)
        return kept

    def rows_of_arrays(self, outputs: RowOutputs) -> TableSource:
        """Return a table without values for nodes without files, of which only arrays say something."""
        lengths = {name: len(array) for name, array in outputs.given.items()}
        counts = {*lengths.values(), *([] if self.table.count is None else [self.table.count])}
        if len(counts) > 1:
            raise ValueError(f"the arrays of the nodes have {lengths} rows, and count is {self.table.count}")
        if outputs.columns():
            name = outputs.columns()[0]
            raise ValueError(f"there is no column {name!r}, for the nodes have no files; name an array")
        count = counts.pop()
        check_nodes_fit("count", count)
        outputs.begin_given()
        return TableSource(arrow().table({"": arrow().nulls(count)}), "the nodes without files")

    def read_ids(self, column: str) -> tuple[Any, NDArray[np.bool_]]:
        """Return the ids of all rows, and a mask of those that no earlier row has."""
        ids, first = self.read_column(column, self.reading.problems.on_error)
        # Rows without an id are no doubles of one another.
        first[first] = first_of_each(chosen(ids, first))
        return ids, first

    def read_column(self, column: str, on_error: OnError, texts: bool = False) -> tuple[Any, NDArray[np.bool_]]:
        """Return a column of integers or texts, and whether each row has one."""
        texts = texts or has_text_ids((source, column) for source in self.sources)
        parts: list[Any] = []
        given: list[NDArray[np.bool_]] = []
        silent = Reading(self.reading.most_rows, Problems(on_error), self.reading.progress)
        for source in self.sources:
            for batch in silent.batches(source, [column], counted=False):
                if not texts and batch.padded(column).any():
                    return self.read_column(column, on_error, texts=True)
                parts.append(batch.ids(column, texts))
                given.append(~batch.drop)
        if texts:
            ids = arrow().chunked_array(parts, arrow().large_string()).combine_chunks()
        else:
            ids = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        return ids, np.concatenate([np.zeros(0, dtype=bool), *given])


def chosen(ids: Any, kept: NDArray[np.bool_]) -> Any:
    """Return some of the ids."""
    if kept.all():
        return ids
    return ids[kept] if isinstance(ids, np.ndarray) else ids.filter(arrow().array(kept))


def select(ids: Any, kept: NDArray[np.bool_]) -> NodeIds:
    """Return the ids of the rows that are kept."""
    selected = chosen(ids, kept)
    return integer_ids(selected) if isinstance(selected, np.ndarray) else TextIds(*text_buffers(selected))


def collect_ids(ends: Sequence[tuple[TableSource, str]], reading: Reading, texts: bool = False) -> NodeIds:
    """Return the ids of nodes without tables: all that the given columns of edges name."""
    collector = IdCollector()
    texts = texts or has_text_ids(ends)
    silent = Reading(reading.most_rows, Problems(reading.problems.on_error), reading.progress)
    for source, column in ends:
        for batch in silent.batches(source, [column], counted=False):
            if not texts and batch.padded(column).any():
                return collect_ids(ends, reading, texts=True)
            ids = batch.ids(column, texts)
            collector.add(chosen(ids, ~batch.drop))
    return collector.finish()
