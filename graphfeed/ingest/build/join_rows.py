"""Joins what tasks wrote of the rows of tables, where only all of them tell which class and which node is which."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.growing_arrays import GrowingArrays
from graphfeed.ingest.build.row_outputs import MOST_CLASSES, SPLIT_VALUES
from graphfeed.ingest.build.spec import PARTS, Table
from graphfeed.ingest.build.table_tasks import Piece, file_of
from graphfeed.ops.arguments import brief
from graphfeed.ops.process import progress_bar
from graphfeed.storage.datasets import PART_BYTES
from graphfeed.storage.memory import map_npy

Convert: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


class Part(NamedTuple):
    """A file with some rows of an array, and what makes rows of the whole of them."""

    path: Path
    convert: Convert | None = None


def join_rows(rows_folder: Path, output: Path, prefix: str, table: Table, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Write the files of features and items, and return their description; pieces are in the order of the tables."""
    num_rows = sum(piece["rows"] for piece in pieces)
    for reference, length in pieces[0]["given"].items():
        if length != num_rows:
            raise ValueError(f"{reference} has {length} rows, but its table has {num_rows}; give one for each")
    check_split(table, pieces)
    classes = all_classes(table, pieces)
    whole = any(piece["some_missing"] for piece in pieces) and all(piece["all_whole"] for piece in pieces)
    # Features that tasks have put into their places stay there. Of the rest, what a single task wrote is moved, and
    # what several wrote is copied.
    kinds = {name: "" for piece in pieces for name in piece["placed"]}
    for name in dict.fromkeys(name for piece in pieces for name in piece["arrays"]):
        parts = [
            Part(file_of(rows_folder, piece, name), conversion(name, piece, classes, whole))
            for piece in pieces
            if name in piece["arrays"]
        ]
        kinds[name] = join_array(output / f"{prefix}_{name}.npy", parts)
    features = {name: f"feature_{number}" for number, name in enumerate(table.features)}
    items = {
        part: {name.removeprefix(f"{part}_"): f"{prefix}_{name}.npy" for name in kinds if name.startswith(f"{part}_")}
        for part in PARTS
    }
    numbered = any(kind == "i" for name, kind in kinds.items() if name.endswith("_labels"))
    return {
        "features": {name: f"{prefix}_{file}.npy" for name, file in features.items() if file in kinds},
        "items": {part: files for part, files in items.items() if files},
        "classes": list(classes) or None,
        "num_classes": len(classes) or (max(piece["largest"] for piece in pieces) + 1 if numbered else 0),
    }


def conversion(name: str, piece: Piece, classes: Mapping[str, int], whole: bool) -> Convert | None:
    """Return what makes rows of an array of all rows of those of a task, or None if they are the same."""
    if name.endswith("_labels") and classes:
        return np.array([*(classes[text] for text in piece["classes"]), -1], dtype=np.int64).__getitem__
    if name.endswith("_labels") and whole:  # data frames make floats of integers of which some are missing
        return partial(np.asarray, dtype=np.int64)
    if name.endswith("_seeds") and piece.get("first_node"):  # each task numbers its nodes from 0
        return partial(np.add, piece["first_node"])
    return None


def join_array(target: Path, parts: Sequence[Part]) -> str:
    """Write the rows of several files into one, and return the kind of their dtype; one file is moved if it can."""
    if len(parts) == 1 and parts[0].convert is None:
        if parts[0].path.exists():  # otherwise a run that was interrupted has moved it
            parts[0].path.replace(target)
        return str(map_npy(target).dtype.kind)
    arrays = [map_npy(part.path) for part in parts]
    bar = progress_bar(f"writing {target.name}", sum(map(len, arrays)), "row")
    with GrowingArrays(target.parent) as out, bar:
        for part, rows in zip(parts, arrays, strict=True):
            step = max(PART_BYTES * len(rows) // max(rows.nbytes, 1), 1)
            for start in range(0, max(len(rows), 1), step):
                block = rows[start : start + step]
                out.append(target.stem, block if part.convert is None else part.convert(block))
                bar.update(len(block))
    return out.arrays[target.stem].dtype.kind


def all_classes(table: Table, pieces: Sequence[Piece]) -> dict[str, int]:
    # In alphabetical order, whatever the order that they came in.
    classes = sorted({name for piece in pieces for name in piece["classes"]})
    if len(classes) > MOST_CLASSES:
        raise ValueError(
            f"the label {table.label} has more than {MOST_CLASSES} different texts; save numbers in their place"
        )
    return {name: number for number, name in enumerate(classes)}


def check_split(table: Table, pieces: Sequence[Piece]) -> None:
    """Raise if a value that the split names is never there."""
    split = table.splits
    if split is None or split.column is None or not any(piece["rows"] for piece in pieces):
        return
    found = {part for piece in pieces for part in piece["parts"]}
    values = list(dict.fromkeys(value for piece in pieces for value in piece["split_values"]))[:SPLIT_VALUES]
    for part, value in split.parts.items():
        # The names of the parts are what a split has by default; not all of them need be there.
        if part not in found and (part != value or not found):
            raise ValueError(
                f"split: no row has {value!r} in the column {split.column!r}, which stands for {part}; the column "
                f"has {brief(values)}"
            )
