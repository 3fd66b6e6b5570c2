"""Small tables of users who like items, written in each format, for tests."""

import gzip
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.relation import load_relation
from graphfeed.ingest.tables.table import TableSource, find_sources, naming
from tests.kinds import tfrecords

USERS: dict[str, list[Any]] = {
    "name": ["ann", "ben", "cem", "dia"],
    "age": [31.0, 27.0, 45.0, 60.0],
    "split": [0, 0, 1, 2],
}
LIKES: dict[str, list[Any]] = {
    "user": ["dia", "ann", "ben", "dia", "cem"],
    "item": [7, 5, 7, 9, 5],
    "at": [1, 2, 3, 4, 5],
}
"""Item ids, which do not begin at 0."""
SUFFIXES = [
    ".parquet", ".arrow", ".feather", ".csv", ".tsv", ".csv.gz", ".ndjson", ".jsonl.gz", ".npz", ".tfrecord",
    ".tfrecord.gz",
]  # fmt: skip


def write(path: Path, columns: dict[str, Any]) -> Path:
    """Write a table in the format of the suffix."""
    table = pa.table(columns)
    if path.name.endswith(".parquet"):
        pa.parquet.write_table(table, path, write_page_checksum=True, row_group_size=3)
    elif path.suffix in (".arrow", ".feather"):
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=2)
    elif ".csv" in path.suffixes or ".tsv" in path.suffixes:
        options = pa.csv.WriteOptions(delimiter="\t" if ".tsv" in path.suffixes else ",")
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
            pa.csv.write_csv(table, file, options)
    elif path.suffix == ".npz":
        arrays: dict[str, Any] = {name: np.asarray(values) for name, values in columns.items()}
        np.savez(path, **arrays)
    elif path.suffix == ".npy":
        np.save(path, np.stack([np.asarray(values) for values in columns.values()], axis=1))
    elif ".tfrecord" in path.suffixes:
        rows = [{name: [as_value(value)] for name, value in row.items()} for row in table.to_pylist()]
        tfrecords.write(path, rows)
    else:
        text = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def new_engine() -> Engine:
    return Engine(Path(":memory:"), 1 << 28)


def source(path: Path, **options: Any) -> TableSource:
    return TableSource(path, str(path), **options)


def sources_of(pattern: str, folder: Path) -> list[TableSource]:
    return find_sources([pattern], folder, header=True, pairs=False)


def rows_of(
    *sources: TableSource | Path, columns: list[str], on_width: Any = None, engine: Engine | None = None
) -> list[dict[str, Any]]:
    """Return some columns of tables, as read, in the order of the rows."""
    tables = [source(table) if isinstance(table, Path) else table for table in sources]

    def refuse(table: TableSource, _: int, text: str) -> None:
        raise ValueError(f"{table.name} can't be read as {table.suffix}: {text}")

    with new_engine() if engine is None else nullcontext(engine) as engine:
        roles = {(column, False): "any" for column in columns}
        relation = load_relation(engine, "rows", tables, roles, on_width or refuse)
        names = ", ".join(relation.columns[column, False].shown for column in columns)
        with naming(tables):
            found = engine.rows(f"SELECT {names} FROM {relation.sql} ORDER BY n")
        return [dict(zip(columns, row, strict=True)) for row in found]


def as_value(value: Any) -> Any:
    """Convert a value to its type in a TFRecord."""
    return value.encode() if isinstance(value, str) else value


def likes(folder: Path, suffix: str = ".parquet") -> Spec:
    """Write the tables, and return their specification."""
    write(folder / f"users{suffix}", USERS)
    write(folder / f"likes{suffix}", LIKES)
    users = NodeTable(
        f"users{suffix}", id="name", features={"age": "age"}, split=Split("split", "0", "1", "2"), label=None
    )
    return Spec(
        {"user:likes:item": EdgeTable(f"likes{suffix}", source="user", destination="item", time="at")},
        {"user": users},
        folder=folder,
    )


def edges_of(dataset: Any, kind: str) -> list[tuple[Any, Any]]:
    """Return the edges of a type by the original ids of their endpoints, sorted."""
    graph = dataset.graph
    first = dict(zip(graph.node_type_to_id, graph.first_ids(), strict=False))
    source, _, destination = kind.split(":")
    columns = np.repeat(np.arange(graph.total_num_nodes), np.diff(graph.csc_indptr.numpy()))
    own = graph.type_per_edge.numpy() == graph.edge_type_to_id[kind]
    sources = (graph.indices.numpy()[own] - first[source]).tolist()
    destinations = (columns[own] - first[destination]).tolist()
    pairs = zip(dataset.ids(source)[sources], dataset.ids(destination)[destinations], strict=True)
    return sorted(pairs)
