"""Guesses an initial specification from the names and the columns of tables."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphfeed.ingest.build.spec import EdgeTable, NodeTable, Spec
from graphfeed.ingest.build.split import Split
from graphfeed.ingest.tables.arrow_types import arrow, is_arrow_list, is_arrow_number, is_text
from graphfeed.ingest.tables.scans import csv_schema
from graphfeed.ingest.tables.table import CSV, EDGE_LISTS, find_sources
from graphfeed.ops.arguments import brief, checked

ENDS = ("source target", "source destination", "src dst", "src dest", "from to", "head tail", "start end", "u v", "0 1")
"""Common names of the columns of sources and destinations, possibly followed by "id"."""
LABELS = ("label", "labels", "y", "target", "class", "category")
SPLITS = ("split", "fold", "set", "subset", "partition")
TIMES = ("time", "timestamp", "ts", "date", "datetime", "created", "created_at", "at", "year")
WEIGHTS = ("weight", "weights", "w")
MASK = r"(?:is_|in_)?(?:(train)(?:ing)?|(val)(?:id|idation)?|(test)(?:ing)?)(?:_mask|_set)?"
"""Common names of bool columns that select a part of the split."""


class Seen:
    """A table, its columns with their types, and the columns of sources and destinations if it seems to have edges."""

    def __init__(self, path: Path, stems: set[str]) -> None:
        source, *_ = find_sources([path], Path(), header=True, pairs=True)
        # If all names are numbers, they are values: there is no header.
        self.header = source.suffix in EDGE_LISTS or not all(re.fullmatch(r"[\d.+-]+", name) for name in source.names)
        source, *_ = find_sources([path], Path(), header=self.header, pairs=True)
        self.path, self.stem = path.as_posix(), stem_of(path)
        self.types = dict.fromkeys(source.names, arrow().int64())  # for lists of edges, for example
        if source.suffix in CSV:
            self.types = dict(zip(source.names, csv_schema(path, CSV[source.suffix], source.head).types, strict=True))
        elif source.suffix not in EDGE_LISTS:
            self.types = {name: source.type_of(name) for name in source.names}
        words = {re.sub(r"_?id$", "", column.lower()): column for column in source.names}
        pairs: list[list[Any]] = [[words.get(end) for end in pair.split()] for pair in ENDS]
        pairs.append([column for column in source.names if column.lower().endswith("_id")])
        # A table with its own id, in addition to those of other tables, has nodes.
        others = [column for word, column in words.items() if {word, f"{word}s"} & (stems - {self.stem})]
        pairs.append([] if "" in words else others)
        pairs.append(source.names[:2] if path.name.startswith("edges") else [])
        found = next((pair for pair in pairs if len(pair) == 2 and all(pair)), [])
        self.ends: list[str] = [] if path.name.startswith("nodes") else found

    def edge_type(self, nodes: dict[str, "Seen"], several: bool) -> str:
        """Return the edge type of the table; its own name if the graph seems to have no types."""
        ends, parts = [re.sub("_id$", "", column.lower()) for column in self.ends], self.stem.split("_")
        names = {re.sub("s$", "", stem) for stem in nodes}
        if " ".join(ends) not in ENDS and (names >= set(ends) or all(end.lower().endswith("_id") for end in self.ends)):
            return f"{ends[0]}:{'_'.join(part for part in parts if part not in ends) or 'to'}:{ends[1]}"
        if len(parts) >= 3 and (Path(self.path).name.startswith("edges_") or {parts[0], parts[-1]} & nodes.keys()):
            return f"{parts[0]}:{'_'.join(parts[1:-1])}:{parts[-1]}"
        if not several and len(nodes) < 2:
            return self.stem
        only = next(iter(nodes)) if len(nodes) == 1 else "node"
        return f"{only}:{self.stem}:{only}"

    def arguments(self, taken: Sequence[str | None], remarks: list[str]) -> dict[str, Any]:
        """Return the guessed roles of the other columns, as arguments of a table."""
        found: dict[str, Any] = {"files": self.path, "header": self.header}
        masks, features, ignored = {}, [], []
        for column, arrow_type in self.types.items():
            key, number, temporal = column.lower(), is_arrow_number(arrow_type), arrow().types.is_temporal(arrow_type)
            part = re.fullmatch(MASK, key)
            if column in taken:
                continue
            if part and arrow().types.is_boolean(arrow_type):
                masks[("train", "validation", "test")[(part.lastindex or 1) - 1]] = column
            elif "label" not in found and key in LABELS:
                found["label"] = column
            elif "split" not in found and key in SPLITS:
                found["split"] = Split(column, "0", "1", "2") if number else Split(column)
                remarks.append(f"{self.path}: {column!r} is used as the split, {found['split']}; check that")
            elif "time" not in found and (temporal or (key in TIMES and arrow().types.is_integer(arrow_type))):
                found["time"] = column
            elif self.ends and key in WEIGHTS and number:
                found.setdefault("weight", column)
            elif number or (is_arrow_list(arrow_type) and is_arrow_number(arrow_type.value_type)):
                features.append(column)
            else:
                ignored.append(column)
        if ignored:
            remarks.append(f"{self.path}: {', '.join(ignored)} left out, because features must be numbers")
        found |= {"split": Split(**masks)} if masks else {}
        return found | ({"features": {"feat": tuple(features)}} if features else {})


@checked
def guess_spec(files: Sequence[str | os.PathLike[str]]) -> tuple[Spec, list[str]]:
    """Guess a specification from the names and columns of tables.

    Tables with columns of sources and destinations, such as `src` and `dst`, or with two columns named after other
    tables, have edges; other tables have nodes. Types come from columns such as `user_id` and `item_id`, or from file
    names such as `nodes_user.parquet` and `edges_user_likes_item.parquet`. Check the result before you use it.

    Returns:
        The specification, and remarks about columns that were left out and about doubtful guesses.

    Raises:
        ValueError: A file is damaged or has an unknown format, or no file has edges.
    """
    if not all(isinstance(file, (str, os.PathLike)) for file in files):
        raise TypeError(f"files must be a list of paths, but is {brief(files)}")
    seen = [Seen(Path(file), {stem_of(Path(other)) for other in files}) for file in files]
    with_ends, others = [table for table in seen if table.ends], {table.stem: table for table in seen if not table.ends}
    if not with_ends:
        raise ValueError(
            f"none of the {len(seen)} files has two id columns, such as source and destination, or user_id and item_id"
        )
    remarks: list[str] = []
    edges, nodes, texts = {}, {}, dict[str, bool]()
    for table in with_ends:
        edge_type = table.edge_type(others, len(with_ends) > 1)
        names = edge_type.split(":")[::2] if ":" in edge_type else ["node", "node"]
        texts |= {name: is_text(table.types[column]) for name, column in zip(names, table.ends, strict=True)}
        found = table.arguments(table.ends, remarks)
        edges[edge_type] = EdgeTable(source=table.ends[0], destination=table.ends[1], **found)
    for stem, table in others.items():
        words = ["node"] if texts.keys() == {"node"} else [stem, stem.removesuffix("s")]
        name = next((word for word in words if word in texts), None)
        if name is None:
            remarks.append(f"{table.path}: no edges name nodes of a type {stem!r}, so it is left out")
            continue
        columns = {column.lower(): column for column in table.types}
        ids = [columns[key] for key in ("id", f"{name}_id", "node_id", name, "name", "key") if key in columns]
        id_column = next((column for column in ids if is_text(table.types[column]) == texts[name]), None)
        nodes[name] = NodeTable(id=id_column, **table.arguments([id_column], remarks))
    return Spec(edges, nodes), remarks


def guess_yaml(files: Sequence[str | os.PathLike[str]]) -> str:
    spec, remarks = guess_spec(files)
    comments = ["A guess from the names and columns of the tables: check it before you use it.", *remarks]
    return "".join(f"# {comment}\n" for comment in comments) + spec.to_yaml()


def stem_of(path: Path) -> str:
    """Return the name of a file without extensions and without "nodes" or "edges"."""
    return re.sub(r"^(nodes|edges)_|_(nodes|edges)$", "", path.name.partition(".")[0])
