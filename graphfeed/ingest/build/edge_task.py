"""Reads the edges of a type into scratch files from which they can be sorted, and their features and items."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.growing_arrays import GrowingArrays
from graphfeed.ingest.build.join_rows import join_rows
from graphfeed.ingest.build.node_ids import NodeIds, StoredIds
from graphfeed.ingest.build.row_outputs import RowOutputs, columns_of
from graphfeed.ingest.build.row_task import RowTask
from graphfeed.ingest.build.scratch_edges import EdgeFiles
from graphfeed.ingest.build.spec import EdgeTable
from graphfeed.ingest.build.table_tasks import (
    Columns,
    Piece,
    Reading,
    TableTasks,
    problems_of,
    silent_bar,
)
from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.ingest.tables.columns import Batch
from graphfeed.ingest.tables.table import TableSource


@dataclass(frozen=True, kw_only=True)
class EdgeTask(RowTask):
    """Reads edges into files."""

    table: EdgeTable
    files: EdgeFiles  # the scratch files, but for their folder and prefix
    ids: tuple[StoredIds, StoredIds]  # of the sources and of the destinations
    last_time: int | None = None  # the largest time in the tables before, where times must not go back

    def read(self, reading: Reading, folder: Path) -> Piece:
        files = replace(self.files, folder=folder, prefix=self.prefix)
        return EdgeReader(self, files).read(reading)


class EdgeReader:
    """Reads the edges of a task."""

    def __init__(self, task: EdgeTask, files: EdgeFiles) -> None:
        self.task, self.table, self.files = task, task.table, files
        self.ids = task.ids[0].ids, task.ids[1].ids
        self.first_time: int | None = None
        self.last_time = task.last_time

    def read(self, reading: Reading) -> Piece:
        count, folder, prefix = 0, self.files.folder, self.files.prefix
        names = [*columns_of(self.table), *value_columns(self.table), self.table.source, self.table.destination]
        with self.task.outputs(folder) as outputs, GrowingArrays(folder, f"{prefix}_") as scratch:
            for source in self.task.sources:
                for batch in reading.batches(source, names):
                    count += self.write(batch, outputs, scratch, count)
        return outputs.describe() | {"count": count, "first_time": self.first_time, "last_time": self.last_time}

    def write(self, batch: Batch, outputs: RowOutputs, scratch: GrowingArrays, count: int) -> int:
        """Write a batch, and return how many edges are kept."""
        ends = [
            self.find(batch, column, ids)
            for column, ids in zip((self.table.source, self.table.destination), self.ids, strict=True)
        ]
        rows = outputs.read(batch)
        columns = self.read_values(batch)
        kept = [batch.keep(values) for values in ends]
        columns = {name: batch.keep(values) for name, values in columns.items()}
        items = {"seeds": np.stack(kept, axis=1)}
        if "time" in columns:
            items["timestamp"] = columns["time"]
        outputs.write(batch, rows, items)
        size = len(kept[0])
        widths = [np.int32 if len(ids) <= np.iinfo(np.int32).max else np.int64 for ids in self.ids]
        columns |= {"source": kept[0].astype(widths[0]), "destination": kept[1].astype(widths[1])}
        if "row" in self.files.columns:
            columns["row"] = np.arange(count, count + size, dtype=np.int64)
        if self.files.num_ranges > 1:
            # The edges of a range lie together within a batch, so that it is read without those of the others.
            ranges = self.files.range_of(kept[1]).astype(np.uint16)
            order = np.argsort(ranges, kind="stable")
            columns = {name: values[order] for name, values in columns.items()}
            counts = np.bincount(ranges, minlength=self.files.num_ranges)
        else:
            counts = np.array([size])
        for name in self.files.columns:
            scratch.append(name, columns[name])
        scratch.append("counts", counts[None].astype(np.int64))
        return size

    def find(self, batch: Batch, column: str, ids: NodeIds) -> NDArray[np.int64]:
        nodes = ids.find(batch.ids(column, ids.texts))
        missing = nodes < 0
        if missing.any():
            batch.refuse(column, missing, ids.describe())
            nodes = np.where(nodes < 0, 0, nodes)
        return nodes

    def read_values(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """Return the times and weights of all rows that have them in columns."""
        values: dict[str, NDArray[Any]] = {}
        if isinstance(self.table.weight, str):
            weights = batch.numbers(self.table.weight, arrow().float32())
            wrong = ~(weights >= 0) | np.isinf(weights)
            batch.refuse(self.table.weight, wrong, "but a weight must be a number from 0")
            values["weight"] = weights
        if isinstance(self.table.time, str):
            times = batch.integers(self.table.time, "a time")
            if self.table.time_sorted and len(times):
                self.refuse_earlier(batch, self.table.time, times)
            values["time"] = times
        return values

    def refuse_earlier(self, batch: Batch, column: str, times: NDArray[np.int64]) -> None:
        """Refuse rows whose times are earlier than in a row before."""
        before = np.iinfo(np.int64).min if self.last_time is None else self.last_time
        # Rows that are dropped already are never too early, and make no others so.
        usable = np.where(batch.drop, before, times)
        latest = np.maximum(np.maximum.accumulate(usable), before)
        earlier = usable < np.concatenate([[before], latest[:-1]])
        batch.refuse(column, earlier & ~batch.drop, "which is earlier than in a row before")
        kept = batch.keep(times)
        if len(kept):
            self.first_time = int(kept[0]) if self.first_time is None else self.first_time
            self.last_time = int(kept[-1])


def value_columns(table: EdgeTable) -> list[str]:
    return [value for value in (table.time, table.weight) if isinstance(value, str)]


def read_edges(task: EdgeTask, sources: Sequence[TableSource], tasks: TableTasks, output: Path) -> dict[str, Any]:
    """Write the files of the edges of a type, and return their description, with the "pieces" of the scratch files."""
    table = task.table
    columns = Columns.of(sources, [*columns_of(table), *value_columns(table)])
    task = replace(task, columns=columns, on_error=tasks.on_error)
    split = task.split(sources, output / task.prefix)
    pieces = tasks.run(split)
    if table.time_sorted:
        pieces = in_order_of_time(split, pieces, tasks)
    described = join_rows(tasks.rows, output, task.prefix, table, pieces)
    counts = [[piece["prefix"], piece["count"]] for piece in pieces]
    return described | {
        "count": sum(count for _, count in counts),
        "pieces": counts,
        "problems": problems_of(pieces),
    }


def in_order_of_time(split: Sequence[EdgeTask], pieces: Sequence[Piece], tasks: TableTasks) -> list[Piece]:
    """Read again the tables whose times go back behind those of tables before, so that such rows are refused."""
    silent = replace(tasks, progress=silent_bar())
    found: list[Piece] = []
    last = None
    for task, piece in zip(split, pieces, strict=True):
        if last is not None and piece["first_time"] is not None and piece["first_time"] < last:
            (piece,) = silent.run([replace(task, prefix=f"{task.prefix}_again", last_time=last)])
        found.append(piece)
        last = last if piece["first_time"] is None else piece["last_time"]
    return found
