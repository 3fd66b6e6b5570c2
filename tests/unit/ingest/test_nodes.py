"""Invalid rows of nodes, and the ids by which edges name them."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from tests.kinds.example_tables import edges_of, write
from tests.kinds.refusals import Refusal, check_refused

EDGES = {"s": np.array([3, 5, 3]), "d": np.array([5, 9, 9])}


def build(folder: Path, lines: str, on_error: Any = "raise", **options: Any) -> Any:
    (folder / "nodes.csv").write_text(lines)
    nodes = NodeTable("nodes.csv", **options)
    spec = Spec({"n:r:n": EdgeTable(EDGES, source="s", destination="d")}, {"n": nodes}, folder=folder)
    return build_dataset(spec, on_error=on_error)


def test_a_wrong_row_is_named_with_its_file(tmp_path: Path) -> None:
    for lines, message in [
        ("id,x\n3,1\n5,2\n3,3\n9,4\n", r"row 2: id is '3', which an earlier row already has"),
        ("id,x\nx,1\nx,2\n", r"row 1: id is 'x', which an earlier row already has"),
        ("id,x\n3,1\n5,\n9,4\n", r"row 1: x is 'missing', but must be a number"),
        ("id,x\n3,1\n5,nan\n9,4\n", r"row 1: x is "),
        ("id,x\n3,1\n,2\n9,4\n", r"row 1: id is 'missing', but must be an integer id"),
        ("id,x\n3,1\n5,2,8\n9,4\n", r"row 1 has 3 values instead of 2: '5,2,8'"),
    ]:
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
        "id: which an earlier row already has": 1,
        "x: but must be a number": 1,
    }


def test_rows_that_are_the_ids_are_never_left_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nodes\.csv, row 1 can't be skipped, because edges name these nodes by row"):
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
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: id is 't', which an earlier row already has"):
        build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=tmp_path))


def test_nodes_without_tables_have_the_rows_of_their_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10.0))
    edges = {"n:r:n": EdgeTable(EDGES, source="s", destination="d")}
    dataset = build_dataset(Spec(edges, {"n": NodeTable(features={"x": "x.npy"})}, folder=tmp_path))
    assert dataset.graph is not None
    assert dataset.graph.num_nodes == {"n": 10}
    assert dataset.feature.read("node", "n", "x")[:, 0].tolist() == list(range(10))
    assert dataset.ids("n")[:] == list(range(10))


ROWS = {"s": np.array([0, 1, 2]), "d": np.array([1, 2, 0])}


def named(folder: Path, lines: str, out: Path | None = None, **options: Any) -> Any:
    (folder / "nodes.csv").write_text(lines)
    nodes = NodeTable("nodes.csv", names="name", **options)
    edges = EdgeTable(ROWS, source="s", destination="d")
    return build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=folder), out)


def test_nodes_that_edges_name_by_row_keep_their_names(tmp_path: Path) -> None:
    all_names: list[list[Any]] = [["ann", "ben", "cem"], ["007", "7", "8"], [9, 3, 5], [0, 1, 2]]
    for names, written in product(all_names, (False, True)):
        out = tmp_path / str(names[0]) if written else None
        lines = "name,x\n" + "".join(f"{name},{place}\n" for place, name in enumerate(names))
        dataset = named(tmp_path, lines, out, features={"x": "x"})
        dataset = dataset if out is None else dataset.load()
        assert dataset.ids("n")[:] == names
        for asked in (names[::-1], pa.array(names[::-1]), pa.chunked_array([names[:0:-1], names[:1]])):
            assert dataset.ids("n").find(asked).tolist() == [2, 1, 0]
        assert edges_of(dataset, "n:r:n") == sorted(zip(names, names[1:] + names[:1], strict=True))
    assert main(["inspect", str(tmp_path / "ann")]) == 0


def test_nan_in_parquet_is_found_although_statistics_of_the_file_leave_it_out(tmp_path: Path) -> None:
    path = tmp_path / "nodes.parquet"
    pq.write_table(pa.table({"x": [1.0, float("nan"), 3.0], "y": [2.0, float("nan"), 0.0]}), path)
    edges = {"n:r:n": EdgeTable([{"source": 0, "destination": 2}])}
    dataset: Any = build_dataset(Spec(edges, {"n": NodeTable(path, {"x": "x"}, label="y", missing=0)}))
    assert dataset.feature.read("node", "n", "x").flatten().tolist() == [1, 0, 3]
    assert dataset.tasks[0].train_set.by_type["n"][:][0].tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"nodes\.parquet, row 1: x is nan, which has NaN"):
        build_dataset(Spec(edges, {"n": NodeTable(path, {"x": "x"})}))


def test_several_nodes_may_have_one_name_but_each_must_have_one(tmp_path: Path) -> None:
    dataset = named(tmp_path, "name,x\nann,1\nben,2\nann,3\n")
    assert dataset.ids("n")[:] == ["ann", "ben", "ann"]
    with pytest.raises(KeyError, match="several nodes had the id 'ann'"):
        dataset.ids("n").find(["ann"])
    with pytest.raises(ValueError, match=r"nodes\.csv, row 1: name is 'missing', but must be an id"):
        named(tmp_path, "name,x\nann,1\n,2\nben,3\n")


def test_arrays_of_no_nodes_are_features_of_their_width(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 4), np.float32))
    ends = {"s": np.zeros(0, np.int64), "d": np.zeros(0, np.int64)}
    edges = {"n:r:n": EdgeTable(ends, source="s", destination="d")}
    dataset = build_dataset(Spec(edges, {"n": NodeTable(features={"x": "x.npy"}, count=0)}, folder=tmp_path))
    assert dataset.feature.read("node", "n", "x").shape == (0, 4)


IDS = st.lists(st.integers(-(1 << 62), 1 << 62) | st.integers(0, 5) | st.text(max_size=5), min_size=1, unique=True)


@settings(max_examples=max(settings().max_examples // 10, 5))  # each example starts the engine, for several types
@given(drawn=st.lists(IDS, min_size=1, max_size=4))
def test_ids_are_found_where_they_are(drawn: list[list[int | str]]) -> None:
    """Ids are strings if one of them is."""
    edges, nodes, expected = {}, {}, dict[str, list[Any]]()
    for number, ids in enumerate(drawn):
        own: list[Any] = [*map(str, ids)] if any(isinstance(one, str) for one in ids) else ids
        own = list(dict.fromkeys(own))
        nodes[f"n{number}"] = NodeTable(pa.table({"id": own}), id="id")
        for kind in (f"n{number}", f"collected{number}"):
            edges[f"{kind}:r:{kind}"] = EdgeTable(pa.table({"source": own, "destination": own[::-1]}))
            expected[kind] = own if kind in nodes else sorted(own)
    dataset = build_dataset(Spec(edges, nodes))
    for kind, own in expected.items():
        assert dataset.ids(kind)[:] == own
        given = expected[f"n{kind[-1]}"]
        assert edges_of(dataset, f"{kind}:r:{kind}") == sorted(zip(given, given[::-1], strict=True))


def test_one_id_that_is_a_text_makes_texts_of_those_in_all_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i\n5\n7\n")
    (tmp_path / "b.csv").write_text("i\n1\n2\n007\n")
    edges = EdgeTable(pa.table({"s": ["007"], "d": ["7"]}), source="s", destination="d")
    spec = Spec({"n:r:n": edges}, {"n": NodeTable("*.csv", id="i")}, folder=tmp_path)
    dataset = build_dataset(spec)
    assert dataset.ids("n")[:] == ["5", "7", "1", "2", "007"]
    assert edges_of(dataset, "n:r:n") == [("007", "7")]


def test_tables_without_rows_have_no_ids(tmp_path: Path) -> None:
    for some in (pa.array([5, 7]), pa.array(["a", "b"])):
        tables = [pa.table({"i": part}) for part in (some[:0], some, some[:0])]
        ends = EdgeTable(pa.table({"s": some, "d": some}), source="s", destination="d")
        assert build_dataset(Spec({"n:r:n": ends}, {"n": NodeTable(tables, id="i")})).ids("n")[:] == some.to_pylist()
        none = EdgeTable(pa.table({"s": some[:0], "d": some[:0]}), source="s", destination="d")
        assert len(build_dataset(Spec({"n:r:n": none}, {"n": NodeTable(tables[:1], id="i")})).ids("n")) == 0


def test_what_nodes_can_not_be_is_refused(tmp_path: Path) -> None:
    ends = EdgeTable({"s": np.array([0]), "d": np.array([1])}, source="s", destination="d")

    def of(nodes: NodeTable, edges: EdgeTable = ends) -> Any:
        return build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=tmp_path))

    def values(*given: Any) -> Any:
        return of(NodeTable(pa.table({"x": given}), features={"x": "x"}))

    named = EdgeTable(EDGES, source="s", destination="d")
    (tmp_path / "texts.csv").write_text("s,d\nx,y\n")
    texts = EdgeTable("texts.csv", source="s", destination="d")
    np.save(tmp_path / "x.npy", np.arange(10.0))
    np.save(tmp_path / "nan.npy", np.array([1.0, np.nan] * 5))
    x = {"x": "x.npy"}
    missing = r"row 1: x is .*; the key `missing:` of the table gives a number"
    refused: list[Refusal] = [
        (lambda: NodeTable(count=3, names="name"), ValueError, "id, names, label, time and split are columns, but"),
        (lambda: NodeTable("a.csv", id="id", names="name"), ValueError,
         "names are for nodes that edges name by row; le"),
        (lambda: values(1.0, None), ValueError, missing),
        (lambda: values(1, None), ValueError, missing),
        (lambda: values([1.0], [None]), ValueError, missing),
        (lambda: of(NodeTable(count=3), texts), TypeError,
         r"\.csv: s has strings, but the ids of these nodes are int"),
        (lambda: of(NodeTable(count=2**62)), ValueError, f"count is {2**62}: with 8 bytes for each node"),
        (lambda: of(NodeTable(features=x, count=9), named), ValueError, r"have \{'x\.npy': 10\} rows, and count is 9"),
        (lambda: of(NodeTable(features={"x": "y"}, count=9), named), ValueError,
         "there is no column 'y', because the nodes"),
        (lambda: of(NodeTable(features={"x": "nan.npy"})), ValueError,
         r"row 1: nan\.npy is nan, which has NaN; the key"),
        (lambda: of(NodeTable(features=x)).ids("m"), KeyError, r"there is no node type 'm'; the types are \['n'\]"),
    ]  # fmt: skip
    check_refused(refused)
