"""Features, labels, splits and classes of rows, from all kinds of tables and arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset
from graphfeed.testing import limits
from tests.kinds.refusals import Refusal, check_refused

EDGES = EdgeTable({"s": np.array([0, 1]), "d": np.array([1, 0])}, source="s", destination="d")
NAN = float("nan")


def build(folder: Path, *tables: dict[str, Any], on_error: Any = "raise", **options: Any) -> Any:
    """Return a data set of nodes, in tables of arrays."""
    arrays = [{name: np.array(values) for name, values in table.items()} for table in tables]
    spec = Spec({"n:r:n": EDGES}, {"n": NodeTable(arrays, **options)}, folder=folder)
    return build_dataset(spec, on_error=on_error)


def feature(dataset: Any, name: str) -> Any:
    return dataset.feature.read("node", "n", name).tolist()


def items(item_set: Any) -> list[list[Any]]:
    """Return the seeds of a part, and their labels if there are any."""
    part = item_set[:]["n"]
    return [values.tolist() for values in part] if isinstance(part, tuple) else [part.tolist()]


def test_columns_and_arrays_stand_beside_each_other(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    np.savez(tmp_path / "b.npz", x=np.array([0.5, 1.5, 2.5]))
    np.save(tmp_path / "nan.npy", np.array([[1.0], [NAN], [3.0]]))
    names = {"all": ["u", "a.npy", "b.npz#x"], "whole": ["u", "a.npy"], "u": "u", "filled": "nan.npy"}
    dataset = build(tmp_path, {"u": [7, 8, 9]}, features=names, missing=0)
    assert feature(dataset, "all") == [[7, 0, 1, 0.5], [8, 2, 3, 1.5], [9, 4, 5, 2.5]]
    assert feature(dataset, "u") == [[7], [8], [9]]
    assert feature(dataset, "filled") == [[1], [0], [3]]
    dtypes = [dataset.feature.read("node", "n", name).dtype for name in ("all", "whole")]
    assert dtypes == [torch.float32, torch.int64]


def test_features_have_the_byte_order_of_the_machine(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([0.5, 1.5, 2.5], dtype=">f4"))
    np.save(tmp_path / "b.npy", np.array([1, 2, 3], dtype=">i8"))
    dataset = build(tmp_path, {"u": [7, 8, 9]}, features={"a": "a.npy", "b": "b.npy"})
    assert feature(dataset, "a") == [[0.5], [1.5], [2.5]]
    assert feature(dataset, "b") == [[1], [2], [3]]
    spec = Spec({"n:r:n": EDGES}, {"n": NodeTable(features={"a": "a.npy"})}, folder=tmp_path)
    assert feature(build_dataset(spec), "a") == [[0.5], [1.5], [2.5]]


def test_labels_are_classes_if_they_are_texts_or_whole_numbers_from_0(tmp_path: Path) -> None:
    cases: list[tuple[Any, list[int], Any, Any, Any]] = [
        (["b", "c", "a", "c"], [0, 1, 2, 3], [1, 2, 0, 2], 3, int),
        ([3, -1, 0], [0, 2], [3, 0], 4, int),
        ([0.5, NAN, 2.5], [0, 2], [0.5, 2.5], None, float),
        ([3, NAN, 1], [0, 2], [3, 1], 4, int),  # a data frame's integers with a missing one
        ([3.5, NAN, 1], [0, 2], [3.5, 1], None, float),
        ([-3, NAN, 1], [0, 2], [-3, 1], None, float),
        ([3.0, 2, 1], [0, 1, 2], [3, 2, 1], None, float),
    ]
    for given, seeds, labels, classes, kind in cases:
        (task,) = build(tmp_path, {"y": given}, label="y").tasks
        found = items(task.train_set)
        assert found == [seeds, labels], given
        assert all(type(label) is kind for label in found[1]), given
        assert task.metadata.get("num_classes") == classes, given
        assert task.metadata.get("class_names") == (["a", "b", "c"] if given[0] == "b" else None)


def test_labels_may_be_vectors(tmp_path: Path) -> None:
    (task,) = build(tmp_path, {"y": [[0.5, 1.0], [2.0, 3.0]]}, label="y").tasks
    assert items(task.train_set) == [[0, 1], [[0.5, 1], [2, 3]]]


def test_each_type_has_classes_of_its_own() -> None:
    tables = {
        "x": NodeTable({"y": np.array(["n", "y"])}, label="y"),
        "z": NodeTable({"y": np.array([0, 2])}, label="y"),
    }
    ends = {"s": np.array([0]), "d": np.array([1])}
    spec = Spec({"x:r:z": EdgeTable(ends, source="s", destination="d")}, tables)
    (task,) = build_dataset(spec).tasks
    assert task.metadata["num_classes"] == {"x": 2, "z": 3}
    assert task.metadata["class_names"] == {"x": ["n", "y"]}
    seeds: Any = task.train_set
    assert {kind: part[1].tolist() for kind, part in seeds[:].items()} == {"x": [0, 1], "z": [0, 2]}


def test_classes_are_those_of_all_tables(tmp_path: Path) -> None:
    (task,) = build(tmp_path, {"y": ["z", "m"]}, {"y": ["a", "z"]}, label="y").tasks
    assert task.metadata["class_names"] == ["a", "m", "z"]
    assert items(task.train_set) == [[0, 1, 2, 3], [2, 1, 0, 2]]
    for last, classes in (([2.0, 4.0], 5), ([2.0, 4.5], None)):
        (task,) = build(tmp_path, {"y": [1.0, NAN]}, {"y": last}, label="y").tasks
        assert items(task.train_set) == [[0, 2, 3], [1, *last]]
        assert task.metadata.get("num_classes") == classes, last


def test_masks_and_values_split_the_rows(tmp_path: Path) -> None:
    masks = {"tr": [True, False, True], "te": [False, True, False]}
    (task,) = build(tmp_path, masks, split=Split(train="tr", test="te")).tasks
    assert items(task.train_set) == [[0, 2]]
    assert task.validation_set is None
    (task,) = build(tmp_path, {"s": ["train", "x", "validation"]}, split="s").tasks
    assert (items(task.train_set), items(task.validation_set)) == ([[0]], [[2]])
    (task,) = build(tmp_path, {"p": ["a", "a"]}, {"p": ["c", "b"]}, split=Split("p", train="a", test="b")).tasks
    assert (items(task.train_set), items(task.test_set)) == ([[0, 1]], [[3]])
    values: Any
    for values, train, test in (
        ([True, False], True, False),
        ([1.0, 0.0], 1, 0),
        ([1, 0], 1.0, 0.0),
        (["a", "b"], "a", "b"),
    ):
        split: Any = Split("p", train=train, test=test)  # type: ignore[arg-type]
        (task,) = build(tmp_path, {"p": values}, split=split).tasks
        assert (items(task.train_set), items(task.test_set)) == ([[0]], [[1]]), values


def test_a_row_is_in_one_part_at_most(tmp_path: Path) -> None:
    split = Split(train="tr", test="te")
    another = "row 2: te is 1, but the row already belongs to another part than test"
    for train, test, message in (
        ([1, 0, 1], [0, 0, 1], another),
        ([1, 0, 2], [0, 1, 0], "row 2: tr is 2, but a mask must be 0 or 1"),
        ([1.0, NAN, 0.0], [0, 1, 0], "row 1: tr is nan, but a mask must be 0 or 1"),
    ):
        columns = {"id": [0, 1, 5], "tr": train, "te": test}
        with pytest.raises(ValueError, match=f"frame 0, {message}"):
            build(tmp_path, columns, id="id", split=split)
        dataset = build(tmp_path, columns, on_error="skip", id="id", split=split)
        assert [entry["rows"] for entry in dataset.yaml_data["skipped"] if entry["reason"][:2] in {"tr", "te"}] == [1]


def test_rows_without_a_label_are_no_items_whether_or_not_the_split_has_them(tmp_path: Path) -> None:
    for part in ("train", ""):
        columns = {"y": [2, NAN, 1, NAN], "part": ["train", part, "test", "test"]}
        (task,) = build(tmp_path, columns, label="y", split="part").tasks
        assert (items(task.train_set), items(task.test_set)) == ([[0], [2]], [[2], [1]]), part


@limits(part_values=1)
def test_rows_that_are_left_out_first_say_nothing_of_the_length_of_vectors() -> None:
    ids = pa.array([None] * 200 + list(range(100)))
    vectors = pa.array([[1, 2]] * 290 + [[3, None]] * 10)
    nodes = NodeTable(pa.table({"id": ids, "v": vectors}), id="id", features={"v": "v"}, missing=7)
    found = build_dataset(Spec({"n:r:n": EDGES}, {"n": nodes}), on_error="skip").feature.read("node", "n", "v")
    assert found.dtype == torch.int64
    assert found.tolist() == [[1, 2]] * 90 + [[3, 7]] * 10


def test_a_list_of_dicts_is_a_table(tmp_path: Path) -> None:
    rows = [{"id": "a", "f": [1, 2]}, {"id": "b", "f": [3, 4], "y": 1}]
    edges = EdgeTable([{"source": "b", "destination": "a"}])
    dataset = build_dataset(Spec({"n:r:n": edges}, {"n": NodeTable(rows, id="id", features={"f": "f"}, label="y")}))
    assert feature(dataset, "f") == [[1, 2], [3, 4]]
    assert items(dataset.tasks[0].train_set) == [[1], [1]]
    assert dataset.ids("n")[:] == ["a", "b"]
    tables = [{"s": np.array([0]), "d": np.array([1])}, {"s": np.array([1]), "d": np.array([0])}]
    graph = build_dataset(Spec({"e": EdgeTable(tables, source="s", destination="d")})).graph
    assert graph is not None
    assert graph.total_num_edges == 2


def test_arrays_beside_several_tables_are_as_long_as_all_of_them(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("x\n" + f"{number}\n" * (number + 1))
    np.save(tmp_path / "a.npy", np.arange(6))
    texts = Spec({"n:r:n": EDGES}, {"n": NodeTable("*.csv", features={"f": ["x", "a.npy"]})}, folder=tmp_path)
    tables = [{"x": np.arange(2)}, {"x": np.arange(4)}]
    assert feature(build_dataset(texts), "f") == [[0, 0], [1, 1], [1, 2], [2, 3], [2, 4], [2, 5]]
    assert feature(build(tmp_path, *tables, features={"a": "a.npy"}), "a")[-1] == [5]
    with pytest.raises(ValueError, match=r"a\.npy has 6 rows, but its table has 4"):
        build(tmp_path, tables[0], tables[0], features={"a": "a.npy"})


INTEGER, BIG = 16777217, 1e300
"""Values that float32 rounds or can't represent."""


FEATURE = {"features": {"f": "x"}}
JOINED = {"features": {"f": ["x", "y"]}}
INT8, UINT8 = pa.array([1, None], pa.int8()), pa.array([1, None], pa.uint8())


def test_numbers_that_would_change_are_refused_by_row_and_column(tmp_path: Path) -> None:
    cases: list[Any] = [
        ([{"x": [1.0, BIG]}], FEATURE, "frame 0, row 1: x is 1e.300, which float32 can't represent"),
        ([{"x": [1.0, -BIG]}], FEATURE, "row 1: x is -1e.300, which"),
        ([{"x": [1.0, NAN, BIG]}], FEATURE | {"missing": 0}, "row 2: x is 1e.300, which float32"),
        ([{"x": [[1.0, 2.0], [1.0, BIG]]}], FEATURE, r"row 1: x is \[1.0, 1e.300\], which float32"),
        ([{"x": [[NAN], [BIG]]}], FEATURE | {"missing": 0}, r"row 1: x is \[1e.300\], which float32"),
        ([{"x": [1, INTEGER], "y": [0.5, 0.5]}], JOINED, "row 1: x is 16777217, which float32"),
        ([{"x": [[1], [INTEGER]], "y": [0.5, 0.5]}], JOINED, r"row 1: x is \[16777217\], which"),
        ([{"x": np.array([1, 2**60], np.uint64), "y": [-1, 0]}], JOINED, "row 1: x is 1152921"),
        ([{"x": [1, INTEGER]}, {"x": [0.5]}], FEATURE, "frame 0, row 1: x is 16777217.0, which"),
        ([{"x": [0.5]}, {"x": [1, INTEGER]}], FEATURE, "frame 1, row 1: x is 16777217.0, which"),
        ([{"x": [[0.5]]}, {"x": [[1], [INTEGER]]}], FEATURE, r"frame 1, row 1: x is \[16777217.0\]"),
        ([{"x": [1, 2]}], {"features": {"f": ["x", "whole.npy", "half.npy"]}}, r"row 1: whole\.npy is 'a number', whi"),
        ([{"x": [1, 2]}], {"features": {"f": ["big.npy", "x"]}}, r"row 0: big\.npy is 'a number', which float32"),
        ([{"x": [0.5, BIG]}], {"label": "x"}, "row 1: x is 1e.300, which float32 can't represent"),
        ([{"x": [[0.5], [BIG]]}], {"label": "x"}, r"row 1: x is \[1e.300\], which float32 can't represent"),
        ([{"x": [1, INTEGER]}, {"x": [0.5]}], {"label": "x"}, "frame 0, row 1: x is 16777217.0, which float32"),
        ([{"x": [True, None]}], FEATURE | {"missing": -1}, "row 1: x is 'missing', .*-1.* is not a valid bool"),
        ([{"x": [[True], [None]]}], FEATURE | {"missing": 2}, "row 1: x is .*, which has a missing number; 2"),
        ([{"x": INT8}], FEATURE | {"missing": 300}, "row 1: x is 'missing', .*300.* is not a valid int8"),
        ([{"x": UINT8}], FEATURE | {"missing": -1}, "row 1: x is 'missing', .*-1.* is not a valid uint8"),
    ]
    for tables, options, wrong in cases:
        np.save(tmp_path / "whole.npy", np.array([1, INTEGER]))
        np.save(tmp_path / "half.npy", np.array([0.5, 0.5]))
        np.save(tmp_path / "big.npy", np.array([BIG, 1.0]))
        nodes = NodeTable([pa.table(table) for table in tables], **options)
        with pytest.raises((TypeError, ValueError), match=wrong):
            build_dataset(Spec({"n:r:n": EDGES}, {"n": nodes}, folder=tmp_path))


def test_texts_of_numbers_that_would_change_are_refused(tmp_path: Path) -> None:
    for values in ["0.5\n16777217", "1e300\n1", "1e400\n1", "0.5\n9007199254740993"]:
        (tmp_path / "t.csv").write_text(f"x\n{values}\n")
        for options in ({"features": {"f": "x"}}, {"label": "x"}):
            spec = Spec({"n:r:n": EDGES}, {"n": NodeTable("t.csv", **options)}, folder=tmp_path)
            with pytest.raises(ValueError, match=r"t\.csv, row \d: x is '[\de]*', which float32 can't represent"):
                build_dataset(spec)


def test_numbers_that_float32_holds_are_kept(tmp_path: Path) -> None:
    most, inf, text = float(np.finfo(np.float32).max), float("inf"), tmp_path / "t.csv"
    text.write_text("x\n0.5\n16777218\ninf\n")
    np.save(tmp_path / "a.npy", np.array([BIG, 1.0]))
    features: dict[str, Any] = {"f": "x", "g": ["y", "z"], "a": "a.npy"}
    dataset = build(tmp_path, {"x": [most, -inf], "y": [1 << 25, -3], "z": [0.1, 0.5]}, features=features)
    assert feature(dataset, "f") == [[most], [-inf]]
    assert feature(dataset, "g") == [[float(1 << 25), np.float32(0.1)], [-3, 0.5]]
    assert feature(dataset, "a") == [[BIG], [1.0]]
    spec = Spec({"n:r:n": EDGES}, {"n": NodeTable(str(text), features={"f": "x"})})
    assert feature(build_dataset(spec), "f") == [[0.5], [16777218], [inf]]
    labels = build(tmp_path, {"x": [0.0, NAN, INTEGER, 2**53 - 1]}, label="x")
    assert items(labels.tasks[0].train_set) == [[0, 2, 3], [0, INTEGER, 2**53 - 1]]
    filled = build(tmp_path, {"x": [True, False, None]}, features={"f": "x"}, missing=1)
    assert feature(filled, "f") == [[1], [0], [1]]


def test_numbers_that_would_change_are_left_out_where_wrong_rows_are(tmp_path: Path) -> None:
    edges = {"s": [0, 0, 0], "d": [0, 0, 0], "x": [1.0, BIG, 2.0], "w": [1.0, 1.0, 1e-300]}
    table = EdgeTable(edges, source="s", destination="d", features={"f": "x"}, weight="w")
    dataset = build_dataset(Spec({"e": table}, {"n": NodeTable(count=1)}), on_error="skip")
    assert dataset.feature.read("edge", None, "f").tolist() == [[1.0]]
    assert [skipped["rows"] for skipped in dataset.yaml_data["skipped"]] == [1, 1]


def test_tables_without_rows_keep_their_features(tmp_path: Path) -> None:
    for files in ["t.csv", "t.parquet", "frame"]:
        kinds = {"id": pa.int64(), "s": pa.int64(), "d": pa.int64(), "x": pa.float64(), "v": pa.list_(pa.float32(), 3)}
        table = pa.schema(list(kinds.items())).empty_table()
        pa.parquet.write_table(table, tmp_path / "t.parquet")
        (tmp_path / "t.csv").write_text("id,s,d,x,v\n")
        np.save(tmp_path / "a.npy", np.zeros((0, 2)))
        names: dict[str, Any] = {"f": ["x", "v"], "one": "x", "whole": "id", "a": ["a.npy", "x"]}
        given = table if files == "frame" else files
        nodes = NodeTable(given, id="id", features=names)
        edges = EdgeTable(given, source="s", destination="d", features=names)
        dataset = build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=tmp_path))
        for domain, key in (("node", "n"), ("edge", "n:r:n")):
            shapes = [tuple(dataset.feature.read(domain, key, name).shape) for name in names]
            assert shapes == [(0, 2 if files == "t.csv" else 4), (0, 1), (0, 1), (0, 3)]


def test_what_can_not_be_features_labels_or_parts_is_refused(tmp_path: Path) -> None:
    for rows in (2, 4):
        np.save(tmp_path / f"{rows}.npy", np.zeros(rows))
    np.savez(tmp_path / "t.npz", x=np.array(["t"]))
    np.save(tmp_path / "nan.npy", np.array([[1.0], [NAN], [3.0]]))
    many = [str(number) for number in range(10_001)]

    def named(name: str) -> Any:
        return build(tmp_path, {"u": [7, 8, 9]}, features={"a": name})

    def split(test: str | None, *tables: list[str]) -> Any:
        given = "p" if test is None else Split("p", train="a", test=test)
        return build(tmp_path, *[{"p": values} for values in tables], split=given)

    refused: list[Refusal] = [
        (lambda: named("2.npy"), ValueError, r"2\.npy has 2 rows, but"),
        (lambda: named("4.npy"), ValueError, r"4\.npy has 4 rows, but its table has 3"),
        (lambda: named("nan.npy"), ValueError, r"frame 0, row 1: nan\.npy is nan, which has NaN; the key `missing:`"),
        (lambda: named("t.npz"), ValueError, r"t\.npz can't be read: .*write FILE\.npz#NAME"),
        (lambda: named("t.npz#x"), ValueError, r"t\.npz#x must have rows of numbers, but is <U1"),
        (lambda: named("b.npy"), FileNotFoundError, r"b\.npy, which a feature names"),
        (lambda: build(tmp_path, {"y": many}, label="y"), ValueError,
         "the label y has more than 10000 different values"),
        (lambda: build(tmp_path, {"y": many[1:]}, {"y": many[:1]}, label="y"), ValueError, "more than 10000 different"),
        (lambda: build(tmp_path, {"y": ["a" * 200_000, "b" * 100_000]}, label="y"), ValueError,
         "or more than 262144 characters in these"),
        (lambda: build(tmp_path, {"u": [1]}, features={"x": "typo"}), ValueError,
         "there is no column 'typo'|has no col"),
        (lambda: build(tmp_path, {"p": [1, 0]}, split=Split("p", train="1", test="x")), ValueError,
         "no row has 'x' in"),
        (lambda: split("typo", ["a", "b"]), ValueError, r"no row has 'typo' in the column 'p'.* has \['a', 'b'\]"),
        (lambda: split(None, ["a", "b"]), ValueError, r"split: no row has 'train' in the column 'p'"),
        (lambda: split("d", ["a"], ["c", "b"]), ValueError, r"no row has 'd' .* the column has \['a', 'c', 'b'\]"),
    ]  # fmt: skip
    check_refused(refused)
