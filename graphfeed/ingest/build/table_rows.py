"""The rows of an entry: which of them are wrong, and those that arrays are written of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.array_files import as_numpy
from graphfeed.ingest.build.bad_rows import OnError, Problems, first_broken, settle
from graphfeed.ingest.build.row_outputs import RowOutputs, RowPlan, plan_rows, roles_of, rows_with_nan
from graphfeed.ingest.build.spec import EdgeTable, NodeTable, Spec
from graphfeed.ingest.build.values import MISSING_HINT, Check, Values, numbers
from graphfeed.ingest.tables.arrow_types import arrow, unit_of
from graphfeed.ingest.tables.column_types import Key
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.relation import WIDTH_REASON, Relation, load
from graphfeed.ingest.tables.table import TableSource
from graphfeed.ops.process import ProgressBar

BAD = "bad_rows"
"""The table of wrong rows, each with the rule that it breaks."""


@dataclass(frozen=True)
class Places:
    """What all entries are read with."""

    engine: Engine
    spec: Spec
    output: Path
    """The folder of the arrays."""
    scratch: Path
    """The folder of what only an unfinished data set needs."""
    on_error: OnError


@dataclass
class TableRows:
    """The rows of the tables of an entry."""

    places: Places
    table: NodeTable | EdgeTable
    relation: Relation
    given: Mapping[str, NDArray[Any]]
    """The arrays that features name."""
    problems: Problems
    bar: ProgressBar
    plan: RowPlan = field(init=False)
    checks: list[Check] = field(default_factory=list)
    time: Values | None = None
    time_type: list[Any] | None = None
    """Of a column of times: the name of the entry, the type and the unit."""

    def __post_init__(self) -> None:
        hint = f"; {MISSING_HINT}" if self.places.on_error == "raise" else ""
        self.plan = plan_rows(self.places.engine, self.relation, self.table, self.given, hint)

    def read_time(self, name: str) -> None:
        """Take the times from their column, if the entry has one."""
        if isinstance(self.table.time, str):
            column = self.relation.columns[self.table.time, False]
            self.time = numbers(column, "a time", whole=True)
            self.time_type = [name.strip(), str(column.type), unit_of(column.type)]
            self.checks += self.time.checks

    def find_bad(self, known: str | None = None) -> NDArray[np.int64]:
        """Find the rows that break a rule, and return their numbers; `known` is a table that has them already."""
        engine, sql = self.places.engine, self.relation.sql
        source = known or f"(SELECT n, {first_broken(self.checks)} AS code FROM {sql})"
        engine.run(f"CREATE OR REPLACE TABLE {BAD} AS SELECT n, code FROM {source} WHERE code IS NOT NULL")
        for name, rows in rows_with_nan(self.given) if self.table.missing is None else ():
            self.checks.append(Check("false", name, f"which has NaN; {MISSING_HINT}", "'nan'::DOUBLE"))
            for n in pick(engine.stream(f"SELECT n FROM {sql}"), rows):
                new = f"{n} NOT IN (SELECT n FROM {BAD})"
                engine.run(f"INSERT INTO {BAD} SELECT {n}, {len(self.checks) - 1} WHERE {new}")
        return settle(engine, self.relation, BAD, self.checks, self.problems)

    def batches(
        self, dropped: NDArray[np.int64], needed: bool = False
    ) -> Iterator[tuple[Any, dict[str, NDArray[Any]]]]:
        """Yield the rows that are kept, which arrays are written of, with those of the arrays that features name."""
        self.bar.total, first = self.relation.num_rows, 0
        if not self.plan.columns and not self.given and not needed:
            self.bar.update(self.relation.num_rows)
            return
        columns = ", ".join(["n", *self.plan.columns])
        for batch in self.places.engine.stream(f"SELECT {columns} FROM {self.relation.sql}"):
            rows = {name: array[first : first + len(batch)] for name, array in self.given.items()}
            first += len(batch)
            self.bar.update(len(batch))
            kept = ~np.isin(as_numpy(batch.column(0)), dropped)
            if kept.all():
                yield batch, rows
            else:
                yield batch.filter(arrow().array(kept)), {name: own[kept] for name, own in rows.items()}

    def note_unlabelled(self, outputs: RowOutputs) -> None:
        """Count the rows of parts of the split that have no label."""
        for part, rows in outputs.unlabelled.items():
            for source, own in groupby(map(self.relation.place, rows), itemgetter(0)):
                found = [row for _, row in own]
                reason = f"{self.table.label} is missing, so they are no items of {part}"
                self.problems.count(source.name, reason, len(found), f"row {found[0]}: {self.table.label} is missing")


def load_rows(
    places: Places,
    name: str,
    table: NodeTable | EdgeTable,
    sources: Sequence[TableSource],
    problems: Problems,
) -> Relation:
    """Return the columns of an entry that are read."""
    columns: dict[Key, str] = {(column, False): role for column, role in roles_of(table).items()}
    may_skip = True
    if isinstance(table, NodeTable):
        # Where edges name nodes by row, no line may be left out.
        may_skip = table.id is not None
        named = [table.id, table.names]
    else:
        named = [table.source, table.destination]
        if isinstance(table.weight, str):
            columns.setdefault((table.weight, False), "number")
    if isinstance(table.time, str):
        columns.setdefault((table.time, False), "integer")
    columns |= {(column, True): "id" for column in named if column is not None}
    columns = columns or {(sources[0].names[0], False): "any"}  # to count the rows by

    def on_width(source: TableSource, count: int, text: str) -> None:
        if problems.on_error == "raise" or not may_skip:
            raise ValueError(f"{source.name} can't be read as {source.suffix}: {text}")
        problems.count(source.name, WIDTH_REASON, count, f"{WIDTH_REASON}: {text}")

    return load(places.engine, name, sources, columns, on_width)


def pick(batches: Iterator[Any], rows: NDArray[np.int64]) -> Iterator[int]:
    """Yield some integers of a stream of batches, given by their places in ascending order."""
    first = 0
    for batch in batches:
        own = rows[(rows >= first) & (rows < first + len(batch))] - first
        yield from as_numpy(batch.column(0))[own].tolist()
        first += len(batch)


class IntegerStream:
    """Integers of a stream of batches, which are taken so many rows at a time."""

    def __init__(self, batches: Iterator[Any], width: int) -> None:
        self.batches, self.rest = batches, [np.zeros(0, dtype=np.int64)] * width

    def take(self, count: int) -> list[NDArray[np.int64]]:
        """Return the columns of the next rows."""
        while len(self.rest[0]) < count:
            pairs = zip(self.rest, next(self.batches).columns, strict=True)
            self.rest = [np.concatenate([rest, as_numpy(column).astype(np.int64)]) for rest, column in pairs]
        taken, self.rest = [rest[:count] for rest in self.rest], [rest[count:] for rest in self.rest]
        return taken
