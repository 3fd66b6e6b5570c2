"""Writes features and task items, from labels, splits and times: for nodes and for edges."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.array_files import Arrays, as_numpy, number_array, vector_array, without_nan
from graphfeed.ingest.build.spec import PARTS, Table
from graphfeed.ingest.build.values import Check, Values, feature, is_value, masks, numbers
from graphfeed.ingest.tables.arrow_types import arrow, is_list, is_number, is_text
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.relation import Column, Relation
from graphfeed.ops.arguments import brief
from graphfeed.storage.memory import map_npy

MOST_CLASSES = 10_000
"""How many different texts a label may have."""
SPLIT_VALUES = 20
"""How many values of a split's column an error may list."""


def roles_of(table: Table) -> dict[str, str]:
    """Return the columns that features and items are made of, and what each is read as."""
    split = table.splits
    roles = {name: "number" for names in table.features.values() for name in names if not is_reference(name)}
    if split is not None and split.column is None:
        roles |= dict.fromkeys(split.parts.values(), "number")
    if table.label is not None:
        roles[table.label] = "any"
    if split is not None and split.column is not None:
        roles[split.column] = "any"
    return roles


def references_of(table: Table) -> list[str]:
    return [name for names in table.features.values() for name in names if is_reference(name)]


@dataclass
class RowPlan:
    """What is read of each row, as SQL, and what makes arrays of it."""

    columns: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    features: list[list[Any]] = field(default_factory=list)
    """For each feature its parts: the number of a column with what makes an array of it, or an array."""
    parts: dict[str, int] = field(default_factory=dict)
    """The columns that tell which rows are of the parts of the split."""
    label: tuple[int, Callable[[Any], tuple[NDArray[Any], NDArray[np.bool_]]]] | None = None
    classes: list[str] = field(default_factory=list)

    def add(self, sql: str) -> int:
        self.columns.append(sql)
        return len(self.columns) - 1


def plan_rows(
    engine: Engine, relation: Relation, table: Table, given: Mapping[str, NDArray[Any]], hint: str
) -> RowPlan:
    """Return what is read of the rows of a relation; `hint` is said of numbers that are missing."""
    plan = RowPlan()
    for names in table.features.values():
        parts: list[Any] = []
        for name in names:
            if is_reference(name):
                parts.append(name)
                continue
            column = relation.columns[name, False]
            values = column_values(engine, relation, column, table.missing, hint)
            plan.checks += values.checks
            parts.append((plan.add(values.sql), to_array(column, values, table.missing)))
        plan.features.append(parts)
    for reference, array in given.items():
        if len(array) != relation.num_rows:
            raise ValueError(
                f"{reference} has {len(array)} rows, but its table has {relation.num_rows}; give one for each"
            )
    split = table.splits
    if split is not None and split.column is None:
        parts_of_masks, checks = masks({part: relation.columns[name, False] for part, name in split.parts.items()})
        plan.parts = {part: plan.add(sql) for part, sql in parts_of_masks.items()}
        plan.checks += checks
    elif split is not None and split.column is not None:
        column = relation.columns[split.column, False]
        wanted = {part: is_value(column, value) for part, value in split.parts.items()}
        check_split(engine, relation, table, wanted)
        plan.parts = {part: plan.add(sql) for part, sql in wanted.items()}
    if table.label is not None:
        plan_label(engine, relation, relation.columns[table.label, False], table, plan)
    return plan


def column_values(engine: Engine, relation: Relation, column: Column, missing: float | None, hint: str) -> Values:
    """Return a feature's column, whose vectors are as long as the first one."""
    length = None
    if is_list(column.type):
        sizes = [getattr(source.type_of(column.name), "list_size", None) for source in relation.sources]
        found = engine.rows(f"SELECT len({column.sql}) FROM {relation.sql} WHERE {column.sql} IS NOT NULL LIMIT 1")
        length = next((size for size in sizes if size is not None), found[0][0] if found else None)
        if length is None and missing is not None and relation.num_rows:
            raise ValueError(
                f"{column.table}: no row has a vector in {column.name}, so their length isn't known; save vectors of a "
                "fixed size"
            )
    return feature(column, missing, length, hint)


def to_array(column: Column, values: Values, missing: float | None) -> Callable[[Any], NDArray[Any]]:
    arrow_type = column.type
    if values.length is not None:
        inner, length = arrow_type.value_type, values.length
        inner = arrow().float64() if arrow().types.is_null(inner) else inner
        return lambda part: as_float32(vector_array(part, inner, length, missing))
    if arrow().types.is_boolean(arrow_type):
        arrow_type = arrow().uint8()
    elif not is_number(arrow_type):
        arrow_type = arrow().float64()
    return lambda part: as_float32(number_array(part, arrow_type, missing))


def plan_label(engine: Engine, relation: Relation, column: Column, table: Table, plan: RowPlan) -> None:
    """Plan what makes labels of a column, and tells which rows have one."""
    pa = arrow()
    if is_text(column.type):
        found = engine.rows(
            f"SELECT DISTINCT {column.sql} FROM {relation.sql} WHERE {column.sql} IS NOT NULL LIMIT {MOST_CLASSES + 1}"
        )
        if len(found) > MOST_CLASSES:
            raise ValueError(
                f"{column.table}: the label {column.name} has more than {MOST_CLASSES} different texts; "
                "save numbers in their place"
            )
        plan.classes = sorted(name for (name,) in found)
        classes = pa.array(plan.classes, pa.string())

        def codes(part: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
            found = arrow("compute").index_in(part.cast(pa.string()), classes)
            numbers = as_numpy(found.fill_null(-1)).astype(np.int64)
            return numbers, numbers >= 0

        plan.label = plan.add(column.sql), codes
        return
    if is_list(column.type):
        values = column_values(engine, relation, column, table.missing, "")
        vectors = to_array(column, values, table.missing)
        plan.checks += values.checks
        plan.label = plan.add(values.sql), lambda part: (vectors(part), np.ones(len(part), dtype=bool))
        return
    values = numbers(column, "a number", whole=not pa.types.is_floating(column.type), optional=True)
    plan.checks += values.checks
    number = plan.add(values.sql)
    if not pa.types.is_floating(column.type):
        plan.label = number, integer_labels
        return
    # Data frames make floats of integers of which some are missing.
    value = f"{values.sql}::FLOAT"
    absent = f"({value} IS NULL OR isnan({value}))"
    whole = f"({absent} OR ({value} >= 0 AND {value} = trunc({value})))"
    some, all_whole = engine.rows(f"SELECT bool_or({absent}), bool_and({whole}) FROM {relation.sql}")[0]
    plan.label = number, integer_labels if some and all_whole else float_labels


def integer_labels(part: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    pa = arrow()
    if pa.types.is_floating(part.type):
        floats, labelled = float_labels(part)
        return np.where(labelled, floats, -1).astype(np.int64), labelled
    integers = as_numpy(part.cast(pa.int64()).fill_null(-1))
    return integers, integers >= 0


def float_labels(part: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    floats = as_numpy(part.cast(arrow().float32(), safe=False).fill_null(float("nan")))
    return floats, ~np.isnan(floats)


def check_split(engine: Engine, relation: Relation, table: Table, wanted: Mapping[str, str]) -> None:
    """Raise if a value that the split names is never there."""
    split = table.splits
    assert split is not None
    assert split.column is not None
    if not relation.num_rows:
        return
    some = ", ".join(f"bool_or({condition})" for condition in wanted.values())
    found = dict(zip(wanted, engine.rows(f"SELECT {some} FROM {relation.sql}")[0], strict=True))
    for part, value in split.parts.items():
        # The names of the parts are what a split has by default; not all of them need be there.
        if not found[part] and (part != value or not any(found.values())):
            sql = relation.columns[split.column, False].sql
            values = engine.rows(
                f"SELECT {sql}::VARCHAR, min(n) AS first FROM {relation.sql} GROUP BY ALL ORDER BY first "
                f"LIMIT {SPLIT_VALUES}"
            )
            raise ValueError(
                f"split: no row has {value!r} in the column {split.column!r}, which stands for {part}; the column "
                f"has {brief([own for own, _ in values])}"
            )


class RowOutputs:
    """Writes the features and the items of rows."""

    def __init__(self, table: Table, plan: RowPlan, given: Mapping[str, NDArray[Any]], arrays: Arrays) -> None:
        self.table, self.plan, self.arrays = table, plan, arrays
        self.count, self.largest = 0, -1
        self.unlabelled: dict[str, list[int]] = {}
        """By part of the split, the numbers of rows that have no label."""
        for number, parts in enumerate(plan.features):
            if all(isinstance(part, str) for part in parts):  # so that they have their width even without rows
                arrays.append(f"feature_{number}", joined([given[name][:0] for name in parts]))

    def write(self, batch: Any, given: Mapping[str, NDArray[Any]], items: dict[str, NDArray[Any]]) -> None:
        """Write the rows of a batch, with those of the arrays that features name, and what items have beside labels."""
        columns = batch.columns[1:]
        for number, parts in enumerate(self.plan.features):
            values = joined(
                [
                    without_nan(given[part], self.table.missing) if isinstance(part, str) else part[1](columns[part[0]])
                    for part in parts
                ]
            )
            # Without a vector in any row, their length isn't known.
            if len(values) or values.shape[1:] != (0,):
                self.arrays.append(f"feature_{number}", values)
        chosen = {part: as_numpy(columns[column]) for part, column in self.plan.parts.items()}
        labels = None
        if self.plan.label is not None:
            column, convert = self.plan.label
            labels, labelled = convert(columns[column])
            if self.table.split is None:
                chosen["train"] = labelled
            numbers = as_numpy(batch.column(0))
            for part in chosen:
                self.unlabelled.setdefault(part, []).extend(numbers[chosen[part] & ~labelled].tolist())
                chosen[part] = chosen[part] & labelled
            if labels.dtype.kind == "i":
                self.largest = max(self.largest, int(labels.max(initial=-1)))
        for part in PARTS:
            if part in chosen:
                for name, values in items.items():
                    self.arrays.append(f"{part}_{name}", values[chosen[part]])
                if labels is not None:
                    self.arrays.append(f"{part}_labels", labels[chosen[part]])
        self.count += len(batch)

    def describe(self) -> dict[str, Any]:
        """Return the files that were written, and what is known of the classes."""
        writers, classes = self.arrays.writers, self.plan.classes
        names = {part: [name for name in writers if name.startswith(f"{part}_")] for part in PARTS}
        numbered = any(writer.dtype.kind == "i" for name, writer in writers.items() if name.endswith("_labels"))
        return {
            "features": {
                name: self.arrays.file(f"feature_{number}")
                for number, name in enumerate(self.table.features)
                if f"feature_{number}" in writers
            },
            "items": {
                part: {name.removeprefix(f"{part}_"): self.arrays.file(name) for name in found}
                for part, found in names.items()
                if found
            },
            "classes": classes or None,
            "num_classes": len(classes) or (self.largest + 1 if numbered else 0),
        }


def is_reference(name: str) -> bool:
    """Return whether a feature names an array in a file, rather than a column."""
    return name.partition("#")[0].endswith((".npy", ".npz"))


def open_references(table: Table, spec_folder: Path) -> dict[str, NDArray[Any]]:
    return {name: open_reference(name, spec_folder) for name in dict.fromkeys(references_of(table))}


def open_reference(reference: str, folder: Path) -> NDArray[Any]:
    """Open an array that a feature names: `file.npy`, or `file.npz#name`."""
    path, _, name = reference.partition("#")
    if not (folder / path).is_file():
        raise FileNotFoundError(f"there is no file {folder / path}, which a feature names")
    array: NDArray[Any]
    try:
        if path.endswith(".npy"):
            array = map_npy(folder / path)
        else:
            with (folder / path).open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                array = arrays[name]
    except Exception as error:
        raise ValueError(f"{reference} can't be read: {error}; write FILE.npz#NAME for an array of several") from error
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise ValueError(f"{reference} must have rows of numbers, but is {array.dtype} of shape {array.shape}")
    return array


def rows_with_nan(given: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each array that has NaN, with the rows that do, in bounded memory."""
    for name, array in given.items():
        if array.dtype.kind != "f":
            continue
        step = max((1 << 24) * len(array) // max(array.nbytes, 1), 1)
        rows = [
            start + np.flatnonzero(np.isnan(array[start : start + step]).any(axis=tuple(range(1, array.ndim))))
            for start in range(0, len(array), step)
        ]
        found = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        if len(found):
            yield name, found


def as_float32(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float32) if values.dtype == np.float64 else values


def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return columns and vectors beside each other; always with two dimensions or more, as features have."""
    wide = [part[:, None] if part.ndim == 1 else part for part in parts]
    if len(wide) == 1:
        return wide[0]
    floats = any(part.dtype.kind == "f" for part in wide)
    whole = np.concatenate([part.reshape(len(part), -1) for part in wide], axis=1)
    return whole.astype(np.float32) if floats else whole
