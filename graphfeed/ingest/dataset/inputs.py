"""Inputs of an entry: columns of its tables, and arrays that its features name."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.bad_rows import BadRows
from graphfeed.ingest.dataset.spec import EdgeTable, NodeTable, TableSpec
from graphfeed.ingest.dataset.values import NAN_REASON, NARROW_REASON, is_until
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.relation import WIDTH_REASON, Key, NoColumn, Relation, load_relation
from graphfeed.ingest.tables.table import TableSource, read_archive
from graphfeed.ops.process import local_path
from graphfeed.storage.memory import map_npy


def load_rows(
    engine: Engine,
    name: str,
    table: NodeTable | EdgeTable,
    sources: Sequence[TableSource],
    problems: BadRows,
    more: Mapping[Key, str] | None = None,
) -> Relation:
    """Load the columns of an entry that are needed, and `more`."""
    columns: dict[Key, str] = {(column, False): role for column, role in roles_of(table).items()}
    may_skip = True
    if isinstance(table, NodeTable):
        # If edges name nodes by row, no line may be skipped.
        may_skip = table.id is not None
        named = [table.id, table.names]
    else:
        named = [None if table.source_is_row else table.source, table.destination]
        if isinstance(table.weight, str):
            columns.setdefault((table.weight, False), "weight")
    if isinstance(table.time, str):
        columns.setdefault((table.time, False), "integer")
    columns |= more or {}
    for column in table.until:
        columns.setdefault((column, False), "integer")
    columns |= {(column, True): "id" for column in named if column is not None}
    columns = columns or {(sources[0].names[0], False): "any"}  # to count the rows

    def on_width(source: TableSource, count: int, text: str) -> None:
        if problems.on_error == "raise" or not may_skip:
            raise ValueError(f"{source.name} can't be read as {source.suffix}: {text}")
        problems.count(source.name, WIDTH_REASON, count, f"{WIDTH_REASON}: {text}")

    try:
        relation = load_relation(engine, name, sources, columns, on_width)
    except NoColumn as error:
        raise ValueError(f"{argument_of(table, error.column)}: {error}") from error
    kept = [is_until(relation.columns[column, False], bound) for column, bound in table.until.items()]
    return relation.filtered(engine, " AND ".join(kept)) if kept else relation


def argument_of(table: TableSpec, column: str) -> str:
    """Return the first argument of a table that names a column."""
    for name in ("id", "names", "source", "destination", "weight", "time", "label"):
        if getattr(table, name, None) == column:
            return name
    for name in ("encode", "until"):
        if column in getattr(table, name):
            return name
    return next((f"features.{name}" for name, columns in table.features.items() if column in columns), "split")


def roles_of(table: TableSpec) -> dict[str, str]:
    """Return the columns for features, labels and splits, and the kind of values to read from each."""
    split = table.splits
    roles = {name: "number" for names in table.features.values() for name in names if not is_reference(name)}
    if split is not None and split.time is not None:
        roles.setdefault(split.time, "integer")
    elif split is not None and split.column is None:
        roles |= dict.fromkeys(split.parts.values(), "number")
    roles |= dict.fromkeys([*table.encode, *([] if table.label is None else [table.label])], "any")
    if split is not None and split.column is not None:
        roles[split.column] = "any"
    return roles


def is_reference(name: str) -> bool:
    """Return whether a feature names an array in a file, rather than a column."""
    return name.partition("#")[0].endswith((".npy", ".npz"))


def open_references(table: TableSpec, folder: Path, memory: int) -> dict[str, NDArray[Any]]:
    names = [name for names in table.features.values() for name in names if is_reference(name)]
    return {name: open_reference(name, folder, memory) for name in dict.fromkeys(names)}


def open_reference(reference: str, folder: Path, memory: int) -> NDArray[Any]:
    """Open an array that a feature names: `file.npy`, or `file.npz#name`."""
    path, _, name = local_path("features", reference).partition("#")
    if not (folder / path).is_file():
        raise FileNotFoundError(f"there is no file {folder / path}, which a feature names")
    array: NDArray[Any]
    try:
        file = folder / path
        array = map_npy(file) if path.endswith(".npy") else read_archive(file, memory, [name])[name]
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{reference} can't be read: {error}; write FILE.npz#NAME for an array of several") from error
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise ValueError(f"{reference} must have rows of numbers, but is {array.dtype} of shape {array.shape}")
    return array


def wrong_rows(
    given: Mapping[str, NDArray[Any]], missing: float | None, narrowed: Sequence[str]
) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Yield arrays with their invalid rows, which have NaN or numbers out of float32's range, in bounded memory."""
    rules = {NAN_REASON: [] if missing is not None else list(given), NARROW_REASON: narrowed}
    for reason, name in ((reason, name) for reason, names in rules.items() for name in names):
        array = given[name]
        if array.dtype.kind == "b" or (reason == NAN_REASON and array.dtype.kind != "f"):
            continue
        is_wrong = np.isnan if reason == NAN_REASON else is_narrowed
        step = max((1 << 24) * len(array) // max(array.nbytes, 1), 1)
        rows = [
            start + np.flatnonzero(is_wrong(array[start : start + step]).any(axis=tuple(range(1, array.ndim))))
            for start in range(0, len(array), step)
        ]
        found = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        if len(found):
            yield name, reason, found


def is_narrowed(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which floats become infinite in float32, and which integers become inexact."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if values.dtype.kind == "f":
        return np.asarray(np.isinf(narrow) & ~np.isinf(values))
    wide = values.astype(np.float64)  # exact for all integers that float32 can represent
    return np.asarray((narrow != wide) | (np.abs(wide) >= 1 << 53))


def refuse_numbers_that_are_columns(name: str, table: Any, sources: Sequence[TableSource]) -> None:
    """Raise a ValueError if a weight or a time is an integer that could also be the name of a column."""
    numbers = {key: value for key in ("weight", "time") if isinstance(value := getattr(table, key, None), int)}
    for (key, value), source in product(numbers.items(), sources):
        if str(value) in source.names:
            raise ValueError(
                f"{name}: {key} is {value}, which may be a number for all rows or the column {value} of "
                f"{source.name}; write '{value}' in quotes for the column, or {float(value)} for the number"
            )
