"""Rows of nodes that are wrong: named, or left out and counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from tests.ingest.example_tables import edges_of, write

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
