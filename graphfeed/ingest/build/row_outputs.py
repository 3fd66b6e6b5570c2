"""Writes features and task items, from labels, splits and times: for nodes and for edges."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.growing_arrays import GrowingArrays, Place
from graphfeed.ingest.build.spec import PARTS, Table
from graphfeed.ingest.tables.arrow_types import arrow, is_list, is_text
from graphfeed.ingest.tables.columns import Batch, as_numpy
from graphfeed.storage.memory import map_npy

MOST_CLASSES = 10_000
"""How many different texts a label may have."""
SPLIT_VALUES = 20
"""How many values of a split's column an error may list."""


def columns_of(table: Table) -> list[str]:
    """Return the columns that features and items are made of."""
    names = [name for names in table.features.values() for name in names if not is_reference(name)]
    split = table.splits
    if table.label is not None:
        names.append(table.label)
    if split is not None:
        names += [split.column] if split.column is not None else split.parts.values()
    return names


def references_of(table: Table) -> list[str]:
    return [name for names in table.features.values() for name in names if is_reference(name)]


def open_references(table: Table, spec_folder: Path) -> dict[str, NDArray[Any]]:
    return {name: open_reference(name, spec_folder) for name in references_of(table)}


class RowOutputs(GrowingArrays):
    """Writes features and items of the rows of tables."""

    def __init__(
        self,
        folder: Path,
        prefix: str,
        table: Table,
        spec_folder: Path,
        first_row: int = 0,  # how many rows come before these
        place: Place | None = None,  # where the features belong, if none of the rows is left out
    ) -> None:
        super().__init__(folder, f"{prefix}_")
        self.table, self.place = table, place
        self.given = open_references(table, spec_folder)
        """The arrays that features name."""
        self.first_row = first_row
        self.rows = 0
        """How many rows were read."""
        self.classes: dict[str, int] = {}
        self.largest = -1
        self.some_missing, self.all_whole = False, True
        """Whether labels that are floats have NaN, and are classes otherwise."""
        self.parts: list[str] = []
        """The parts of the split of which there was a row."""
        self.split_values: list[str] = []
        """Some values that the column of the split has."""
        for number, names in enumerate(table.features.values()):
            if all(map(is_reference, names)):  # so that they have their width even where there are no rows
                self.append(f"feature_{number}", joined([self.given[name][:0] for name in names]), place)

    def describe(self) -> dict[str, Any]:
        """Return what is known of the rows as plain values, for `join_rows`."""
        names = ("rows", "largest", "some_missing", "all_whole", "parts", "split_values")
        return {name: getattr(self, name) for name in names} | {
            "arrays": [name for name, writer in self.arrays.items() if not writer.shared],
            "placed": [name for name, writer in self.arrays.items() if writer.shared],
            "given": {name: len(array) for name, array in self.given.items()},
            "classes": list(self.classes),
        }

    def read(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """Return the features and the labels of all rows of a batch, and mark the rows that are wrong."""
        start = self.first_row + self.rows
        rows: dict[str, NDArray[Any]] = {}
        for number, names in enumerate(self.table.features.values()):
            parts = []
            for name in names:
                if is_reference(name):
                    values = self.given[name][start : start + len(batch)]
                    if len(values) < len(batch):
                        raise ValueError(
                            f"{name} has {len(self.given[name])} rows, but {batch.table.name} goes on; "
                            "give a row for each of the table"
                        )
                    parts.append(batch.without_nan(name, values, self.table.missing, float("nan")))
                else:
                    parts.append(as_float32(batch.feature(name, self.table.missing)))
            rows[f"feature_{number}"] = joined(parts)
        rows |= self.split(batch)
        if self.table.label is not None:
            rows["label"], labelled = self.labels(batch)
            if self.table.split is None:
                rows["train"] = labelled
            for part in PARTS:
                if part in rows:
                    self.note_unlabelled(batch, rows[part] & ~labelled & ~batch.drop, part)
                    rows[part] &= labelled
        self.rows += len(batch)
        return rows

    def write(self, batch: Batch, rows: dict[str, NDArray[Any]], items: dict[str, NDArray[Any]]) -> None:
        """Write the rows that are kept, with what their items have beside labels, such as seeds."""
        kept = {name: batch.keep(values) for name, values in rows.items()}
        try:
            self.append_rows(kept, items)
        except ValueError as error:  # rows of another dtype or shape than those before
            raise ValueError(f"{batch.table.name}: {error}") from error
        labels = kept.get("label", np.zeros(0))
        if labels.dtype.kind == "i" or (labels.ndim == 1 and self.all_whole):
            self.largest = max(self.largest, int(labels[labels >= 0].max(initial=-1)))

    def note_unlabelled(self, batch: Batch, rows: NDArray[np.bool_], part: str) -> None:
        if rows.any():
            reason = f"{self.table.label} is missing, so they are no items of {part}"
            first = f"row {batch.first_row + int(np.argmax(rows))}: {self.table.label} is missing"
            batch.problems.count(batch.table.name, reason, int(rows.sum()), first)

    def append_rows(self, kept: dict[str, NDArray[Any]], items: dict[str, NDArray[Any]]) -> None:
        """Append rows to the files of the features, and of the parts of the split that they belong to."""
        for number in range(len(self.table.features)):
            values = kept[f"feature_{number}"]
            # Without a vector in any row, their length isn't known.
            if len(values) or values.shape[1:] != (0,):
                self.append(f"feature_{number}", values, self.place)
        for part in PARTS:
            if part in kept:
                for name, values in items.items():
                    self.append(f"{part}_{name}", values[kept[part]])
                if "label" in kept:
                    self.append(f"{part}_labels", kept["label"][kept[part]])

    def split(self, batch: Batch) -> dict[str, NDArray[np.bool_]]:
        """Return for each part whether a row belongs to it."""
        split = self.table.splits
        if split is None:
            return {}
        if split.column is None:
            return read_masks(batch, split.parts)
        encoded = batch.texts(split.column).dictionary_encode()
        codes = as_numpy(encoded.indices.fill_null(-1)).astype(np.int64)
        values = encoded.dictionary.to_pylist()
        self.split_values = list(dict.fromkeys([*self.split_values, *values]))[:SPLIT_VALUES]
        masks = {}
        for part, wanted in split.parts.items():
            # The last one is for rows without a value, whose code is -1.
            same = np.array([*(is_same(value, wanted, batch.type_of(split.column)) for value in values), False])
            masks[part] = same[codes]
            if same.any() and part not in self.parts:
                self.parts.append(part)
        return masks

    def labels(self, batch: Batch) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return a label for each row, and whether it has one. Texts are numbered as they come, for now."""
        pa = arrow()
        column = self.table.label
        assert column is not None
        arrow_type = batch.type_of(column)
        if is_text(arrow_type):
            encoded = batch.texts(column).dictionary_encode()
            numbers = [self.classes.setdefault(name, len(self.classes)) for name in encoded.dictionary.to_pylist()]
            if len(self.classes) > MOST_CLASSES:
                raise ValueError(
                    f"{batch.table.name}: the label {column} has more than {MOST_CLASSES} different texts; "
                    "save numbers in their place"
                )
            codes = as_numpy(encoded.indices.fill_null(-1)).astype(np.int64)
            return np.array([*numbers, -1], dtype=np.int64)[codes], codes >= 0
        if is_list(arrow_type):
            values = batch.feature(column, self.table.missing)
            return as_float32(values), np.ones(len(values), dtype=bool)
        if pa.types.is_floating(arrow_type):
            floats = batch.numbers(column, pa.float32(), float("nan"))
            labelled = ~np.isnan(floats)
            self.some_missing |= not bool(labelled.all())
            self.all_whole &= bool(((floats[labelled] >= 0) & (floats[labelled] % 1 == 0)).all())
            return floats, labelled
        integers = batch.numbers(column, pa.int64(), -1)
        return integers, integers >= 0


def read_masks(batch: Batch, parts: dict[str, str]) -> dict[str, NDArray[np.bool_]]:
    """Return the columns of booleans that split the rows, and refuse rows that are in several parts."""
    masks: dict[str, NDArray[np.bool_]] = {}
    taken = np.zeros(len(batch), dtype=bool)
    for part, column in parts.items():
        values = batch.numbers(column, arrow().float64(), 0.0)
        batch.refuse(column, (values != 0) & (values != 1), "but a mask must be 0 or 1")
        masks[part] = values == 1
        batch.refuse(column, masks[part] & taken, f"but the row is for another part than {part} already")
        taken |= masks[part]
    return masks


def is_same(text: str, wanted: str, arrow_type: Any) -> bool:
    # 1, 1.0 and true are the same in a column of numbers or booleans.
    return text == wanted or (not is_text(arrow_type) and as_value(text) == as_value(wanted))


def as_value(text: str) -> float | str:
    if text.lower() in {"true", "false"}:
        return float(text.lower() == "true")
    try:
        return float(text)
    except ValueError:
        return text


def is_reference(name: str) -> bool:
    """Return whether a feature names an array in a file, rather than a column."""
    return name.partition("#")[0].endswith((".npy", ".npz"))


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
