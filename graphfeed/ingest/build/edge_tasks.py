"""The edges of a type as tasks, each of which reads some of its tables into scratch files of their own."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from graphfeed.ingest.build.edge_reader import EdgeReader
from graphfeed.ingest.build.node_ids import load_node_ids
from graphfeed.ingest.build.node_reader import Reading
from graphfeed.ingest.build.scratch_edges import EdgeFiles
from graphfeed.ingest.build.spec import EdgeTable
from graphfeed.ingest.tables.columns import OnError, Problems
from graphfeed.ingest.tables.table import TableSource
from graphfeed.ops.process import progress_bar
from graphfeed.storage.datasets import LEAST_TASKS, SCRATCH, run_tasks

MOST_TASKS = 64
"""Each task reads the ids of the nodes, so that many small tables are read together."""
MOST_RANGES = 256
BYTES_PER_EDGE = 32
"""What an edge takes while its range is sorted, roughly."""


def num_ranges(sources: Sequence[TableSource], memory: int, executor: Executor | None) -> int:
    """Return into how many ranges to split edges while they are read, so that each can be sorted in some memory."""
    edges = 0
    for source in sources:
        rows = source.num_rows()
        # Two ids with what separates them rarely take less than 12 bytes of text.
        edges += source.source.stat().st_size // 12 if rows is None else rows
    least = 1 if executor is None else LEAST_TASKS
    return int(min(max(-(-edges * BYTES_PER_EDGE // max(memory, 1)), least), MOST_RANGES))


def split_tables(table: EdgeTable, sources: Sequence[TableSource], executor: Executor | None) -> list[int]:
    """Return which table is the first one of each task, and at last how many there are.

    There is one task without an executor, or if what is read of a table depends on those before it: rows of arrays,
    the length of vectors, the numbers of classes, the order of times.
    """
    apart = not (table.features or table.label or table.split or table.time_sorted)
    tasks = min(len(sources), MOST_TASKS) if apart and executor is not None else 1
    return [len(sources) * number // tasks for number in range(tasks + 1)]


@dataclass(frozen=True)
class EdgeTask:
    """Reads some tables of an edge type.

    Args:
        table: The entry of the specification.
        sources: All tables of it, which decide on the types of columns.
        files: The scratch files to write, in the folder that `run_tasks` gives.
        ids: For the sources and the destinations, what `load_node_ids` takes.
        with_rows: Whether to keep the number of each edge, which begins at 0 in each task.
        most_rows: How many rows to read at a time.
        on_error: What to do about rows that are wrong.
        bounds: The first table to read, and the one behind the last.
    """

    table: EdgeTable
    sources: Sequence[TableSource]
    files: EdgeFiles
    ids: tuple[tuple[Path, Any, int], tuple[Path, Any, int]]
    with_rows: bool
    most_rows: int
    on_error: OnError
    bounds: tuple[int, int] = (0, 0)

    def __call__(self, folder: Path) -> dict[str, Any]:
        """Write the files, and return their description with how many edges there are, and which rows were wrong."""
        (folder / SCRATCH).mkdir()
        source_ids = load_node_ids(*self.ids[0])
        destination_ids = source_ids if self.ids[0] == self.ids[1] else load_node_ids(*self.ids[1])
        silent = progress_bar("", None, "row", wanted=False)
        reading = Reading(self.most_rows, Problems(self.on_error), silent)
        some = self.sources[slice(*self.bounds)]
        reader = EdgeReader(self.table, some, reading, (source_ids, destination_ids), self.with_rows, self.sources)
        files = replace(self.files, folder=folder / SCRATCH)
        described = reader.read(folder, files, Path(), None, lambda _: None)
        return described | {"problems": reading.problems.as_list()}


def read_in_tasks(task: EdgeTask, bounds: Sequence[int], reading: Reading, executor: Executor | None) -> dict[str, Any]:
    """Read the tables of an edge type in tasks, and return its description.

    Args:
        task: What the tasks have in common; their files lie in a folder of the unfinished one.
        bounds: What `split_tables` returned.
        reading: Gets the progress, and the rows that were wrong.
        executor: Who reads; None for this thread.
    """
    tasks = {}
    for low, high in pairwise(bounds):
        files = replace(task.files, prefix=f"{task.files.prefix}_{low}")
        tasks[files.prefix] = replace(task, files=files, bounds=(low, high))
    unfinished = task.files.folder.parent
    results = run_tasks(unfinished, tasks, executor, lambda result: reading.progress.update(result["count"]))
    for result in results.values():
        reading.problems.add(result.pop("problems"))
    pieces = [[prefix, result["count"]] for prefix, result in results.items()]
    described: dict[str, Any] = next(iter(results.values()))
    return described | {"count": sum(count for _, count in pieces), "pieces": pieces}
