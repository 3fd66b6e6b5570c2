"""Specification of a data set: which columns of which tables are ids, features, labels, times and splits."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import yaml

from graphfeed.ingest.dataset.settings import (
    as_bounds,
    as_columns,
    as_flag,
    check_constant,
    check_reverses,
    is_column,
    is_dict_row,
    is_real,
    is_whole,
)
from graphfeed.ingest.dataset.split import Split
from graphfeed.ingest.dataset.task_table import TaskTable
from graphfeed.ingest.dataset.yaml_entries import as_entry, read_entry, refuse_rest
from graphfeed.ingest.queries.numbers import MOST_FLOAT32
from graphfeed.ops.arguments import brief, checked
from graphfeed.ops.process import local_path
from graphfeed.storage.datasets import Section, load_yaml
from graphfeed.storage.graph import ends_of

Files: TypeAlias = Any
"""A path, a pattern such as `*` or `**`, a data frame or an Arrow table, or a list of these; or a list of dicts."""


@dataclass(frozen=True)
class TableSpec:
    """Base class of node tables and edge tables.

    Args:
        files: A path, a pattern such as `*.csv` or `**/*.csv`, a data frame or an Arrow table, or a list of these,
            which are read one after another. Or a list of dicts, one per row.
        features: By name, a column or a list of columns, or an array: `file.npy`, or `file.npz#name`.
        label: Column of the labels.
        split: Which rows are for training, validation and testing. Without it, all rows with a label are for training.
        missing: Value that replaces missing features and NaN. By default they are an error.
        header: Whether the first row of CSV files has the names of the columns. Otherwise these are 0, 1, 2, ...
        dtype: "float32" to store features of integers and booleans as floats. By default they keep their dtype.
        encode: A column of categories, or a list of columns. Each becomes a feature of its name: the position of the
            value among the sorted distinct values, which are the feature's metadata "categories".
        until: Latest value by column of times: rows with a later time, or without one, are left out.
    """

    files: Files = None
    features: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    split: Split | str | None = None
    missing: float | None = None
    header: bool = True
    dtype: str | None = field(default=None, kw_only=True)
    encode: str | Sequence[str] = field(default=(), kw_only=True)
    until: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        files = () if self.files is None else self.files
        files = list(files) if isinstance(files, (list, tuple)) else [files]
        object.__setattr__(self, "files", (files,) if files and all(map(is_dict_row, files)) else tuple(files))
        if not isinstance(self.features, Mapping):
            raise TypeError(f"features must be a mapping of names to columns, but is {brief(self.features)}")
        features = {str(name): as_columns(f"features.{name}", columns) for name, columns in self.features.items()}
        object.__setattr__(self, "features", features)
        self.check_encoded()
        object.__setattr__(self, "until", as_bounds(self.until))
        self.check_columns("label")
        self.check_flags("header")
        if is_column(self.split):
            object.__setattr__(self, "split", Split(str(self.split)))
        elif self.split is not None and not isinstance(self.split, Split):
            raise TypeError(f"split must be a Split or the name of a column, but is {brief(self.split)}")
        if self.missing is not None and not is_real(self.missing):
            raise TypeError(f"missing must be a number, but is {brief(self.missing)}")
        if self.missing is not None and MOST_FLOAT32 < abs(self.missing) < float("inf"):
            raise ValueError(f"missing must be a number that float32 can represent, but is {brief(self.missing)}")

    def check_encoded(self) -> None:
        """Raise unless `dtype` is known, and `encode` names columns that no other feature has."""
        if self.dtype is not None and self.dtype != "float32":
            raise ValueError(f"dtype must be 'float32', but is {brief(self.dtype)}")
        encoded = (
            () if isinstance(self.encode, (list, tuple)) and not self.encode else as_columns("encode", self.encode)
        )
        object.__setattr__(self, "encode", encoded)
        for feature, columns in self.features.items():
            for name in {feature, *columns} & set(encoded):
                raise ValueError(f"encode makes {name!r} a separate feature; leave it out of features.{feature}")

    @property
    def feature_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns and arrays of all features by name, those of categories last."""
        return {**self.features, **{name: (name,) for name in self.encode}}

    def check_columns(self, *names: str) -> None:
        """Raise unless these fields are names of columns or None; convert numbers of columns to strings."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not is_column(value):
                raise TypeError(f"{name} must be the name of a column, but is {brief(value)}")
            object.__setattr__(self, name, None if value is None else str(value))

    def check_flags(self, *names: str) -> None:
        """Raise unless these fields are bools, including NumPy's."""
        for name in names:
            object.__setattr__(self, name, as_flag(name, getattr(self, name)))

    @property
    def splits(self) -> Split | None:
        """The split as a `Split`, never as a name."""
        assert not isinstance(self.split, str)
        return self.split


@dataclass(frozen=True)
class NodeTable(TableSpec):
    """The nodes of a type.

    Args:
        id: Column of the ids by which edges name the nodes. Without it, edges name them by row, starting at 0, and
            `names` is the column with the names of the nodes in results.
        count: Number of nodes, if there are no files.
        time: Column of the times, or one number for all nodes.
    """

    id: str | None = None
    count: int | None = None
    time: str | float | None = None
    names: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_columns("id", "names")
        if self.count is not None and (not is_whole(self.count) or self.count < 0):
            raise ValueError(f"count must be an integer of 0 or more, but is {brief(self.count)}")
        if self.count is not None and self.files:
            raise ValueError("count is for nodes without files; leave it out, because the rows in files are counted")
        named = [self.id, self.names, self.label, self.split, self.time if isinstance(self.time, str) else None]
        if not self.files and any(column is not None for column in named):
            raise ValueError("id, names, label, time and split are columns, but there are no files; give files")
        if not self.files and self.encode:
            raise ValueError("encode names columns, but there are no files; give files")
        if self.id is not None and self.names is not None:
            raise ValueError("names are for nodes that edges name by row; leave it out, because ids are kept as well")
        check_constant("time", self.time)


@dataclass(frozen=True)
class EdgeTable(TableSpec):
    """The edges of a type.

    Args:
        source, destination: Columns of the ids of the sources and destinations.
        weight, time: Columns of the weights and times, or one number for all edges.
        time_sorted: Whether to check that times never decrease from row to row. The in-edges of each node are then
            sorted by time, and temporal sampling needs no index.
        task: "link" makes items of all edges: for training, or as specified by the split. By default, edges are items
            if there is a split or a label.
        negatives: Number of pairs that are not edges of the type after each edge for validation or testing. Their
            destinations are drawn once, for the data set. Items then have labels, 1 and 0, and indexes.
        training_graph: Whether the graph has only the edges that the split assigns to training. With neither a task nor
            a label, the other edges are left out and there are no items.
        source_is_row: Whether the source of each edge is the node with the number of its row, as in a table of nodes
            with references to others. Rows left out by `until` are not counted. There is no column `source`.
        optional: Whether to leave out rows without a destination, and those whose destination `until` left out of its
            table. By default, both are invalid.
        reverse_of: Edge type whose edges these are, with exchanged ends: those of the graph, with their times, weights
            and features. They are not items of a task. Nothing else is given then.
    """

    source: str = "source"
    destination: str = "destination"
    weight: str | float | None = None
    time: str | float | None = None
    time_sorted: bool = False
    task: str | None = None
    negatives: int = 0
    training_graph: bool = False
    reverse_of: str | None = None
    source_is_row: bool = False
    optional: bool = False

    def __post_init__(self) -> None:
        if self.reverse_of is not None:
            self.check_reverse()
        super().__post_init__()
        self.check_columns("source", "destination")
        for name in ("source", "destination"):
            if getattr(self, name) is None:
                raise TypeError(f"{name} must be the name of a column, but is None")
        self.check_flags("time_sorted", "training_graph", "source_is_row", "optional")
        if not self.files and self.reverse_of is None:
            raise ValueError(
                "files is missing; name the files of the edges, or in reverse_of the edge type that they are reverse to"
            )
        check_constant("weight", self.weight)
        check_constant("time", self.time)
        if self.time_sorted and not isinstance(self.time, str):
            raise ValueError("time_sorted needs a column of times, but time names none")
        if self.task is not None and str(self.task) != "link":
            raise ValueError(f"task must be 'link', but is {brief(self.task)}; for classification, give a label only")
        if self.task is not None and self.label is not None:
            raise ValueError("task is 'link', but edges with a label have a task already; leave one of them out")
        if not is_whole(self.negatives) or not 0 <= self.negatives < 1 << 31:
            raise ValueError(f"negatives must be an integer of 0 or more, but is {brief(self.negatives)}")
        known = self.splits is not None and (self.splits.time is not None or "train" in self.splits.parts)
        if self.negatives and (self.task is None or not known):
            raise ValueError("negatives need task: link, and a split with a part for training")
        if self.training_graph and not known:
            raise ValueError("training_graph needs a split with a part for training")

    def check_reverse(self) -> None:
        """Raise unless `reverse_of` is a name, and nothing else is given."""
        if not isinstance(self.reverse_of, str):
            raise TypeError(f"reverse_of must be the name of an edge type, but is {brief(self.reverse_of)}")
        values = {setting.name: getattr(self, setting.name) for setting in dataclasses.fields(self)}
        defaults = {setting.name: setting.default for setting in dataclasses.fields(self)}
        empty = [name for name, value in values.items() if isinstance(value, (Mapping, tuple)) and not value]
        given = [name for name, value in values.items() if value is not defaults[name] and name not in empty]
        given.remove("reverse_of")
        if given:
            raise ValueError(
                f"reverse_of takes everything from the edges of {self.reverse_of!r}; leave out {', '.join(given)}"
            )

    @property
    def has_items(self) -> bool:
        """Whether the parts of a split are items, rather than only edges to leave out of the graph."""
        return not self.training_graph or self.task is not None or self.label is not None


@checked
@dataclass(frozen=True)
class Spec:
    """The tables of a data set.

    Args:
        edges: Edge tables by type "source:relation:destination". A single entry whose name has no colon makes a graph
            without types.
        nodes: Node tables by type. Without a table, the nodes of a type are those that its edges name.
        folder: Folder that relative paths start from; by default the working folder.
        time_unit: "s" to convert dates and times of any unit to whole seconds, rounded down. By default, all times must
            have the same unit.
        tasks: Tasks whose items are in separate tables, by name; for these, nodes need types.

    Raises:
        ValueError: Types do not match each other.

    Example:
        >>> edges = EdgeTable("likes.parquet", source="user", destination="item", time="at")
        >>> spec = Spec({"user:likes:item": edges}, {"user": NodeTable("users.parquet", id="name")})
        >>> list(spec.node_tables)
        ['item', 'user']
    """

    edges: Mapping[str, EdgeTable]
    nodes: Mapping[str, NodeTable] = field(default_factory=dict)
    name: str = ""
    folder: Path = Path()
    time_unit: str | None = None
    tasks: Mapping[str, TaskTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.time_unit not in {None, "s"}:
            raise ValueError(f"time_unit must be 's', but is {brief(self.time_unit)}")
        if not self.edges:
            raise ValueError("edges is empty; give at least one edge type")
        check_tables("edges", self.edges, EdgeTable)
        check_tables("nodes", self.nodes, NodeTable)
        check_tables("tasks", self.tasks, TaskTable)
        object.__setattr__(self, "folder", Path(self.folder))
        if len(self.edges) == 1 and not any(":" in name for name in (*self.edges, *self.nodes)):
            if len(self.nodes) > 1:
                raise ValueError(
                    f"the edge type {brief(next(iter(self.edges)))} names no node types, but nodes has "
                    f"{list(self.nodes)}; write it 'source:relation:destination'"
                )
            self.check_edges()
            return
        for name in self.nodes:
            if ":" in name or not name:
                raise ValueError(f"a node type must be a name without ':', but is {name!r}")
        for name in self.edges:
            parts = name.split(":")
            if len(parts) != 3 or not all(parts):
                raise ValueError(f"an edge type must be 'source:relation:destination', but is {name!r}")
        unknown = set(self.nodes).difference(*map(ends_of, self.edges))
        unknown = {name for name in unknown if not self.nodes[name].files and self.nodes[name].count is None}
        if unknown:
            raise ValueError(f"no edge type has the node types {sorted(unknown)}, and they have no files and no count")
        self.check_edges()

    def check_edges(self) -> None:
        """Raise unless reverse edges match the original ones, and rows that are sources are those of a node table."""
        check_reverses(self.edges)
        for name, task in self.tasks.items():
            for node_type in (task.nodes, task.destination_nodes):
                if node_type is not None and not (self.typed and node_type in self.node_tables):
                    raise ValueError(f"tasks.{name}: there are no nodes of the type {node_type!r}")
        for name, table in self.edges.items():
            source = ends_of(name)[0] if self.typed else next(iter(self.nodes), None)
            given = self.nodes.get(source or "", NodeTable())
            if table.source_is_row and not given.files and given.count is None:
                raise ValueError(f"edges.{name}: source_is_row needs the table of the nodes {source!r}; give its files")

    @property
    def has_edge_features(self) -> bool:
        """Whether edges of some type have features, which are looked up by the ids of the edges."""
        return any(table.feature_columns for table in self.edges.values())

    @property
    def typed(self) -> bool:
        """Whether nodes and edges have types."""
        return ":" in next(iter(self.edges))

    @property
    def node_tables(self) -> dict[str | None, NodeTable]:
        """All node types in alphabetical order; without types, the single table under None."""
        if not self.typed:
            return {None: next(iter(self.nodes.values()), NodeTable())}
        names = set(self.nodes).union(*map(ends_of, self.edges))
        return {name: self.nodes.get(name, NodeTable()) for name in sorted(names)}

    @property
    def edge_tables(self) -> dict[str | None, EdgeTable]:
        """All edge types in alphabetical order; without types, the single table under None."""
        if not self.typed:
            return {None: next(iter(self.edges.values()))}
        return {edge_type: self.edges[edge_type] for edge_type in sorted(self.edges)}

    def to_yaml(self) -> str:
        """Return the specification as YAML, without default values. Frames can't be written."""
        data: dict[str, Any] = {"name": self.name} if self.name else {}
        data |= {} if self.time_unit is None else {"time_unit": self.time_unit}
        for key, tables in (("nodes", self.nodes), ("edges", self.edges), ("tasks", self.tasks)):
            if tables:
                data[key] = {name: as_entry(table) for name, table in tables.items()}
        return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100))

    @classmethod
    @checked
    def from_mapping(cls, data: Any, file: str = "the specification", folder: Path = Path()) -> Self:
        """Build a specification from the contents of a YAML file.

        Raises:
            ValueError: A key is unknown or has an invalid value; the error names it.
        """
        top = Section(data, file=file)
        name, time_unit = top.get("name", str, ""), top.get("time_unit", str, None)
        tables: dict[str, dict[str, Any]] = {"nodes": {}, "edges": {}, "tasks": {}}
        for key, table_class in (("nodes", NodeTable), ("edges", EdgeTable), ("tasks", TaskTable)):
            for entry, values in top.get(key, dict, {}).items():
                section = Section(values, f"{key}.{entry}", file)
                tables[key][str(entry)] = read_entry(section, table_class)
        refuse_rest(top)
        try:
            return cls(tables["edges"], tables["nodes"], name, folder, time_unit, tables["tasks"])
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error


def check_tables(name: str, tables: Mapping[Any, Any], kind: type[Any]) -> None:
    for type_name, table in tables.items():
        if not isinstance(type_name, str) or not isinstance(table, kind):
            raise TypeError(
                f"{name} must be a dict of names of types to {kind.__name__}, but has {brief({type_name: table})}"
            )


@checked
def read_spec(path: str | os.PathLike[str]) -> Spec:
    """Read a specification from a YAML file. Paths in it are relative to the file's folder.

    Raises:
        ValueError: The file is not YAML, or a key is unknown or has an invalid value; the error names the key.
    """
    file = Path(local_path("path", path))
    return Spec.from_mapping(load_yaml(file), str(file), file.resolve().parent)
