"""A query of the rows of an entry: columns to read, rules that rows may break, and the arrays to write."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.bad_rows import BadRows
from graphfeed.ingest.dataset.inputs import is_reference, open_references, wrong_rows
from graphfeed.ingest.dataset.spec import EdgeTable, NodeTable, Spec
from graphfeed.ingest.dataset.split import PARTS
from graphfeed.ingest.dataset.values import (
    MISSING_HINT,
    NAN_REASON,
    ROUNDED_REASON,
    Check,
    Values,
    beyond_float32,
    feature,
    in_seconds,
    is_value,
    masks,
    numbers,
    parts_of_time,
    rule,
)
from graphfeed.ingest.queries import entries
from graphfeed.ingest.queries import numbers as sql_of
from graphfeed.ingest.queries.columns import parse_texts
from graphfeed.ingest.tables.arrow_types import arrow, is_arrow_list, is_text, item_type, unit_of
from graphfeed.ingest.tables.engine import Engine, as_numpy
from graphfeed.ingest.tables.relation import Relation, TableColumn
from graphfeed.ops.arguments import brief
from graphfeed.ops.process import ProgressBar
from graphfeed.storage.datasets import DatasetWriter, RowFiles

MOST_CLASSES = 10_000
"""Maximum number of distinct strings of a label."""
MOST_LETTERS = 1 << 18
"""Maximum number of characters of these strings: `metadata.yaml` lists them, and its size is limited."""
SPLIT_VALUES = 20
"""Maximum number of values of a split's column that an error lists."""


@dataclass
class Query:
    """The columns and arrays to read for an entry, and the rules for its rows."""

    engine: Engine
    spec: Spec
    writer: DatasetWriter
    table: NodeTable | EdgeTable
    relation: Relation
    bad: BadRows
    bar: ProgressBar
    real_labels: bool = False
    """Whether labels of integers are numbers rather than classes."""
    given: dict[str, NDArray[Any]] = field(init=False)
    """Arrays that the features name."""
    narrowed: list[str] = field(default_factory=list)
    """Names of arrays to convert to float32 because the feature also has floats."""
    features: list[list[Values | str]] = field(default_factory=list)
    """Components of each feature: columns, and names of arrays."""
    categories: dict[str, list[Any]] = field(default_factory=dict)
    """The values of columns of categories, in the order of their codes."""
    label: Values | None = None
    classes: list[str] = field(default_factory=list)
    labelled: str = "true"
    """SQL for whether a row has a label."""
    parts: dict[str, str] = field(default_factory=dict)
    """SQL for whether a row belongs to each part of the split."""
    checks: list[Check] = field(default_factory=list)
    """Rules for features, labels and splits, followed by rules for the other columns."""
    time: Values | None = None
    time_type: list[Any] | None = None
    """Name of the entry, type and unit of a column of times."""

    def __post_init__(self) -> None:
        table, relation = self.table, self.relation
        self.given = open_references(table, self.spec.folder, self.engine.memory)
        for names in table.feature_columns.values():
            parts = [self.read_part(name) for name in names]
            self.features.append(parts)
            dtypes = [part.dtype if isinstance(part, Values) else self.given[part].dtype for part in parts]
            as_floats = len(parts) > 1 and np.result_type(*dtypes).kind == "f"
            for name, part, dtype in zip(names, parts, dtypes, strict=True):
                if isinstance(part, Values):
                    self.checks += part.checks
                    if as_floats and dtype.kind in "iu":
                        self.checks += beyond_float32(relation.columns[name, False], part, joined=True)
                elif as_floats or (table.dtype is not None and dtype.kind in "iu"):
                    self.narrowed.append(name)
        for reference, array in self.given.items():
            if len(array) != relation.num_rows:
                raise ValueError(
                    f"{reference} has {len(array)} rows, but its table has {relation.num_rows}; give one row for each"
                )
        split = table.splits
        if split is not None and split.time is not None:
            self.parts, checks = parts_of_time(relation.columns[split.time, False], split)
            self.checks += checks
        elif split is not None and split.column is None:
            columns = {part: relation.columns[name, False] for part, name in split.parts.items()}
            self.parts, checks = masks(columns)
            self.checks += checks
        elif split is not None and split.column is not None:
            column = relation.columns[split.column, False]
            self.parts = {part: is_value(column, value) for part, value in split.parts.items()}
            self.check_split(column)
        if isinstance(table, EdgeTable) and table.task is not None and split is None:
            self.parts["train"] = "true"
        if table.label is not None:
            self.read_label(relation.columns[table.label, False])

    def read_part(self, name: str) -> Values | str:
        """Return a part of a feature: a column with the dtype to write, or the name of an array."""
        if name in self.table.encode:
            return self.read_categories(name)
        if is_reference(name):
            return name
        found, column = self.read_feature(name), self.relation.columns[name, False]
        if self.table.dtype is None or found.dtype.kind == "f":
            return found
        integers = arrow().types.is_integer(item_type(column.type))
        checks = beyond_float32(column, found, joined=True) if integers else []
        return replace(found, checks=[*found.checks, *checks], dtype=np.dtype(np.float32))

    def read_categories(self, name: str) -> Values:
        """Return the codes of a column of categories: positions among its sorted values, and then that of no value."""
        column, types = self.relation.columns[name, False], arrow().types
        known = (types.is_integer, types.is_boolean, types.is_null)
        if not is_text(column.type) and not any(check(column.type) for check in known):
            raise TypeError(
                f"{column.table}: {name} has {column.type}, but encode needs strings, integers or booleans; save the "
                "column as strings"
            )
        own = parse_texts(column.sql, column.type) if column.raw and not is_text(column.type) else column.sql
        self.categories[name], code = self.codes(f"categories_{len(self.categories)}", f"{column.table}: {name}", own)
        return Values(code, dtype=np.dtype(np.int64))

    def codes(self, kind: str, what: str, sql: str, missing: int | None = None) -> tuple[list[Any], str]:
        """Return the sorted distinct values of a column, and SQL for positions among them, by default also of NULL."""
        rows = self.engine.rows(entries.distinct_values(sql, self.relation.sql, MOST_CLASSES + 1))
        found = [value for (value,) in rows]
        if len(found) > MOST_CLASSES or sum(map(len, map(str, found))) > MOST_LETTERS:
            raise ValueError(
                f"{what} has more than {MOST_CLASSES} different values, or more than {MOST_LETTERS} characters in "
                "these; save numbers instead"
            )
        missing = len(found) if missing is None else missing
        if not found:
            return [], f"({missing})::BIGINT"
        self.engine.run(entries.create_codes(kind, sql, self.relation.sql))
        return found, entries.code_of(kind, sql, missing)

    def read_feature(self, name: str) -> Values:
        """Return the column of a feature; vectors must have the length of the first one."""
        column, relation, table = self.relation.columns[name, False], self.relation, self.table
        length = None
        if is_arrow_list(column.type):
            sizes = [getattr(source.type_of(name), "list_size", None) for source in relation.sources]
            found = self.engine.rows(entries.length_of_first(column.sql, relation.sql))
            length = next((size for size in sizes if size is not None), found[0][0] if found else None)
            if length is None and table.missing is not None and relation.num_rows:
                raise ValueError(
                    f"{column.table}: no row has a vector in {name}, so their length is unknown; save vectors of a "
                    "fixed size"
                )
        hint = f"; {MISSING_HINT}" if self.bad.on_error == "raise" else ""
        return feature(column, table.missing, length, hint)

    def check_split(self, column: TableColumn) -> None:
        """Raise a ValueError if a value named by the split does not occur."""
        engine, relation, split = self.engine, self.relation, self.table.splits
        if not relation.num_rows or split is None:
            return
        (some,) = engine.rows(entries.is_any([*self.parts.values()], relation.sql))
        found = dict(zip(self.parts, some, strict=True))
        for part, value in split.parts.items():
            # A split has the names of the parts by default, not all of which need to occur.
            if not found[part] and (part != value or not any(found.values())):
                values = engine.rows(entries.first_values(column.sql, relation.sql, SPLIT_VALUES))
                raise ValueError(
                    f"split: no row has {value!r} in the column {split.column!r}, which stands for {part}; the column "
                    f"has {brief([own for own, _ in values])}"
                )

    def read_label(self, column: TableColumn) -> None:
        """Find the format of the labels, and the rows that have one."""
        dtype: np.dtype[Any] = np.dtype(np.int64)
        if is_text(column.type):
            self.classes, sql = self.codes("classes", f"{column.table}: the label {column.name}", column.sql, -1)
        elif is_arrow_list(column.type):
            self.label = self.read_feature(column.name)
            self.checks += self.label.checks
        else:
            whole = not arrow().types.is_floating(column.type) and not self.real_labels
            found = numbers(column, "a number", whole=whole, optional=True)
            self.checks += found.checks
            sql = f"coalesce(({found.sql})::BIGINT, -1)"
            if not whole:
                value = f"coalesce({found.sql}::DOUBLE, 'nan')"
                if not self.real_labels:
                    ((whole,),) = self.engine.rows(entries.are_whole(value, self.relation.sql))
                if whole:
                    sql = sql_of.label_of_float(value)
                    self.checks.append(rule(column, f"{value} BETWEEN {1 << 53} AND 9e18", ROUNDED_REASON))
                else:
                    self.checks += beyond_float32(column, found)
                    sql = f"TRY_CAST({value} AS FLOAT)"
                dtype = np.dtype(np.int64 if whole else np.float32)
        if not is_arrow_list(column.type):
            self.label = Values(sql, dtype=dtype)
            self.labelled = f"{sql} >= 0" if dtype.kind == "i" else f"NOT isnan({sql})"
        if self.table.split is None:
            self.parts["train"] = self.labelled

    def read_time(self, name: str) -> None:
        if isinstance(self.table.time, str):
            column = self.relation.columns[self.table.time, False]
            self.time = numbers(column, "a time", whole=True)
            unit = unit_of(column.type)
            if self.spec.time_unit is not None:
                self.time, unit = in_seconds(column, self.time)
            self.time_type = [name.strip(), str(column.type), unit]
            self.checks += self.time.checks

    @property
    def broken(self) -> list[str]:
        """SQL for whether a row breaks each rule."""
        return [check.broken for check in self.checks]

    def find_bad(self, known: str | None = None) -> NDArray[np.int64]:
        """Find the rows that break a rule, and return their numbers; `known` is a table that already has the codes."""
        engine, sql = self.engine, self.relation.sql
        engine.run(entries.create_bad(known or entries.with_code(self.broken, sql)))
        for name, reason, rows in wrong_rows(self.given, self.table.missing, self.narrowed):
            self.checks.append(Check("false", name, reason, "'nan'::DOUBLE" if reason == NAN_REASON else "'a number'"))
            engine.run(entries.create_rows("rows_of_array", ["BIGINT"]))
            engine.insert("rows_of_array", 0, [rows])
            engine.run(entries.add_bad("rows_of_array", len(self.checks) - 1, sql))
        dropped = self.bad.raise_or_count(engine, self.relation, self.checks)
        self.note_unlabelled()
        return dropped

    def note_unlabelled(self) -> None:
        """Count the rows of parts of the split that have no label."""
        for part, condition in self.parts.items() if self.label is not None and self.table.split is not None else ():
            rows = entries.unlabelled(self.relation.sql, condition, self.labelled)
            for _, first, count in self.relation.by_table(self.engine, rows):
                source, row = self.relation.place(first)
                missing = f"{self.table.label} is missing"
                reason = f"{missing}, so they are not items of {part}"
                self.bad.count(source.name, reason, count, f"row {row}: {missing}")

    def batches(
        self, source: str, columns: Sequence[str], count: int, dropped: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[Iterator[Any], int, slice | NDArray[np.int64]]]:
        """Yield columns of the rows that are kept, the number of these rows, and their positions among all rows."""
        self.bar.total, first = self.bar.total + count, 0
        for batch in self.engine.stream(entries.select(["n", *columns], source)):
            places: slice | NDArray[np.int64] = slice(first, first + len(batch))
            first += len(batch)
            self.bar.update(len(batch))
            if dropped is not None and len(dropped):
                kept = ~np.isin(as_numpy(batch.column(0)), dropped)
                places, batch = first - len(batch) + np.flatnonzero(kept), batch.filter(arrow().array(kept))
            yield iter(batch.columns[1:]), len(batch), places

    def write_features(self, arrays: RowFiles, dropped: NDArray[np.int64]) -> dict[str, str]:
        """Write the features, and return the file of each."""
        for number, parts in enumerate(self.features):  # so that they have a width even without rows
            empty = [self.rows_of_array(part, slice(0)) if isinstance(part, str) else part.empty for part in parts]
            arrays.append(f"feature_{number}", joined(empty))
        sql = [part.sql for parts in self.features for part in parts if isinstance(part, Values)]
        passes = self.batches(self.relation.sql, sql, self.relation.num_rows, dropped) if self.features else ()
        for columns, _, places in passes:
            for number, parts in enumerate(self.features):
                values = [
                    typed_array(next(columns), part) if isinstance(part, Values) else self.rows_of_array(part, places)
                    for part in parts
                ]
                arrays.append(f"feature_{number}", joined(values))
        return {name: arrays.file(f"feature_{number}") for number, name in enumerate(self.table.feature_columns)}

    def rows_of_array(self, name: str, places: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Return rows of an array that a feature names, with the dtype to write."""
        rows = without_nan(self.given[name][places], self.table.missing)
        return rows.astype(np.float32) if self.table.dtype is not None and rows.dtype.kind in "iub" else rows

    @property
    def of_items(self) -> dict[str, str]:
        """SQL by name for the members of items other than seeds: labels, and whether rows belong to each part."""
        label = {} if self.label is None else {"labels": self.label.sql}
        return label | {part: f"({own}) AND ({self.labelled})" for part, own in self.parts.items()}

    def write_items(
        self, arrays: RowFiles, source: str, count: int, columns: Mapping[str, str], ends: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Write the items of each part, and return their files and the classes of the labels."""
        # In addition to `of_items`, columns may have timestamps. Without ends, the rows are nodes; one end names them.
        largest, first = -1, 0
        passes = self.batches(source, [*ends, *columns.values()], count) if self.parts else ()
        for found, rows, _ in passes:
            seeds = [as_numpy(next(found)) for _ in ends]
            items = {"seeds": np.arange(first, first + rows)}
            if ends:
                items["seeds"] = np.stack(seeds, axis=1) if len(ends) > 1 else seeds[0].astype(np.int64)
            own = {name: next(found) for name in columns}
            if "timestamp" in own:
                items["timestamp"] = as_numpy(own["timestamp"])
            if self.label is not None:
                items["labels"] = typed_array(own["labels"], self.label)
                if items["labels"].dtype.kind == "i":
                    largest = max(largest, int(items["labels"].max(initial=-1)))
            # If edges of some type have features, items of all types have the ids, because they share member names.
            if len(ends) > 1 and self.spec.has_edge_features:
                items["seed_edge_ids"] = np.arange(first, first + rows)
            for part in self.parts:
                chosen = as_numpy(own[part])
                for name, values in items.items():
                    arrays.append(f"{part}_{name}", values[chosen])
            first += rows
        writers = arrays.writers
        names = {part: [name for name in writers if name.startswith(f"{part}_")] for part in PARTS}
        return {
            "items": {
                part: {name.removeprefix(f"{part}_"): arrays.file(name) for name in found}
                for part, found in names.items()
                if found
            },
            "classes": self.classes or None,
            "num_classes": len(self.classes) or largest + 1,
        }


def typed_array(values: Any, wanted: Values) -> NDArray[Any]:
    """Return a column of numbers or vectors without NULL as an array of the wanted dtype."""
    array = as_numpy(values if wanted.length is None else values.flatten())
    return (array if wanted.length is None else array.reshape(len(values), wanted.length)).astype(wanted.dtype)


def without_nan(values: NDArray[Any], missing: float | None) -> NDArray[Any]:
    if missing is None or values.dtype.kind != "f":
        return values
    return np.where(np.isnan(values), values.dtype.type(missing), values)


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate columns and vectors; the result has at least two dimensions, like all features."""
    wide = [part[:, None] if part.ndim == 1 else part for part in parts]
    if len(wide) == 1:
        return wide[0]
    dtype = np.result_type(*(part.dtype for part in wide))
    dtype = np.dtype(np.float32) if dtype.kind == "f" else dtype
    return np.concatenate([part.reshape(len(part), prod(part.shape[1:])).astype(dtype) for part in wide], axis=1)
