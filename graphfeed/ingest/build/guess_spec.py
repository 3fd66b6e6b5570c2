"""Guesses a first specification from the names and the columns of tables."""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphfeed.ingest.build.spec import PARTS, EdgeTable, NodeTable, Spec, Split
from graphfeed.ingest.tables.arrow_types import arrow, is_list, is_number, is_text
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.relation import load
from graphfeed.ingest.tables.scans import sql_type
from graphfeed.ingest.tables.table import TEXTS, find_sources

ENDS = ("source target", "source destination", "src dst", "src dest", "from to", "head tail", "start end", "u v", "0 1")
"""How the columns of sources and destinations are often called, maybe with "id" behind it."""
LABELS = {"label", "labels", "y", "target", "class", "category"}
SPLITS = {"split", "fold", "set", "subset", "partition"}
TIMES = {"time", "timestamp", "ts", "date", "datetime", "created", "created_at", "at", "year"}
WEIGHTS = {"weight", "weights", "w"}
PART_NAMES = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation", "testing": "test"}
"""How the parts of a split are often called, in a column of the split or as the names of boolean columns."""
PART_NAMES |= {part: part for part in PARTS}
MEMORY = 1 << 30
FIRST_ROWS = 1 << 16
"""How many rows are looked at to guess what a column holds."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A table, and the columns of its sources and destinations if it seems to hold edges."""

    path: Path
    header: bool
    stem: str
    ends: tuple[str, str] | None
    types: dict[str, Any]
    """The Arrow types of its columns."""
    values: dict[str, set[Any]]
    """What some columns hold in the first rows: texts, and those that may be masks."""


def guess_spec(files: Sequence[str | os.PathLike[str]]) -> tuple[Spec, list[str]]:
    """Guess a specification from the names and the columns of tables.

    Tables with columns of sources and destinations, such as `src` and `dst`, or with two columns named as other tables,
    hold edges, and other tables nodes. Types come from columns such as `user_id` and `item_id`, or from the names of
    the files, such as `nodes_user.parquet` and `edges_user_likes_item.parquet`. Look at the result before you use it.

    Args:
        files: The tables.

    Returns:
        The specification, and remarks about what was left out or may be wrong.

    Raises:
        FileNotFoundError: A file doesn't exist.
        ValueError: A file is damaged or of no known format, or none has edges.
    """
    stems = {stem_of(Path(file)) for file in files}
    seen = [look_at(Path(file), stems) for file in files]
    edges = {type_of(table, seen): table for table in seen if table.ends is not None}
    if not edges:
        raise ValueError(
            f"none of the {len(seen)} files seems to hold edges, with columns such as source and destination"
        )
    ends: dict[str, Any] = {}
    for edge_type, table in edges.items():
        names = edge_type.split(":")[::2] if ":" in edge_type else ["node", "node"]
        ends |= {name: table.types[column] for name, column in zip(names, table.ends or (), strict=True)}
    nodes, unused, remarks = {}, set(), []
    for table in (table for table in seen if table.ends is None):
        words = ["node"] if ends.keys() == {"node"} else [table.stem, table.stem.removesuffix("s")]
        name = next((word for word in words if word in ends), None)
        if name is None:
            unused.add(table.stem)
            remarks.append(f"{table.path}: no edges name nodes of a type {table.stem!r}, so it is left out")
        else:
            nodes[name] = table
    entries = {}
    for name, table in nodes.items():
        columns = {column.lower(): column for column in table.types}
        ids = [columns[key] for key in ("id", f"{name}_id", "node_id", name, "name", "key") if key in columns]
        id_column = next((column for column in ids if is_text(table.types[column]) == is_text(ends[name])), None)
        found = guess_columns(table, {id_column}, unused, remarks)
        found.pop("weight", None)
        entries[name] = NodeTable(id=id_column, **found)
    tables = {}
    for edge_type, table in edges.items():
        source, destination = table.ends or ("", "")
        found = guess_columns(table, {source, destination}, set(), remarks)
        tables[edge_type] = EdgeTable(source=source, destination=destination, **found)
    return Spec(tables, entries), remarks


def guess_yaml(files: Sequence[str | os.PathLike[str]]) -> str:
    spec, remarks = guess_spec(files)
    comments = ["A guess from the names and columns of the tables: look at it before you use it.", *remarks]
    return "".join(f"# {comment}\n" for comment in comments) + spec.to_yaml()


def stem_of(path: Path) -> str:
    """Return the name of a file, without "nodes" or "edges"."""
    return re.sub(r"^(nodes|edges)_|_(nodes|edges)$", "", path.name.partition(".")[0])


def look_at(path: Path, stems: set[str]) -> Seen:
    """Read the columns of a table, and find those of sources and destinations."""
    (source,) = find_sources([path], Path(), header=True, pairs=True)
    # Names that are numbers are values: there is no header.
    if source.suffix in TEXTS and all(re.fullmatch(r"[\d.+-]+", name) for name in source.names):
        (source,) = find_sources([path], Path(), header=False, pairs=True)
    stem, words = stem_of(path), {re.sub(r"_?id$", "", column.lower()): column for column in source.names}
    pairs: list[Sequence[str | None]] = [[words.get(end) for end in pair.split()] for pair in ENDS]
    pairs.append([column for column in source.names if column.lower().endswith("_id")])
    # What has an id of its own, beside those of other tables, is a node.
    others = [column for word, column in words.items() if {word, f"{word}s"} & (stems - {stem})]
    pairs.append([] if "" in words else others)
    pairs.append(source.names[:2] if path.name.startswith("edges") else [])
    ends = next(((pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0] and pair[1]), None)
    # Values that no column of a data set can have are not read.
    columns = [name for name in source.names if source.suffix in TEXTS or sql_type(source.type_of(name)) != "BLOB"]
    types, values = dict.fromkeys(source.names, arrow().binary()), {}
    with tempfile.TemporaryDirectory() as folder, Engine(Path(folder) / "guess.duckdb", MEMORY) as engine:
        relation = load(engine, "rows", [source], {(name, False): "any" for name in columns}, lambda *_: None)
        for (name, _), column in relation.columns.items():
            types[name] = column.type
            if part_of(name) or is_text(column.type):
                some = f"SELECT {column.sql} AS value FROM {relation.sql} LIMIT {FIRST_ROWS}"
                values[name] = {value for (value,) in engine.rows(f"SELECT DISTINCT value FROM ({some})")} - {None, ""}
    return Seen(path, source.header, stem, None if path.name.startswith("nodes") else ends, types, values)


def part_of(column: str) -> str | None:
    return PART_NAMES.get(re.sub(r"^(is|in)_|_(mask|set)$", "", column.lower()))


def type_of(table: Seen, seen: Sequence[Seen]) -> str:
    """Return the edge type that a table seems to hold, one of several; its name if the graph seems to have no types."""
    nodes = {re.sub("s$", "", other.stem): other.stem for other in seen if other.ends is None}
    columns = [column.lower() for column in table.ends or ()]
    ends, parts = [column.removesuffix("_id") for column in columns], table.stem.split("_")
    if " ".join(ends) not in ENDS and (all(name.endswith("_id") for name in columns) or nodes.keys() >= set(ends)):
        return f"{ends[0]}:{'_'.join(part for part in parts if part not in ends) or 'to'}:{ends[1]}"
    if len(parts) >= 3 and (table.path.name.startswith("edges_") or {parts[0], parts[-1]} & set(nodes.values())):
        return f"{parts[0]}:{'_'.join(parts[1:-1])}:{parts[-1]}"
    if sum(other.ends is not None for other in seen) == 1 and len(nodes) <= 1:
        return table.stem
    only = next(iter(nodes.values())) if len(nodes) == 1 else "node"
    return f"{only}:{table.stem}:{only}"


def guess_split(column: str, arrow_type: Any, values: set[Any]) -> Split | None:
    """Return the split that a column gives, by its name or because it has the names of the parts and nothing else."""
    has_name = column.lower() in SPLITS
    if is_number(arrow_type):
        return Split(column, train="0", validation="1", test="2") if has_name else None
    if not is_text(arrow_type):
        return None
    seen = {PART_NAMES[value.lower()]: value for value in values if value.lower() in PART_NAMES}
    if len(seen) < len(values) or "train" not in seen:
        return Split(column) if has_name else None
    return Split(column, **({part: part for part in PARTS} | seen))


def guess_columns(table: Seen, taken: set[str | None], unused: set[str], remarks: list[str]) -> dict[str, Any]:
    """Return what the other columns seem to be, as arguments of a table."""
    types = arrow().types
    others = {column: arrow_type for column, arrow_type in table.types.items() if column not in taken}
    # A column of the name of a table that no edges name holds codes of it: most likely classes.
    label = next((column for column in others if column.lower() in LABELS | unused), None)
    if label is not None and label.lower() in unused:
        remarks.append(f"{table.path}: {label!r} is taken for the label, because a table of that name lists its values")
    result: dict[str, Any] = {"files": table.path.as_posix(), "header": table.header, "label": label}
    features, ignored, masks = [], [], {}
    for column, arrow_type in others.items():
        key, part, values = column.lower(), part_of(column), table.values.get(column, set())
        if column == label:
            continue
        # A mask has booleans, or 0 and 1, which the rows of CSV files have as texts.
        of_two = part and is_number(arrow_type) and set(map(str, values)) <= {"0", "1", "0.0", "1.0"}
        if part is not None and (types.is_boolean(arrow_type) or of_two):
            masks[part] = column
        elif "split" not in result and (split := guess_split(column, arrow_type, values)) is not None:
            result["split"] = split
            remarks.append(f"{table.path}: {column!r} is taken for the split, {split}; check that")
        elif "time" not in result and (
            types.is_temporal(arrow_type) or (key in TIMES and types.is_integer(arrow_type))
        ):
            result["time"] = column
        elif key in WEIGHTS and is_number(arrow_type):
            result["weight"] = column
        elif is_number(arrow_type) or (is_list(arrow_type) and is_number(arrow_type.value_type)):
            features.append(column)
        else:
            ignored.append(column)
    if masks:
        result["split"] = Split(**masks)
    if ignored:
        remarks.append(f"{table.path}: {', '.join(ignored)} are left out, for they hold no numbers")
    return result | ({"features": {"feat": tuple(features)}} if features else {})
