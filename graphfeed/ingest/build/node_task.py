"""Reads the nodes of a type: their ids, features, labels, splits and times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from graphfeed.ingest.build.growing_arrays import GrowingArrays
from graphfeed.ingest.build.id_task import read_ids
from graphfeed.ingest.build.join_rows import Part, join_array, join_rows
from graphfeed.ingest.build.node_ids import NodeIds, RowIds, chosen, first_of_each, node_ids
from graphfeed.ingest.build.row_outputs import RowOutputs, columns_of, open_references
from graphfeed.ingest.build.row_task import RowTask
from graphfeed.ingest.build.spec import NodeTable
from graphfeed.ingest.build.table_tasks import (
    ROWS,
    Columns,
    Piece,
    Reading,
    TableTasks,
    file_of,
    marks_of,
    problems_of,
    silent_bar,
)
from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.ingest.tables.columns import Batch
from graphfeed.ingest.tables.table import TableSource
from graphfeed.storage.datasets import write_array
from graphfeed.storage.memory import check_nodes_fit, map_npy


@dataclass(frozen=True, kw_only=True)
class NodeTask(RowTask):
    """Reads rows of nodes into files."""

    table: NodeTable
    texts: bool = False
    first_of_ids: Path | None = None  # says of each row of all tables whether no earlier row has its id

    @property
    def time_column(self) -> list[str]:
        return [self.table.time] if isinstance(self.table.time, str) else []

    def read(self, reading: Reading, folder: Path) -> Piece:
        """Write features, items, times, and which rows are kept."""
        count = 0
        names = [*columns_of(self.table), *self.time_column, *filter(None, [self.table.id])]
        with self.outputs(folder) as outputs, GrowingArrays(folder / ROWS, f"{self.prefix}_") as scratch:
            if self.table.time is not None:
                scratch.append("time", np.zeros(0, dtype=np.int64))  # for tables without rows
            for source in self.sources:
                some = names or source.schema().names[:1]  # to count the rows by
                for batch in reading.batches(source, some, may_skip=self.table.id is not None):
                    self.refuse_doubles(batch, self.first_row + outputs.rows)
                    count += self.write(batch, outputs, scratch, count)
        return outputs.describe() | {"count": count}

    def refuse_doubles(self, batch: Batch, first_row: int) -> None:
        if self.table.id is None or self.first_of_ids is None:
            return
        batch.ids(self.table.id, self.texts)  # refuses rows without an id
        is_first = map_npy(self.first_of_ids)[first_row : first_row + len(batch)]
        batch.refuse(self.table.id, ~is_first, "which an earlier row has already")

    def write(self, batch: Batch, outputs: RowOutputs, scratch: GrowingArrays, count: int) -> int:
        """Write a batch, and return how many rows are kept. Where rows are the ids, none may be left out."""
        rows = outputs.read(batch)
        times = [batch.integers(column, "a time") for column in self.time_column]
        if self.table.id is None and batch.drop.any():
            row = batch.first_row + int(np.argmax(batch.drop))
            raise ValueError(
                f"{batch.table.name}, row {row} can't be left out, because edges name these nodes by row; correct it, "
                "or name a column of ids"
            )
        kept = len(batch) - int(batch.drop.sum())
        items = {"seeds": np.arange(count, count + kept, dtype=np.int64)}
        if self.table.time is not None:
            items["timestamp"] = batch.keep(times[0] if times else np.full(len(batch), self.table.time, dtype=np.int64))
            scratch.append("time", items["timestamp"])
        if self.table.id is not None:
            scratch.append("kept", ~batch.drop)
        outputs.write(batch, rows, items)
        return kept


def read_nodes(
    table: NodeTable, sources: Sequence[TableSource], tasks: TableTasks, output: Path, prefix: str, spec_folder: Path
) -> tuple[NodeIds, dict[str, Any]]:
    """Write the files of the nodes of a type, and return their ids and a description of the files."""
    task = NodeTask(prefix=prefix, on_error=tasks.on_error, table=table, spec_folder=spec_folder)
    task = replace(task, columns=Columns.of(sources, [*columns_of(table), *task.time_column]))
    ids, names, starts = None, None, None
    if table.names is not None:  # Each node has one, because no row can be left out; several may share one.
        found, _, starts = read_ids(tasks, [(source, table.names) for source in sources], f"{prefix}_names", "raise")
        names = node_ids(found)
    elif table.id is not None:
        ids, first, starts = read_ids(tasks, [(source, table.id) for source in sources], prefix, tasks.on_error)
        first[first] = first_of_each(chosen(ids, first))  # rows without an id are no doubles of one another
        marks = tasks.rows / f"{prefix}_first_of_ids.npy"
        write_array(marks, first)
        task = replace(task, texts=not isinstance(ids, np.ndarray), first_of_ids=marks)
    if not sources:  # and no rows to be shown
        sources, tasks = [rows_of_arrays(table, spec_folder)], replace(tasks, progress=silent_bar())
    pieces = tasks.run(task.split(sources, output / prefix, starts))
    described = join_nodes(table, tasks.rows, output, prefix, pieces)
    if ids is None:
        return RowIds(described["count"], names), described
    return node_ids(chosen(ids, marks_of(tasks.rows, pieces, "kept"))), described


def join_nodes(table: NodeTable, rows: Path, output: Path, prefix: str, pieces: Sequence[Piece]) -> dict[str, Any]:
    counts = [piece["count"] for piece in pieces]
    nodes = [piece | {"first_node": node} for piece, node in zip(pieces, accumulate(counts, initial=0), strict=False)]
    described = join_rows(rows, output, prefix, table, nodes)
    if table.time is not None:
        parts = [Part(file_of(rows, piece, "time")) for piece in pieces]
        join_array(rows.parent / f"{prefix}_time.npy", parts)
    return described | {"count": sum(counts), "problems": problems_of(pieces)}


def rows_of_arrays(table: NodeTable, spec_folder: Path) -> TableSource:
    """Return a table without values for nodes without files, of which only arrays say something."""
    lengths = {name: len(array) for name, array in open_references(table, spec_folder).items()}
    counts = {*lengths.values(), *([] if table.count is None else [table.count])}
    if len(counts) > 1:
        raise ValueError(f"the arrays of the nodes have {lengths} rows, and count is {table.count}")
    if columns_of(table):
        name = columns_of(table)[0]
        raise ValueError(f"there is no column {name!r}, for the nodes have no files; name an array")
    count = counts.pop()
    check_nodes_fit("count", count)
    return TableSource(arrow().table({"": arrow().nulls(count)}), "the nodes without files")
