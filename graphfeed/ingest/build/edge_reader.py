"""Reads the edges of a type into scratch files from which they can be sorted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.growing_arrays import GrowingArrays
from graphfeed.ingest.build.node_ids import NodeIds
from graphfeed.ingest.build.node_reader import Reading
from graphfeed.ingest.build.row_outputs import RowOutputs
from graphfeed.ingest.build.scratch_edges import EdgeFiles
from graphfeed.ingest.build.spec import EdgeTable
from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.ingest.tables.column_types import common_types
from graphfeed.ingest.tables.columns import Batch
from graphfeed.ingest.tables.table import TableSource

NOTE_SECONDS = 30.0
"""How long tables are read before what is done is noted again: an interrupted run loses that much."""


class EdgeReader:
    """Reads the edges of a type.

    Args:
        table: The entry of the specification.
        sources: Its tables.
        reading: How they are read.
        ids: The ids of the sources and of the destinations.
        with_rows: Whether to keep the number of each edge.
        all_sources: All tables of the type, if those are only some of them.
    """

    def __init__(
        self,
        table: EdgeTable,
        sources: Sequence[TableSource],
        reading: Reading,
        ids: tuple[NodeIds, NodeIds],
        with_rows: bool,
        all_sources: Sequence[TableSource] = (),
    ) -> None:
        self.all_sources = all_sources or sources
        self.table, self.sources, self.reading, self.ids, self.with_rows = table, sources, reading, ids, with_rows
        self.last_time: int | None = None

    def read(
        self,
        outputs_folder: Path,
        files: EdgeFiles,
        spec_folder: Path,
        so_far: dict[str, Any] | None,
        note: Callable[[dict[str, Any]], None],
    ) -> dict[str, Any]:
        """Write the files of the edges, and return a description.

        Args:
            outputs_folder: Where features and items go.
            files: The scratch files to write.
            spec_folder: Where the paths of arrays begin.
            so_far: What an earlier run has noted, which goes on from there.
            note: Is called behind a table, but not all the time, with what another run needs to go on from there.
        """
        known: dict[str, Any] = so_far or {"tables": 0, "count": 0, "last_time": None, "outputs": None, "scratch": None}
        count, self.last_time, noted = known["count"], known["last_time"], monotonic()
        outputs = RowOutputs(outputs_folder, files.prefix, self.table, spec_folder, known["outputs"])
        columns = [*outputs.columns()]
        columns += [value for value in (self.table.time, self.table.weight) if isinstance(value, str)]
        common = common_types(self.all_sources, columns)
        columns += [self.table.source, self.table.destination]
        with GrowingArrays(files.folder, known["scratch"]) as scratch, outputs.out:
            for source in self.sources[: known["tables"]]:
                self.reading.progress.update(source.num_rows() or 0)
            for number, source in enumerate(self.sources[known["tables"] :], known["tables"] + 1):
                for batch in self.reading.batches(source, columns, common):
                    count += self.write(batch, outputs, scratch, files, count)
                if number < len(self.sources) and monotonic() - noted >= NOTE_SECONDS:
                    state = {"tables": number, "count": count, "last_time": self.last_time}
                    note(state | {"outputs": outputs.state(), "scratch": scratch.state()})
                    noted = monotonic()
        return outputs.describe() | {"count": count}

    def write(self, batch: Batch, outputs: RowOutputs, scratch: GrowingArrays, files: EdgeFiles, count: int) -> int:
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
        if self.with_rows:
            columns["row"] = np.arange(count, count + size, dtype=np.int64)
        if files.num_ranges > 1:
            # The edges of a range lie together within a batch, so that it is read without those of the others.
            ranges = files.range_of(kept[1]).astype(np.uint16)
            order = np.argsort(ranges, kind="stable")
            columns = {name: values[order] for name, values in columns.items()}
            counts = np.bincount(ranges, minlength=files.num_ranges)
        else:
            counts = np.array([size])
        for name in files.columns:
            scratch.append(f"{files.prefix}_{name}", columns[name])
        scratch.append(f"{files.prefix}_counts", counts[None].astype(np.int64))
        return size

    def find(self, batch: Batch, column: str, ids: NodeIds) -> NDArray[np.int64]:
        """Return the nodes that a column names, and refuse the rows that name none."""
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
                before = np.iinfo(np.int64).min if self.last_time is None else self.last_time
                usable = np.where(batch.drop, before, times)
                latest = np.maximum(np.maximum.accumulate(usable), before)
                earlier = usable < np.concatenate([[before], latest[:-1]])
                batch.refuse(self.table.time, earlier & ~batch.drop, "which is earlier than in a row before")
                self.last_time = int(latest[-1])
            values["time"] = times
        return values
