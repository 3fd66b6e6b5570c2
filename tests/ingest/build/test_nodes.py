"""Rows of nodes that are wrong, and the ids that edges name them by."""

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build import node_ids
from graphfeed.ingest.build.id_task import collect_ids, read_ids
from graphfeed.ingest.build.node_ids import (
    IdCollector,
    IntegerIds,
    RowIds,
    StoredIds,
    TextIds,
    first_of_each,
    integer_ids,
    text_buffers,
)
from graphfeed.ingest.tables.table import TableSource
from tests.ingest.example_tables import edges_of, tasks_in, write

EDGES = {"s": np.array([3, 5, 3]), "d": np.array([5, 9, 9])}


def build(folder: Path, lines: str, on_error: Any = "raise", **options: Any) -> Any:
    (folder / "nodes.csv").write_text(lines)
    nodes = NodeTable("nodes.csv", **options)
    spec = Spec({"n:r:n": EdgeTable(EDGES, source="s", destination="d")}, {"n": nodes}, folder=folder)
    return build_dataset(spec, on_error=on_error)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("id,x\n3,1\n5,2\n3,3\n9,4\n", r"row 2: id is '3', which an earlier row has already"),
        ("id,x\n3,1\n5,\n9,4\n", r"row 1: x is 'missing', but must be a number"),
        ("id,x\n3,1\n5,nan\n9,4\n", r"row 1: x is "),
        ("id,x\n3,1\n,2\n9,4\n", r"row 1: id is 'missing', but must be an integer id"),
        ("id,x\n3,1\n5,2,8\n9,4\n", r"row 1 has 3 values instead of 2: '5,2,8'"),
    ],
)
def test_a_wrong_row_is_named_with_its_file(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        build(tmp_path, lines, id="id", features={"x": "x"})
    assert "nodes.csv" in str(caught.value)


def test_wrong_rows_are_left_out_with_the_edges_that_name_them(tmp_path: Path) -> None:
    lines = "id,x\n9,4\n3,1\n5,\n3,7\n,6\n1,2,3\n"
    dataset = build(tmp_path, lines, "skip", id="id", features={"x": "x"})
    assert edges_of(dataset, "n:r:n") == [(3, 9)]
    assert dataset.ids("n")[:] == [9, 3]
    assert dataset.feature.read("node", "n", "x").tolist() == [[4], [1]]
    skipped = {entry["reason"]: entry["rows"] for entry in dataset.yaml_data["skipped"]}
    assert skipped == {
        "a line with too few or too many values": 1,
        "d: but no row of the nodes has that id": 1,
        "s: but no row of the nodes has that id": 1,
        "id: but must be an integer id": 1,
        "id: which an earlier row has already": 1,
        "x: but must be a number": 1,
    }


def test_rows_that_are_the_ids_are_never_left_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nodes\.csv, row 1 can't be left out, because edges name these nodes by row"):
        build(tmp_path, 'x\n1\n""\n3\n4\n5\n6\n7\n8\n9\n10\n', "skip", features={"x": "x"})
    with pytest.raises(ValueError, match=r"nodes\.csv can't be read as \.csv: row 1 has 3 values instead of 2"):
        build(tmp_path, "x,y\n1,1\n2,2,2\n3,3\n", "skip", features={"x": "x"})


def test_ids_of_several_files_are_numbered_in_their_order(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": ["u", "t"]})
    write(tmp_path / "b.parquet", {"id": ["s"]})
    edges = EdgeTable({"s": np.array(["s", "t"]), "d": np.array(["u", "u"])}, source="s", destination="d")
    nodes = NodeTable(["b.parquet", "a.parquet"], id="id")
    assert build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=tmp_path)).ids("n")[:] == ["s", "u", "t"]
    write(tmp_path / "b.parquet", {"id": ["t"]})
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: id is 't', which an earlier row has already"):
        build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=tmp_path))


def test_nodes_without_tables_have_the_rows_of_their_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10.0))
    edges = {"n:r:n": EdgeTable(EDGES, source="s", destination="d")}
    dataset = build_dataset(Spec(edges, {"n": NodeTable(features={"x": "x.npy"})}, folder=tmp_path))
    assert dataset.graph is not None
    assert dataset.graph.num_nodes == {"n": 10}
    assert dataset.feature.read("node", "n", "x")[:, 0].tolist() == list(range(10))
    assert dataset.ids("n")[:] == list(range(10))
    with pytest.raises(KeyError, match=r"there is no node type 'm'; the types are \['n'\]"):
        dataset.ids("m")
    with pytest.raises(ValueError, match=r"the arrays of the nodes have \{'x\.npy': 10\} rows, and count is 9"):
        build_dataset(Spec(edges, {"n": NodeTable(features={"x": "x.npy"}, count=9)}, folder=tmp_path))
    with pytest.raises(ValueError, match="there is no column 'y', for the nodes have no files"):
        build_dataset(Spec(edges, {"n": NodeTable(features={"x": "y"}, count=9)}, folder=tmp_path))
    np.save(tmp_path / "x.npy", np.array([1.0, np.nan] * 5))
    with pytest.raises(ValueError, match=r"row 1: x\.npy is nan, which has NaN; the key `missing:` of the table gives"):
        build_dataset(Spec(edges, {"n": NodeTable(features={"x": "x.npy"})}, folder=tmp_path))


ROWS = {"s": np.array([0, 1, 2]), "d": np.array([1, 2, 0])}


def named(folder: Path, lines: str, out: Path | None = None, **options: Any) -> Any:
    (folder / "nodes.csv").write_text(lines)
    nodes = NodeTable("nodes.csv", names="name", **options)
    edges = EdgeTable(ROWS, source="s", destination="d")
    return build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=folder), out)


@pytest.mark.parametrize("names", [["ann", "ben", "cem"], ["007", "7", "8"], [9, 3, 5], [0, 1, 2]])
def test_nodes_that_edges_name_by_row_keep_their_names(tmp_path: Path, names: list[Any]) -> None:
    lines = "name,x\n" + "".join(f"{name},{place}\n" for place, name in enumerate(names))
    for out in (None, tmp_path / "out"):
        dataset = named(tmp_path, lines, out, features={"x": "x"})
        dataset = dataset if out is None else dataset.load()
        assert dataset.ids("n")[:] == names
        assert dataset.ids("n").find(names[::-1]).tolist() == [2, 1, 0]
        assert edges_of(dataset, "n:r:n") == sorted(zip(names, names[1:] + names[:1], strict=True))
    assert main(["inspect", str(tmp_path / "out")]) == 0


def test_several_nodes_may_have_one_name_but_each_must_have_one(tmp_path: Path) -> None:
    dataset = named(tmp_path, "name,x\nann,1\nben,2\nann,3\n")
    assert dataset.ids("n")[:] == ["ann", "ben", "ann"]
    with pytest.raises(KeyError, match="several nodes had the id 'ann'"):
        dataset.ids("n").find(["ann"])
    with pytest.raises(ValueError, match=r"nodes\.csv, row 1: name is 'missing', but must be an id"):
        named(tmp_path, "name,x\nann,1\n,2\nben,3\n")


def test_names_are_for_nodes_that_have_rows_and_no_ids() -> None:
    with pytest.raises(ValueError, match="id, names, time and split are columns, but there are no files"):
        NodeTable(count=3, names="name")
    with pytest.raises(ValueError, match="names are for nodes that edges name by row; leave it out"):
        NodeTable("nodes.csv", id="id", names="name")


def test_a_missing_feature_names_the_key_that_fills_it_in() -> None:
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    for values in ([1.0, None], [1, None], [[1.0], [None]]):
        nodes = NodeTable(pa.table({"x": values}), features={"x": "x"})
        with pytest.raises(ValueError, match=r"row 1: x is .*; the key `missing:` of the table gives a number"):
            build_dataset(Spec({"e": edges}, {"n": nodes}))


def test_more_nodes_than_memory_holds_are_refused() -> None:
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    with pytest.raises(ValueError, match=f"count is {2**62}: with 8 bytes for each node"):
        build_dataset(Spec({"e": edges}, {"n": NodeTable(count=2**62)}))


def test_arrays_of_no_nodes_are_features_of_their_width(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 4), np.float32))
    ends = {"s": np.zeros(0, np.int64), "d": np.zeros(0, np.int64)}
    edges = {"n:r:n": EdgeTable(ends, source="s", destination="d")}
    dataset = build_dataset(Spec(edges, {"n": NodeTable(features={"x": "x.npy"}, count=0)}, folder=tmp_path))
    assert dataset.feature.read("node", "n", "x").shape == (0, 4)


INTEGERS = st.lists(st.integers(-(1 << 62), 1 << 62) | st.integers(-20, 20), min_size=1, max_size=30, unique=True)


def text_ids(ids: list[str]) -> TextIds:
    return TextIds(*text_buffers(pa.array(ids, pa.large_string())))


@given(ids=INTEGERS, asked=st.lists(st.integers(-30, 30) | st.integers(-(1 << 62), 1 << 62), max_size=20))
def test_integers_are_found_where_they_are(ids: list[int], asked: list[int]) -> None:
    found = IntegerIds(np.array(ids)).find(np.array([*asked, *ids], dtype=np.int64))
    assert found.tolist() == [ids.index(one) if one in ids else -1 for one in [*asked, *ids]]


@given(ids=st.lists(st.text(max_size=5), unique=True, max_size=20), asked=st.lists(st.text(max_size=2), max_size=9))
def test_texts_are_found_where_they_are(ids: list[str], asked: list[str]) -> None:
    found = text_ids(ids).find(pa.array([*asked, *ids], pa.large_string()))
    assert found.tolist() == [ids.index(one) if one in ids else -1 for one in [*asked, *ids]]


def test_numbers_of_rows_are_used_as_they_are() -> None:
    ids = integer_ids(np.arange(5))
    assert isinstance(ids, RowIds)
    assert ids.find(np.array([0, 4, 5, -1])).tolist() == [0, 4, -1, -1]
    assert "there are 5 nodes, from 0" in ids.describe()
    assert isinstance(integer_ids(np.array([1, 0])), IntegerIds)


@pytest.mark.parametrize(
    "ids",
    [
        RowIds(3),
        IntegerIds(np.array([5, 3, 1 << 60])),
        text_ids(["b", "", "ä"]),
        TextIds(*text_buffers(pa.array(["x", "b", "", "ä", "y"], pa.large_string())[1:4])),
    ],
)
def test_ids_are_the_same_after_writing(ids: RowIds, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(StoredIds(tmp_path, ids.write(tmp_path, "ids"), len(ids)))).ids
    assert len(again) == 3
    asked = pa.array(["ä", "b", "c"], pa.large_string()) if ids.texts else np.array([5, 2, 1 << 60])
    assert again.find(asked).tolist() == ids.find(asked).tolist()


def test_a_worker_reads_ids_once_for_all_tasks_until_they_are_written_anew(tmp_path: Path) -> None:
    ids = IntegerIds(np.array([5, 3, 1 << 60]))
    task = pickle.dumps(StoredIds(tmp_path, ids.write(tmp_path, "ids"), 3))
    first = pickle.loads(task).ids
    assert pickle.loads(task).ids is first
    files = IntegerIds(np.array([3, 5, 1 << 60])).write(tmp_path, "ids")
    os.utime(tmp_path / files["values"], ns=(0, 0))
    assert pickle.loads(pickle.dumps(StoredIds(tmp_path, files, 3))).ids.find(np.array([3])).tolist() == [0]


@given(ids=st.lists(st.integers(0, 5), max_size=20))
def test_the_first_of_each_kind(ids: list[int]) -> None:
    expected = [one not in ids[:place] for place, one in enumerate(ids)]
    assert first_of_each(np.array(ids, dtype=np.int64)).tolist() == expected
    assert first_of_each(pa.array(list(map(str, ids)), pa.large_string())).tolist() == expected


def test_ids_are_collected_in_ascending_order() -> None:
    for ids, expected in (([3, 9, 3, 1], [1, 3, 9]), ([2, 0, 1], [0, 1, 2])):
        collector = IdCollector()
        for one in ids:
            collector.add(np.array([one]))
        found = collector.finish()
        assert found.find(np.array(expected)).tolist() == [0, 1, 2]
        assert isinstance(found, RowIds) == (expected == [0, 1, 2])
    collector = IdCollector()
    collector.add(pa.array(["b", "a"], pa.large_string()))
    collector.add(pa.array(["a", "ä"], pa.large_string()))
    assert collector.finish().find(pa.array(["a", "b", "ä"], pa.large_string())).tolist() == [0, 1, 2]
    assert len(IdCollector().finish()) == 0


def test_collecting_many_ids_merges_them_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ids, "PENDING", 300)
    collector = IdCollector()
    for start in range(0, 1000, 100):
        collector.add(np.arange(start, start + 100))
    assert len(collector.parts) < 10
    assert len(collector.finish()) == 1000


def csv(folder: Path, name: str, lines: str) -> TableSource:
    (folder / name).write_text(lines)
    return TableSource(folder / name, name)


def test_ids_are_collected_from_the_edges_that_name_them(tmp_path: Path) -> None:
    source = TableSource({"s": np.array([4, 2]), "d": np.array([2, 8])}, "edges")
    found = collect_ids(tasks_in(tmp_path / "a"), [(source, "s"), (source, "d")], "x")
    assert found.find(np.array([2, 4, 8, 3])).tolist() == [0, 1, 2, -1]
    texts = [TableSource(pa.table({"s": values}), "edges") for values in (["b", "a", "b"], ["ä", "a"])]
    found = collect_ids(tasks_in(tmp_path / "b"), [(source, "s") for source in texts], "x")
    assert found.find(pa.array(["a", "b", "ä", "c"], pa.large_string())).tolist() == [0, 1, 2, -1]


def test_ids_of_rows_come_with_where_each_table_begins(tmp_path: Path) -> None:
    sources = [csv(tmp_path, "a.csv", 'i\n5\n""\n7\n'), csv(tmp_path, "b.csv", "i\n9\n")]
    ids, given, starts = read_ids(tasks_in(tmp_path / "out"), [(source, "i") for source in sources], "x", "skip")
    assert ids[given].tolist() == [5, 7, 9]
    assert given.tolist() == [True, False, True, True]
    assert starts == [0, 3, 4]
    with pytest.raises(ValueError, match=r"a\.csv, row 1: i is 'missing', but must be an integer id"):
        read_ids(tasks_in(tmp_path / "out"), [(source, "i") for source in sources], "y", "raise")


@pytest.mark.parametrize("threads", [0, 2])
def test_one_id_that_is_a_text_makes_texts_of_those_in_all_tables(tmp_path: Path, threads: int) -> None:
    sources = [csv(tmp_path, "a.csv", "i\n5\n7\n"), csv(tmp_path, "b.csv", "i\n1\n2\n007\n")]
    tasks = replace(tasks_in(tmp_path / "out"), executor=ThreadPoolExecutor(threads) if threads else None)
    ids, given, starts = read_ids(tasks, [(source, "i") for source in sources], "x", "raise")
    assert ids.to_pylist() == ["5", "7", "1", "2", "007"]
    assert given.all()
    assert starts == [0, 2, 5]
