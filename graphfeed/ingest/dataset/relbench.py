"""Specifications of RelBench's data sets: folders with a manifest, Parquet files of tables, and tasks."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphfeed.ingest.dataset.query import MOST_CLASSES, MOST_LETTERS
from graphfeed.ingest.dataset.spec import EdgeTable, NodeTable, Spec
from graphfeed.ingest.dataset.task_table import TaskTable
from graphfeed.ingest.queries import entries, files
from graphfeed.ingest.queries.columns import plain
from graphfeed.ingest.tables.arrow_types import arrow, is_arrow_number, is_text, plain_type
from graphfeed.ingest.tables.engine import connect, translated
from graphfeed.ops.arguments import brief, checked, nearest
from graphfeed.ops.process import import_optional, install_hint
from graphfeed.storage.datasets import Section, load_yaml

MANIFEST = "manifest.yaml"
RECOMMENDATION = "recommendation"
REAL = ("binary_classification", "regression")
"""Types of tasks whose labels are floats."""
PART_FILES = {"train": "train", "validation": "val", "test": "test"}
SAMPLING = {"inclusive": True, "disjoint": True}
"""RelBench's samplers see what has the seed's own time, and merge nodes within the tree of a seed alone."""


@checked
def from_relbench(
    folder_or_name: str | os.PathLike[str], task: str | None = None, *, upto_test_timestamp: bool = True
) -> Spec:
    """Return the specification of one of RelBench's data sets, for `build_dataset`.

    A table is a node type. Its column `c` of keys of a table `t` makes two edge types, "table:f2p_c:t" and
    "t:rev_f2p_c:table"; rows without a key there have no edge. Times become whole seconds. Columns of numbers are
    features, with 0 for missing ones; columns of strings are features if they have few distinct values, as for
    `encode`. Other columns are left out, and so are those that the task hides.

    Args:
        folder_or_name: A folder with `manifest.yaml`, that file, or the name of a data set to download, which requires
            the package `relbench`.
        task: The name of a task in the folder `tasks`. Its items for testing have no labels.
        upto_test_timestamp: Whether to leave out the rows after the manifest's `test_timestamp`, and those without a
            time.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A manifest is invalid, or a table lacks a column; the error names them.

    Example:
        >>> spec = from_relbench("data/rel-f1", task="driver-position")  # doctest: +SKIP
        >>> data = build_dataset(spec, "f1").load()  # doctest: +SKIP
    """
    folder = find_folder(folder_or_name)
    top = Section(load_yaml(folder / MANIFEST), file=str(folder / MANIFEST))
    tables = {name: Table(name, top, folder) for name in top.get("tables", dict)}
    bound = str(top.values.get("test_timestamp") or "")
    if not bound:
        raise ValueError(f"{top.file}: test_timestamp is missing; give a date or a time")
    tasks, hidden = {}, set[tuple[str, str]]()
    if task is not None:
        tasks[task], hidden = read_task(folder, plain_name("task", task), tables)
    for table in tables.values():
        table.check(tables)
    for name, column in hidden:
        if column not in tables[name].columns:
            raise ValueError(f"{tables[name].path} has no column {column!r}, which the task hides")
    nodes, edges = {}, {}
    for name, table in tables.items():
        until = {table.time: bound} if table.time is not None and upto_test_timestamp else {}
        numbers, categories = table.features({column for owner, column in hidden if owner == name})
        nodes[name] = NodeTable(
            table.file, {column: column for column in numbers}, missing=0, encode=categories, id=table.key,
            time=table.time, until=until,
        )  # fmt: skip
        for column, target in table.keys.items():
            if (name, column) not in hidden:
                edge_type = f"{name}:f2p_{column}:{target}"
                edges[edge_type] = EdgeTable(
                    table.file, destination=column, until=until, source_is_row=True, optional=True
                )
                edges[f"{target}:rev_f2p_{column}:{name}"] = EdgeTable(reverse_of=edge_type)
    return Spec(edges, nodes, str(top.get("name", str)), folder, "s", tasks)


def find_folder(folder_or_name: str | os.PathLike[str]) -> Path:
    """Return the folder of a data set, which is downloaded if there is none of that name."""
    folder = Path(folder_or_name)
    folder = folder.parent if folder.name == MANIFEST else folder
    if (folder / MANIFEST).is_file():
        return folder.absolute()
    if folder.exists() or folder.is_absolute():
        raise FileNotFoundError(f"there is no file {folder / MANIFEST}; give the folder of a data set of RelBench")
    hub = import_optional("relbench.hf", "downloading RelBench's data sets", install_hint("relbench"))
    return Path(hub.download_dataset_dir(os.fspath(folder_or_name))).absolute()


def plain_name(key: str, name: Any) -> str:
    """Return the name of a file or a folder; raise if it leads elsewhere."""
    if not isinstance(name, str) or name in {"", ".", ".."} or set(name) & set("/\\:\0"):
        raise ValueError(f"{key} must be a name without '/', '\\' and ':', but is {brief(name)}")
    return name


class Table:
    """A table of a manifest: its key, its times, its references to other tables, and the columns of its file."""

    def __init__(self, name: str, top: Section, folder: Path) -> None:
        entry = Section(top.values["tables"][name], f"tables.{name}", top.file)
        self.name, self.manifest = plain_name(f"{top.file}: the name of a table", name), top.file
        self.key, self.time = entry.get("pkey", str, None), entry.get("time_col", str, None)
        self.keys: dict[str, str] = entry.get("fkeys", dict, {})
        self.file = f"db/{name}.parquet"
        self.path = folder / self.file
        if not self.path.is_file():
            raise FileNotFoundError(f"there is no file {self.path}, which {top.file} describes")
        with translated(), arrow("parquet").ParquetFile(self.path) as file:
            self.columns: dict[str, Any] = {column.name: plain_type(column.type) for column in file.schema_arrow}
        self.names = list(self.columns)

    def check(self, tables: Mapping[str, "Table"]) -> None:
        """Raise unless the file has the columns of the manifest, and other tables the keys that it refers to."""
        for column in (self.key, self.time, *self.keys):
            if column is not None and column not in self.columns:
                raise ValueError(f"{self.path} has no column {column!r}, named in {self.manifest}; it has {self.names}")
        for column, target in self.keys.items():
            if not isinstance(target, str):
                raise ValueError(f"{self.manifest}: tables.{self.name}.fkeys.{column} must be a table, but is {target}")
            if target not in tables or tables[target].key is None:
                lacks = "has no pkey" if target in tables else f"is not one of {list(tables)}{nearest(target, tables)}"
                raise ValueError(f"{self.manifest}: tables.{self.name}.fkeys.{column} names {target!r}, which {lacks}")

    def features(self, hidden: set[str]) -> tuple[list[str], list[str]]:
        """Return the columns of numbers, and those of strings with few distinct values."""
        kept = {
            column: kind
            for column, kind in self.columns.items()
            if column not in {self.key, self.time, *self.keys, *hidden}
        }
        numbers = [column for column, kind in kept.items() if is_arrow_number(kind)]
        texts = [column for column, kind in kept.items() if is_text(kind)]
        return numbers, [column for column, few in zip(texts, self.have_few_values(texts), strict=True) if few]

    def have_few_values(self, columns: list[str]) -> Iterator[bool]:
        """Yield for each column of strings whether its values can be categories."""
        rows = files.parquet_rows([self.path], len(self.names))
        with translated(), connect() as connection:
            for column in columns:
                value = plain(f"c{self.names.index(column)}", self.columns[column])
                distinct = entries.distinct_values(value, rows, MOST_CLASSES + 1)
                ((count, letters),) = connection.sql(entries.count_letters(distinct)).fetchall()
                yield count <= MOST_CLASSES and letters <= MOST_LETTERS


def read_task(folder: Path, name: str, tables: Mapping[str, Table]) -> tuple[TaskTable, set[tuple[str, str]]]:
    """Return a task, and the columns that it hides, each with its table."""
    inside = f"tasks/{name}"
    if not (folder / inside / MANIFEST).is_file():
        known = sorted(path.parent.name for path in folder.glob(f"tasks/*/{MANIFEST}"))
        raise FileNotFoundError(f"there is no task {name!r} in {folder}; the tasks are {known}{nearest(name, known)}")
    entry = Section(load_yaml(folder / inside / MANIFEST), file=str(folder / inside / MANIFEST))
    kind, task_type = entry.get("kind", str), entry.get("task_type", str)
    is_link = task_type == RECOMMENDATION

    def table_of(key: str) -> Table:
        if (found := entry.get(key, str)) not in tables:
            raise ValueError(f"{entry.file}: {key} must be one of {list(tables)}, but is {found!r}")
        return tables[found]

    owner = table_of("src_entity_table" if is_link else "entity_table")
    seeds = entry.get("src_entity_col" if is_link else "entity_col", str, owner.key)
    if owner.key is None or seeds is None:
        raise ValueError(f"{entry.file}: the table {owner.name!r} must have a pkey, by which the task names its rows")
    target = None if is_link else entry.get("target_col", str)
    pairs = entry.get("remove_columns", list, [])
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"{entry.file}: remove_columns must have pairs of a table and a column, but is {brief(pairs)}")
    hidden = {(str(table), str(column)) for table, column in pairs}
    for table, column in hidden:
        if table not in tables:
            raise ValueError(f"{entry.file}: remove_columns has {[table, column]}, but the tables are {list(tables)}")
    if kind == "autocomplete":
        hidden.add((owner.name, str(target)))
    described = ("kind", "task_type", "timedelta", "num_eval_timestamps", "eval_k", "evaluator")
    metadata = {key: entry.values[key] for key in described if key in entry.values} | {"sampling": SAMPLING}
    parts = {part: f"{inside}/{file}.parquet" for part, file in PART_FILES.items()}
    links: dict[str, Any] = {}
    if is_link:
        links["destinations"] = entry.get("dst_entity_col", str)
        links["destination_nodes"] = table_of("dst_entity_table").name
    time, dtype = entry.get("time_col", str, owner.time), "float32" if task_type in REAL else None
    options = parts | {"time": time, "label": target, "dtype": dtype} | links
    return TaskTable(owner.name, seeds, **options, metadata=metadata), hidden
