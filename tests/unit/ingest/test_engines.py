"""Tables of other engines and of databases by ADBC, and names and strings that would be harmful as a part of SQL."""

import errno
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_sqlite.dbapi
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset
from graphfeed.ingest.tables.engine import translated
from graphfeed.ingest.tables.table import TableSource, naming
from tests.kinds.example_tables import LIKES, USERS, edges_of, write

LIKED = sorted(zip(LIKES["user"], LIKES["item"], strict=True))
HARMFUL = ["a'b", 'a"b', "a;b", "a\\b", "--a", "'); DROP TABLE rows_edge_0; --", "é\u2028ü", "{c0}", "$1", "%s", "N"]


def built(users: Any, likes: Any) -> Any:
    edges = EdgeTable(likes, source="user", destination="item", time="at")
    return build_dataset(
        Spec({"user:likes:item": edges}, {"user": NodeTable(users, id="name", features={"age": "age"})})
    )


def check(dataset: Any) -> None:
    assert edges_of(dataset, "user:likes:item") == LIKED
    assert dataset.feature.read("node", "user", "age").flatten().tolist() == USERS["age"]


def test_anything_with_a_stream_of_arrow_is_a_table() -> None:
    connection = duckdb.connect()
    for name, columns in (("users", USERS), ("likes", LIKES)):
        connection.register(f"{name}_", pa.table(columns))
        connection.execute(f"CREATE TABLE {name} AS FROM {name}_")
    users, likes = pa.table(USERS), pa.table(LIKES)
    check(built(connection.sql("FROM users"), connection.sql('FROM likes ORDER BY "at"')))
    check(built(pa.RecordBatchReader.from_batches(users.schema, users.to_batches()), likes.to_batches()[0]))


def test_the_index_of_pandas_is_no_column() -> None:
    table = pa.table({"source": [0], "destination": [1], "__index_level_0__": [5]})
    with pytest.raises(ValueError, match=r"has no column '__index_level_0__'; it has \['source', 'destination'\]"):
        build_dataset(Spec({"e": EdgeTable(table, weight="__index_level_0__")}))


def test_no_name_id_or_path_gets_into_sql(tmp_path: Path) -> None:
    for suffix in [".parquet", ".csv", ".ndjson", ".arrow", "table"]:
        folder = tmp_path / f'it\'s "x"; [a-z]*? {suffix}'
        folder.mkdir()
        tables, kinds = {}, {}
        for number, name in enumerate(HARMFUL):
            columns = {name: HARMFUL, f"{name}2": np.arange(len(HARMFUL)), "part": HARMFUL}
            ends = {name: HARMFUL, f"{name}2": HARMFUL[::-1]}
            nodes, edges = pa.table(columns), pa.table(ends)
            if suffix != "table":
                files = ((f"n{number}'{suffix}", columns), (f"e{number}'{suffix}", ends))
                nodes, edges = (write(folder / file, own).name for file, own in files)
            split = Split("part", train=name, test=HARMFUL[0] if name != HARMFUL[0] else HARMFUL[1])
            tables[name] = NodeTable(nodes, id=name, features={name: f"{name}2"}, label=name, split=split)
            kinds[f"{name}:{name}:{name}"] = EdgeTable(edges, source=name, destination=f"{name}2")
        dataset = build_dataset(Spec(kinds, tables, folder=folder))
        (task,) = dataset.tasks
        for number, name in enumerate(HARMFUL):
            assert edges_of(dataset, f"{name}:{name}:{name}") == sorted(zip(HARMFUL, HARMFUL[::-1], strict=True))
            assert task.metadata["class_names"][name] == sorted(HARMFUL)
            assert task.train_set[:][name][0].tolist() == [number]


def test_texts_with_nul_and_names_that_differ_in_case_alone_are_told_apart(tmp_path: Path) -> None:
    texts = ["a\0b", "a", "a\0c"]
    pyarrow.parquet.write_table(pa.table({"x": texts, "X": [1, 2, 3], "x\0y": [4, 5, 6]}), tmp_path / "n.parquet")
    nodes = NodeTable("n.parquet", id="x", features={"f": "X", "g": "x\0y"}, split=Split("x", train="a\0c"))
    ends = EdgeTable(pa.table({"source": texts, "destination": texts[::-1]}))
    dataset = build_dataset(Spec({"n:r:n": ends}, {"n": nodes}, folder=tmp_path))
    assert dataset.ids("n")[:] == texts
    assert edges_of(dataset, "n:r:n") == sorted(zip(texts, texts[::-1], strict=True))
    assert [dataset.feature.read("node", "n", name).flatten().tolist() for name in "fg"] == [[1, 2, 3], [4, 5, 6]]


def test_an_error_names_the_first_wrong_rows_and_tells_how_many_there_are() -> None:
    ends = {"source": np.arange(9), "destination": np.array([0, 7, 1, 8, 9, 0, 5, 6, 7])}
    text = r"row 1: destination is 7, which is out of range: .* \(6 rows in all; row 3: destination is 8; row 4: "
    with pytest.raises(ValueError, match=text) as caught:
        build_dataset(Spec({"n:r:m": EdgeTable(ends)}, {"n": NodeTable(count=9), "m": NodeTable(count=4)}))
    assert len(str(caught.value)) <= 300


def test_without_duckdb_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"duckdb.*graphfeed\[arrow\]"):
        built(pa.table(USERS), pa.table(LIKES))


def test_parquet_files_of_a_pattern_may_have_other_columns_beside_those_that_are_read(tmp_path: Path) -> None:
    tables: list[dict[str, Any]] = [{"s": [0], "d": [1]}, {"x": ["a"], "d": [2], "s": [1]}, {"s": [2], "d": [0]}]
    for number, columns in enumerate(tables):
        write(tmp_path / f"{number}.parquet", columns)
    spec = Spec({"e": EdgeTable("*.parquet", source="s", destination="d")}, folder=tmp_path)
    graph = build_dataset(spec).graph
    assert graph is not None
    assert (graph.csc_indptr.tolist(), graph.indices.tolist()) == ([0, 1, 2, 3], [2, 0, 1])


def check_database(connection: Any) -> None:
    """Build a data set from two queries, whose cursors are open at the same time."""
    with closing(connection), connection.cursor() as users, connection.cursor() as likes:
        for name, columns in (("users", USERS), ("likes", LIKES)):
            users.adbc_ingest(name, pa.table(columns))
        connection.commit()
        users.execute("SELECT name, age FROM users ORDER BY name")
        rows = users.fetch_arrow_table()
        likes.execute('SELECT "user", item, "at" FROM likes ORDER BY "at"')
        dataset = built(rows, likes.fetch_record_batch())
    check(dataset)
    assert sorted(dataset.graph.edge_attributes["time"].tolist()) == LIKES["at"]


def test_queries_of_sqlite_are_tables() -> None:
    check_database(adbc_driver_sqlite.dbapi.connect())


def test_a_full_disk_is_not_the_fault_of_a_table() -> None:
    source = TableSource(Path("t.arrow"), "t.arrow")
    with pytest.raises(OSError, match="No space left"), naming([source], Exception):
        raise OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(ValueError, match=r"t\.arrow can't be read as \.arrow: \[Errno 5\] broken"),
        naming([source], Exception),
    ):
        raise OSError(errno.EIO, "broken")
    full = "failed to offload data block of size 256.0 KiB. This limit was set by the 'max_temp_directory_size' setting"
    with pytest.raises(OSError, match="No space left"), translated():
        raise duckdb.OutOfMemoryException(full)
    with pytest.raises(MemoryError, match="more than the memory limit"), translated():
        raise duckdb.OutOfMemoryException("could not allocate block of size 256.0 KiB")
