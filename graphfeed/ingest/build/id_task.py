"""The ids of nodes: those that their tables have, or those that edges name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.growing_arrays import GrowingArrays
from graphfeed.ingest.build.node_ids import IdCollector, NodeIds, chosen, joined_ids, text_buffers
from graphfeed.ingest.build.table_tasks import (
    ROWS,
    Piece,
    Reading,
    TableTask,
    TableTasks,
    file_of,
    group_tables,
    marks_of,
)
from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.ingest.tables.column_types import has_text_ids
from graphfeed.ingest.tables.columns import OnError
from graphfeed.ingest.tables.table import TableSource, as_texts
from graphfeed.storage.memory import map_npy

Ends = Sequence[tuple[TableSource, str]]
"""Tables, and the column of each that has ids."""


@dataclass(frozen=True, kw_only=True)
class IdTask(TableTask):
    """Reads columns of ids into files."""

    names: Sequence[str] = ()  # the column of each table
    texts: bool = False
    distinct: bool = False  # each id that there is once, in any order, rather than that of each row

    def read(self, reading: Reading, folder: Path) -> Piece:
        """Write the ids, and whether each row has one, unless there are ids among integers that are texts: 007."""
        collector, rows = IdCollector(), 0
        with GrowingArrays(folder / ROWS, f"{self.prefix}_") as out:
            for batch, column in self.batches(reading):
                rows += len(batch)
                if not self.texts and batch.padded(column).any():
                    return {"rows": rows, "padded": True}
                ids = batch.ids(column, self.texts)
                if self.distinct:
                    collector.add(chosen(ids, ~batch.drop))
                else:
                    append(out, ids)
                    out.append("given", ~batch.drop)
            if self.distinct and rows:
                append(out, collector.distinct())
        return {"rows": rows, "padded": False}

    def batches(self, reading: Reading) -> Iterator[tuple[Any, str]]:
        for source, column in zip(self.sources, self.names, strict=True):
            for batch in reading.batches(source, [column]):
                yield batch, column


def append(out: GrowingArrays, ids: Any) -> None:
    if isinstance(ids, np.ndarray):
        out.append("ids", ids)
        return
    offsets, values = text_buffers(ids)
    out.append("ids", values)  # the bytes of the texts, one behind the other
    out.append("lengths", np.diff(offsets))


def load(folder: Path, piece: Piece, texts: bool) -> Any:
    """Return the ids that a task wrote: integers, or an Arrow array of texts."""
    if not piece["rows"]:
        return arrow().array([], arrow().large_string()) if texts else np.zeros(0, dtype=np.int64)
    ids = np.array(map_npy(file_of(folder, piece, "ids")))
    if not texts:
        return ids
    return as_texts(np.concatenate([[0], np.cumsum(map_npy(file_of(folder, piece, "lengths")))]), ids)


def run_id_tasks(tasks: TableTasks, ends: Ends, task: IdTask) -> tuple[list[Any], list[Piece]]:
    """Read columns of ids, and return the ids that each task read, with what it says of them."""
    texts, before = task.texts or has_text_ids(ends), tasks.progress.n
    pieces = tasks.run(
        [
            replace(
                task,
                prefix=f"{task.prefix}_{'texts' if texts else 'ids'}_{number}",
                sources=[source for source, _ in group],
                names=[column for _, column in group],
                texts=texts,
            )
            for number, group in enumerate(group_tables(ends))
        ]
    )
    if any(piece["padded"] for piece in pieces):
        # Ids such as 007 are texts, and make texts of all: they are read again.
        tasks.progress.update(before - tasks.progress.n)
        return run_id_tasks(tasks, ends, replace(task, texts=True))
    return [load(tasks.rows, piece, texts) for piece in pieces], pieces


def read_ids(tasks: TableTasks, ends: Ends, prefix: str, on_error: OnError) -> tuple[Any, NDArray[np.bool_], list[int]]:
    """Return the ids of all rows, whether each row has one, and how many rows come before each group of tables."""
    parts, pieces = run_id_tasks(tasks, ends, IdTask(prefix=prefix, on_error=on_error))
    starts = list(accumulate((piece["rows"] for piece in pieces), initial=0))
    return joined_ids(parts), marks_of(tasks.rows, pieces, "given"), starts


def collect_ids(tasks: TableTasks, ends: Ends, prefix: str) -> NodeIds:
    """Return the ids of nodes without tables: all that the given columns of edges name."""
    parts, _ = run_id_tasks(tasks, ends, IdTask(prefix=prefix, on_error=tasks.on_error, distinct=True))
    collector = IdCollector()
    for ids in parts:
        collector.add(ids)
    return collector.finish()
