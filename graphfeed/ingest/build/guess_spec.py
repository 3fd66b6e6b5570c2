"""Guesses a first specification from the names and the columns of tables."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphfeed.ingest.build.spec import EdgeTable, NodeTable, Spec, Split
from graphfeed.ingest.tables.columns import is_list, is_number, is_text, value_type
from graphfeed.ingest.tables.table import CSV, TableSource, arrow, suffix_of

ENDS = (
    ("source", "destination"),
    ("source", "target"),
    ("src", "dst"),
    ("src", "dest"),
    ("from", "to"),
    ("head", "tail"),
    ("start", "end"),
    ("u", "v"),
    ("0", "1"),
)
"""How the columns of sources and destinations are often called, maybe with "id" or "node" beside it."""
LABELS = {"label", "labels", "y", "target", "class", "category"}
SPLITS = {"split", "fold", "set", "subset", "partition"}
TIMES = {"time", "timestamp", "ts", "date", "datetime", "created", "created_at", "at", "year"}
WEIGHTS = {"weight", "weights", "w"}
MASKS = {"train_mask": "train", "val_mask": "validation", "valid_mask": "validation", "test_mask": "test"}
NAMES_OF_PARTS = {
    "train": ("train", "training", "0"),
    "validation": ("validation", "valid", "val", "dev", "1"),
    "test": ("test", "testing", "2"),
}
SAMPLED_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class Seen:
    """A table and what it seems to hold."""

    path: Path
    source: TableSource
    schema: Any
    ends: tuple[str, str] | None
    """The columns of sources and destinations, if it seems to be a table of edges."""

    @property
    def stem(self) -> str:
        """The name without what says that it is about nodes or edges."""
        name = self.path.name[: -len("".join(self.path.suffixes))] or self.path.stem
        return re.sub(r"^(nodes?|edges?|vertices|links|relations?)[_-]|[_-](nodes?|edges?|vertices|links)$", "", name)


def guess_spec(files: Sequence[str | os.PathLike[str]]) -> tuple[Spec, list[str]]:
    """Guess a specification from the names and the columns of tables.

    Tables with columns of sources and destinations hold edges, other tables nodes. Types are guessed from the names of
    the files, such as `nodes_user.parquet` and `edges_user_likes_item.parquet`, or from those of the columns. Look at
    the result before you use it.

    Args:
        files: The tables.

    Returns:
        The specification, and remarks about what was left out or may be wrong.

    Raises:
        FileNotFoundError: A file doesn't exist.
        ValueError: A file is damaged or of no known format, or none has edges.
    """
    seen = [look_at(Path(file)) for file in files]
    edges = [table for table in seen if table.ends is not None]
    others = {name_of(table, edges): table for table in seen if table.ends is None}
    if not edges:
        raise ValueError(
            f"none of the {len(seen)} files seems to hold edges, with columns such as source and destination"
        )
    remarks: list[str] = []
    if len(edges) == 1 and len(others) <= 1 and not names_types(edges[0], others):
        kinds = {edges[0].stem: edges[0]}
        used = dict(zip(["node"], others.values(), strict=False))
    else:
        kinds = {type_of(table, others): table for table in edges}
        named = {end for kind in kinds for end in kind.split(":")[::2]}
        used = {name: table for name, table in others.items() if name in named}
        remarks += (
            f"{others[name].path}: no edges name nodes of a type {name!r}, so it is left out"
            for name in sorted(set(others) - set(used))
        )
    unused = {name for name, table in others.items() if table not in used.values()}
    texts = {name: is_named_by_texts(name, kinds) for name in used}
    nodes = {name: guess_nodes(name, table, texts[name], unused, remarks) for name, table in used.items()}
    return Spec({kind: guess_edges(table, remarks) for kind, table in kinds.items()}, nodes), remarks


def guess_yaml(files: Sequence[str | os.PathLike[str]]) -> str:
    """Return a guessed specification as YAML, with the remarks as comments. Paths are as given."""
    spec, remarks = guess_spec(files)
    comments = ["A guess from the names and columns of the tables: look at it before you use it.", *remarks]
    return "".join(f"# {comment}\n" for comment in comments) + spec.to_yaml()


def look_at(path: Path) -> Seen:
    """Read the columns of a table."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    source = TableSource(path, str(path), pairs=True)
    schema = source.schema()
    if suffix_of(path) in CSV and all(re.fullmatch(r"[\d.+-]+", name) for name in schema.names):
        source = replace(source, header=False)
        schema = source.schema()
    return Seen(path, source, schema, find_ends(path, schema))


def find_ends(path: Path, schema: Any) -> tuple[str, str] | None:
    """Return the columns of sources and destinations, or None if there seem to be none."""
    plain = {re.sub(r"[_ -]?(id|node|idx|index)s?$|^(id|node)[_ -]", "", name.lower()): name for name in schema.names}
    for ends in ENDS:
        if ends == ("0", "1") and (len(schema.names) < 2 or re.match(r"nodes?|feat|label", path.name)):
            continue
        if all(end in plain for end in ends):
            return plain[ends[0]], plain[ends[1]]
    named = [name for name in schema.names if re.search(r"[_ -]id$", name.lower())]
    if re.match(r"edges?|links|relations?", path.name.lower()) or len(named) == 2:
        named = named if len(named) >= 2 else list(schema.names)
        return (named[0], named[1]) if len(named) >= 2 else None
    return None


def names_types(table: Seen, nodes: dict[str, Seen]) -> bool:
    """Tell whether the name of a file or of its columns names node types."""
    parts = table.stem.split("_")
    ends = {parts[0], parts[-1]}
    named = bool(nodes.keys() & ends) or ends == {end.lower() for end in table.ends or ()}
    return (len(parts) >= 3 and named) or ends_of(table) is not None


def name_of(table: Seen, edges: Sequence[Seen]) -> str:
    """Return the type of a table of nodes: `user` for `users.parquet` too, if that is how edges call it."""
    words = {word for own in edges for word in (*own.stem.split("_"), *(ends_of(own) or ()))}
    singular = table.stem.removesuffix("s")
    return singular if table.stem not in words and singular in words else table.stem


def ends_of(table: Seen) -> tuple[str, str] | None:
    """Return the node types that the columns name, as `user_id` and `item_id` do."""
    assert table.ends is not None
    names = [re.sub(r"[_ -]id$", "", name.lower()) for name in table.ends]
    if all(name != end.lower() for name, end in zip(names, table.ends, strict=True)) and not any(
        set(names) <= set(ends) for ends in ENDS
    ):
        return names[0], names[1]
    return None


def type_of(table: Seen, nodes: dict[str, Seen]) -> str:
    """Return the edge type that a table seems to hold."""
    parts = table.stem.split("_")
    own = ends_of(table)
    if own is not None:
        relation = "_".join(part for part in parts if part not in own) or "to"
        return f"{own[0]}:{relation}:{own[1]}"
    if len(parts) >= 3:
        firsts = [size for size in range(1, len(parts) - 1) if "_".join(parts[:size]) in nodes]
        lasts = [size for size in range(1, len(parts) - 1) if "_".join(parts[-size:]) in nodes]
        first, last = max(firsts, default=1), max(lasts, default=1)
        if first + last < len(parts):
            names = "_".join(parts[:first]), "_".join(parts[first:-last]), "_".join(parts[-last:])
            return ":".join(names)
    only = next(iter(nodes)) if len(nodes) == 1 else "node"
    return f"{only}:{table.stem}:{only}"


def is_named_by_texts(name: str, kinds: dict[str, Seen]) -> bool | None:
    """Tell whether edges name the nodes of a type by texts; None if they name none."""
    for kind, table in kinds.items():
        assert table.ends is not None
        ends = kind.split(":")[::2] if ":" in kind else [name, name]
        for end, column in zip(ends, table.ends, strict=True):
            if end == name:
                return is_text(value_type(table.schema.field(column).type))
    return None


def guess_nodes(name: str, table: Seen, texts: bool | None, lookups: set[str], remarks: list[str]) -> NodeTable:
    """Return what a table of nodes seems to hold."""
    wanted = ("id", f"{name}_id", "node_id", name, "name", "key")
    own = {column.lower(): column for column in table.schema.names}
    fitting = [
        own[key] for key in wanted if key in own and is_text(value_type(table.schema.field(own[key]).type)) == texts
    ]
    label = next((column for key, column in own.items() if key in LABELS), None)
    # A column of the name of a table that no edges name holds codes of it: most likely classes.
    coded = [column for key, column in own.items() if key in lookups]
    if label is None and coded:
        label = coded[0]
        remarks.append(f"{table.path}: {label!r} is taken for the label, because a table of that name lists its values")
    columns = sort_columns(table, {fitting[0] if fitting else "", label or ""}, remarks)
    return NodeTable(
        as_written(table),
        id=fitting[0] if fitting else None,
        label=label,
        header=table.source.header,
        **{key: value for key, value in columns.items() if key != "weight"},
    )


def guess_edges(table: Seen, remarks: list[str]) -> EdgeTable:
    """Return what a table of edges seems to hold."""
    assert table.ends is not None
    label = next((name for name in table.schema.names if name.lower() in LABELS and name not in table.ends), None)
    columns = sort_columns(table, {*table.ends, label or ""}, remarks)
    source, destination = table.ends
    header = table.source.header
    return EdgeTable(as_written(table), source=source, destination=destination, label=label, header=header, **columns)


def as_written(table: Seen) -> str:
    """Return a path as a specification has it."""
    return table.path.as_posix()


def sort_columns(table: Seen, taken: set[str], remarks: list[str]) -> dict[str, Any]:
    """Return what the other columns seem to be, as arguments of a table."""
    pa = arrow()
    found: dict[str, Any] = {}
    features: list[str] = []
    masks: dict[str, str] = {}
    ignored = []
    for column in table.schema.names:
        kind, key = table.schema.field(column).type, column.lower()
        if column in taken:
            continue
        if key in MASKS and (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
            masks[MASKS[key]] = column
        elif key in SPLITS and "split" not in found:
            found["split"] = guess_split(table, column, remarks)
        elif "time" not in found and (pa.types.is_temporal(kind) or (key in TIMES and pa.types.is_integer(kind))):
            found["time"] = column
        elif key in WEIGHTS and table.ends is not None and is_number(kind):
            found["weight"] = column
        elif is_number(kind) or (is_list(kind) and is_number(kind.value_type)):
            features.append(column)
        else:
            ignored.append(column)
    if masks:
        found["split"] = Split(**masks)
    if ignored:
        remarks.append(f"{table.path}: {', '.join(ignored)} are left out, for they hold no numbers")
    if features:
        found["features"] = {"feat": tuple(features)}
    return found


def guess_split(table: Seen, column: str, remarks: list[str]) -> Split:
    """Return which values of a column seem to stand for training, validation and testing."""
    values: set[str] = set()
    for batch in table.source.batches([column], SAMPLED_ROWS):
        values |= {str(value) for value in batch.column(column).unique().to_pylist()}
        break
    named = {
        part: next((value for value in sorted(values) if value.lower() in names), None)
        for part, names in NAMES_OF_PARTS.items()
    }
    if values == {"0", "1", "2"}:
        remarks.append(f"{table.path}: {column!r} is taken for 0 train, 1 validation, 2 test; check that")
    return Split(column, **{part: value for part, value in named.items() if value is not None})
