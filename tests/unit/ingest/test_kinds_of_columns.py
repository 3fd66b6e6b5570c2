"""Ids, strings and floats of types that the engine can't read itself, and file names that it would misinterpret."""

import gzip
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import graphfeed as gf
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from tests.kinds.example_tables import write

ENDS = EdgeTable({"s": [0], "d": [0]}, source="s", destination="d")
UUIDS = [UUID(int=number << 64 | 1) for number in (3, 0, 2)]


def test_ids_of_other_kinds_are_read_as_those_of_the_nodes(tmp_path: Path) -> None:
    for is_file in [False, True]:
        for nodes, edges, wanted in [
            (["2", "10"], [10, 2], ["2", "10"]),
            ([2, 10], ["10", "2"], [2, 10]),
            (pa.array([1, 1 << 63], pa.uint64()), pa.array([1 << 63, 1], pa.uint64()), ["1", str(1 << 63)]),
            (pa.array([1, 1 << 63], pa.uint64()), pa.array([1]), ["1", str(1 << 63)]),
            (pa.array([2, 1], pa.uint64()), pa.array([1]), [2, 1]),
            (None, pa.array([1 << 63, 1], pa.uint64()), ["1", str(1 << 63)]),
            (pa.array([own.bytes for own in UUIDS], pa.binary(16)), [str(UUIDS[2])], [str(own) for own in UUIDS]),
            ([str(own) for own in UUIDS], pa.array([UUIDS[1].bytes], pa.binary(16)), [str(own) for own in UUIDS]),
            (pa.array(UUIDS), pa.array(UUIDS[:2]), [str(own) for own in UUIDS]),
            (None, pa.array(UUIDS), sorted(map(str, UUIDS))),
        ]:
            tables = {"n": None if nodes is None else pa.table({"id": nodes}), "e": pa.table({"s": edges, "d": edges})}
            for name, table in tables.items() if is_file else ():
                if table is not None:
                    pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
                    tables[name] = str(tmp_path / f"{name}.parquet")
            spec = Spec(
                {"n:r:n": EdgeTable(tables["e"], source="s", destination="d")},
                {} if nodes is None else {"n": NodeTable(tables["n"], id="id")},
            )
            dataset = build_dataset(spec)
            found = dataset.ids("n")
            assert list(found[:]) == wanted
            ends = [str(UUID(bytes=own)) if isinstance(own, bytes) else str(own) for own in pa.array(edges).to_pylist()]
            assert sorted(str(found[int(node)]) for node in dataset.graph.indices) == sorted(ends)


def test_ids_are_texts_in_all_files_if_they_are_in_one(tmp_path: Path) -> None:
    tables = [
        pa.table({"s": [1, 2]}),
        pa.table({"s": ["x"]}),
        pa.table({"s": pa.array([UUIDS[0].bytes], pa.binary(16))}),
    ]
    dataset = build_dataset(Spec({"n:r:n": EdgeTable(tables, source="s", destination="s")}))
    assert sorted(dataset.ids("n")[:]) == sorted(["1", "2", "x", str(UUIDS[0])])


def test_texts_of_numpy_are_columns() -> None:
    names = np.array(["ann", "ben", None], dtype=np.dtypes.StringDType(na_object=None))
    table = {"s": names[:2], "d": np.array(["cem", "a much longer text than the others"], dtype="T")}
    dataset = build_dataset(Spec({"n:r:n": EdgeTable(table, source="s", destination="d")}))
    assert list(dataset.ids("n")[:]) == ["a much longer text than the others", "ann", "ben", "cem"]
    with pytest.raises(ValueError, match="row 2: s is 'missing', but must be an id"):
        build_dataset(Spec({"n:r:n": EdgeTable({"s": names}, source="s", destination="s")}))


def test_an_archive_of_arrays_may_take_as_much_memory_as_is_given(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "t.npz", x=np.zeros(1 << 22), s=np.zeros(8, dtype=np.int64))
    assert (tmp_path / "t.npz").stat().st_size < 1 << 20
    tables = [NodeTable("t.npz", features={"x": "x"}), NodeTable(features={"x": "t.npz#x"})]
    for table in tables:
        with pytest.raises(MemoryError, match=r"t\.npz has arrays of 335\d* bytes, but memory is 16777216; give more"):
            build_dataset(Spec({"e": ENDS}, {"n": table}, folder=tmp_path), memory=1 << 24)
    build_dataset(Spec({"e": ENDS}, {"n": NodeTable(features={"x": "t.npz#s"})}, folder=tmp_path), memory=1 << 24)


def test_floats_of_two_bytes_become_float32(tmp_path: Path) -> None:
    x, v = np.array([0.5, 2], np.float16), np.array([[0.5], [2]], np.float16)
    table = pa.table({"x": pa.array(x), "v": pa.array(list(v), pa.list_(pa.float16(), 1))})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    for files in (table, str(tmp_path / "t.parquet"), {"x": x, "v": v}):
        dataset = build_dataset(Spec({"e": ENDS}, {"n": NodeTable(files, features={"f": ["x", "v"]})}))
        assert dataset.feature.read("node", None, "f").tolist() == [[0.5, 0.5], [2.0, 2.0]]


def test_files_may_have_names_that_are_patterns(tmp_path: Path) -> None:
    for stem in ["a?b", "a*b", "a[1]b", "?", "a'b"]:
        for suffix in (".parquet", ".csv", ".csv.gz", ".txt.gz", ".ndjson.gz"):
            for name, rows in ((re.sub("[*?]", "z", stem), [7, 8]), (stem, [1, 2])):
                if suffix != ".txt.gz":
                    write(tmp_path / f"{name}{suffix}", {"x": rows})
                else:
                    (tmp_path / f"{name}{suffix}").write_bytes(gzip.compress("{}\n{}\n".format(*rows).encode()))
            table = NodeTable(str(tmp_path / f"{stem}{suffix}"), features={"f": "0" if suffix == ".txt.gz" else "x"})
            dataset = build_dataset(Spec({"e": ENDS}, {"n": table}))
            assert dataset.feature.read("node", None, "f").tolist() == [[1], [2]]


def test_suffixes_may_be_in_capital_letters(tmp_path: Path) -> None:
    for name in ["t.CSV", "t.csv.GZ", "T.Csv.Gz", "t.NDJSON.GZ", "t.TFRecord.GZ"]:
        lower = write(tmp_path / name.lower().replace("t.", "l.", 1), {"s": [0, 1], "d": [1, 0]})
        lower.rename(tmp_path / name)
        built = build_dataset(Spec({"e": EdgeTable(name, source="s", destination="d")}, folder=tmp_path))
        assert built.graph.num_edges == 2


def test_labels_that_float64_may_have_rounded_are_refused(tmp_path: Path) -> None:
    large, ends = (1 << 53) + 1, {"s": [0, 0], "d": [0, 0]}
    frames: list[Any] = [
        [pa.table({**ends, "y": [float(large), float("nan")]})],
        [pa.table({**ends, "y": [large, 1]}), pa.table({**ends, "y": [float("nan"), 2.0]})],
    ]
    for tables in frames:
        with pytest.raises(ValueError, match=r"row 0: y is 9007199254740992\.0, which float64 may have rounded; save"):
            build_dataset(Spec({"e": EdgeTable(tables, source="s", destination="d", label="y")}))
    whole = build_dataset(
        Spec({"e": EdgeTable(pa.table({**ends, "y": [large, None]}), source="s", destination="d", label="y")})
    )
    items: Any = whole.tasks[0].train_set
    assert items[:][items.names.index("labels")].tolist() == [large]


CATEGORIES = {"country": ["us", None, "de", "us"], "size": [10, 9, 9, None], "paid": [True, False, None, False]}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
def test_categories_are_numbered_in_the_order_of_their_values(suffix: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"n.{suffix}", CATEGORIES)
    build_dataset(Spec({"n:r:n": ENDS}, {"n": NodeTable(str(file), encode=list(CATEGORIES))}), tmp_path / "out")
    store = gf.OnDiskDataset(tmp_path / "out").load().feature
    codes = {"country": [1, 2, 0, 1], "size": [1, 0, 0, 2], "paid": [1, 0, 2, 0]}
    assert {name: store.read("node", "n", name).flatten().tolist() for name in codes} == codes
    names = {name: store.metadata("node", "n", name)["categories"] for name in codes}
    assert names == {"country": ["de", "us"], "size": [9, 10], "paid": [False, True]}
    assert store.read("node", "n", "size").dtype == torch.int64


def test_categories_of_edges_are_rows_of_their_table() -> None:
    table = {"source": [0, 1], "destination": [1, 0], "kind": ["b", "a"]}
    dataset = build_dataset(Spec({"n:r:n": EdgeTable(pa.table(table), encode="kind")}))
    assert dataset.feature.read("edge", "n:r:n", "kind").tolist() == [[1], [0]]
    nothing = {**table, "kind": [None, None]}
    dataset = build_dataset(Spec({"n:r:n": EdgeTable(pa.table(nothing), encode="kind")}))
    assert dataset.feature.read("edge", "n:r:n", "kind").tolist() == [[0], [0]]


def test_integers_become_floats_on_request(tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", np.array([[1], [2]], dtype=np.int8))
    rows = pa.table({"age": [3, 4], "new": [True, False], "v": [[1, 2], [3, 4]], "c": ["x", "y"]})
    features = {"feat": ["age", "new"], "v": "v", "more": "more.npy"}
    nodes = NodeTable(rows, features=features, dtype="float32", encode="c")
    store = build_dataset(Spec({"n:r:n": ENDS}, {"n": nodes}, folder=tmp_path)).feature
    found = {name: store.read("node", "n", name) for name in features}
    assert {own.dtype for own in found.values()} == {torch.float32}
    assert found["feat"].tolist() == [[3, 1], [4, 0]]
    assert found["v"].tolist() == [[1, 2], [3, 4]]
    assert found["more"].tolist() == [[1], [2]]
    assert store.read("node", "n", "c").dtype == torch.int64


def test_what_is_no_category_or_no_float32_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "large.npy", np.array([1, (1 << 24) + 1]))
    rows = pa.table({"x": [1, (1 << 24) + 1], "part": [0.5, 1.5]})
    narrow = "which float32 can't represent"
    wrong: list[tuple[NodeTable, type[Exception], str]] = [
        (NodeTable(rows, encode="part"), TypeError, "part has double, but encode needs strings, integers or booleans"),
        (NodeTable(rows, encode="c"), ValueError, "encode: frame 0 has no column 'c'"),
        (NodeTable(rows, features={"x": "x"}, dtype="float32"), ValueError, f"row 1: x is 16777217, {narrow}"),
        (NodeTable(rows, features={"x": "large.npy"}, dtype="float32"), ValueError, f"row 1: large.npy .*{narrow}"),
    ]
    for nodes, kind, words in wrong:
        with pytest.raises(kind, match=words):
            build_dataset(Spec({"n:r:n": ENDS}, {"n": nodes}, folder=tmp_path))
