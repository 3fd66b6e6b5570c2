"""Values of columns as ids, times and features, and what is said of those that are wrong."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from tests.refusals import Refusal, check_refused

ENDS = EdgeTable({"s": np.array([0, 1]), "d": np.array([1, 0])}, source="s", destination="d")


def features(column: Any, on_error: Any = "raise", **options: Any) -> torch.Tensor:
    """Return a column of nodes as their features."""
    table = pa.table({"id": list(range(len(column))), "a": column})
    nodes = NodeTable(table, id="id", features={"a": "a"}, **options)
    none = EdgeTable({"s": np.zeros(0, int), "d": np.zeros(0, int)}, source="s", destination="d")
    dataset = build_dataset(Spec({"n:r:n": none}, {"n": nodes}), on_error=on_error)
    return dataset.feature.read("node", "n", "a")


def times(column: Any, on_error: Any = "raise") -> list[int]:
    """Return a column of edges as their times."""
    count = len(column)
    edges = EdgeTable(
        pa.table({"s": [0] * count, "d": [1] * count, "a": column}), source="s", destination="d", time="a"
    )
    graph: Any = build_dataset(Spec({"n:r:n": edges}, {"n": NodeTable(count=2)}), on_error=on_error).graph
    return graph.edge_attributes["time"].tolist()  # type: ignore[no-any-return]


def weighted(column: Any) -> Any:
    edges = EdgeTable(pa.table({"s": [0], "d": [1], "a": column}), source="s", destination="d", weight="a")
    return build_dataset(Spec({"n:r:n": edges}, {"n": NodeTable(count=2)}))


def late(folder: Path, values: list[Any], on_error: Any = "raise", before: str = "5", key: str = "time") -> list[Any]:
    """Return times or weights in a file of CSV whose first hundred rows, which tell the types, have another."""
    lines = [f"0,1,{value}\n" for value in [*[before] * 100, *values]]
    (folder / "some.csv").write_text("s,d,a\n" + "".join(lines))
    named: Any = {key: "a"}
    edges = EdgeTable("some.csv", source="s", destination="d", **named)
    spec = Spec({"n:r:n": edges}, {"n": NodeTable(count=2)}, folder=folder)
    graph: Any = build_dataset(spec, on_error=on_error).graph
    return graph.edge_attributes[key].tolist()[100:]  # type: ignore[no-any-return]


def ids(nodes: Any, edges: Any) -> Any:
    table = EdgeTable(pa.table({"s": edges, "d": edges}), source="s", destination="d")
    return build_dataset(Spec({"n:r:n": table}, {"n": NodeTable(pa.table({"id": nodes}), id="id")}))


def test_numbers_of_every_kind_become_integers(tmp_path: Path) -> None:
    for kind in (pa.int8(), pa.uint64(), pa.int64(), pa.timestamp("s"), pa.date32()):
        assert times(pa.array([1, 2], kind)) == [1, 2], kind
    assert late(tmp_path, ["1", "+2"]) == [1, 2]
    assert late(tmp_path, ["1970-01-01 00:00:02"], before="1970-01-01 00:00:01") == [2]
    assert late(tmp_path, ["1e2", ".5", "+3"], before="0.5", key="weight") == [100, 0.5, 3]


def test_one_wrong_value_leaves_the_longest_integers_beside_it_alone(tmp_path: Path) -> None:
    right = [(1 << 63) - 1, -(1 << 63), 1234567890123456789]
    assert late(tmp_path, [*right, 1 << 63, "x"], "skip") == right


def test_features_are_numbers_or_vectors_of_one_length() -> None:
    assert features(pa.array([1, 2])).tolist() == [[1], [2]]
    assert features(pa.array([True, False])).tolist() == [[1], [0]]
    for kind in (pa.list_(pa.decimal128(5, 1)), pa.list_(pa.decimal128(5, 1), 1)):
        assert features(pa.array([[Decimal("1.5")], [Decimal(2)]], kind)).tolist() == [[1.5], [2]]
    assert features(pa.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[1, 2], [3, 4]]
    assert features(pa.array([[1.0, 2.0], [3.0], [5.0, 6.0]]), "skip").tolist() == [[1, 2], [5, 6]]
    assert features(pa.array([[], []], pa.list_(pa.int64()))).shape == (2, 0)


def test_what_is_missing_is_left_out_or_filled_in() -> None:
    nan = float("nan")
    columns = [pa.array([1.0, nan]), pa.array([[1.0], [nan]]), pa.array([1.0, None]), pa.array([[1.0], [None]])]
    for column in columns:
        assert features(column, missing=7).flatten().tolist() == [1, 7], column
        assert features(column, "skip").flatten().tolist() == [1], column
    assert features(pa.nulls(2), missing=9).flatten().tolist() == [9, 9]
    assert features(pa.array([1, 2], pa.int8()), missing=1000).tolist() == [[1], [2]]  # where none is missing
    assert features(pa.array([True, None]), missing=7).tolist() == [[1], [1]]
    found = features(pa.array([[1, None], [3, 4]]), missing=7)
    assert (found.dtype, found.tolist()) == (torch.int64, [[1, 7], [3, 4]])
    for kind in (pa.list_(pa.float32()), pa.list_(pa.int64(), 2), pa.large_list(pa.float64())):
        vectors = pa.array([None, [1, 2], None, [3, None]], kind)
        assert features(vectors, missing=7).tolist() == [[7, 7], [1, 2], [7, 7], [3, 7]], kind
    assert features(pa.array([None], pa.list_(pa.float32(), 2)), missing=7).tolist() == [[7, 7]]


def test_ids_are_texts_or_integers_but_not_both() -> None:
    assert ids([5, 6], [6]).ids("n")[:] == [5, 6]
    assert ids(["7", "8"], ["8"]).ids("n")[:] == ["7", "8"]
    views = pa.array(["x", "y"], pa.string_view())  # Polars has these
    assert ids(views, views).ids("n")[:] == ["x", "y"]


def test_what_is_wrong_is_named_with_its_row(tmp_path: Path) -> None:
    large = pa.array([1, (1 << 64) - 1], pa.uint64())
    seconds = pa.array([0], pa.timestamp("s"))
    refused: list[Refusal] = [
        (lambda: times(pa.array([1, None])), ValueError, r"row 1: a is 'missing', but must be"),
        (lambda: times(large), ValueError, "row 1: a is 18446744073709551615, which is more than int64"),
        (lambda: late(tmp_path, ["3", "4x"]), ValueError, r"some\.csv, row 101: a is '4x', but must be"),
        (lambda: late(tmp_path, ["3", "1.5"]), ValueError, "row 101: a is '1.5', but must be"),
        (lambda: late(tmp_path, ["x"], before="2020-01-01"), ValueError, "row 100: a is 'x', but"),
        (lambda: late(tmp_path, ["x"], before="0.5", key="weight"), ValueError, "row 100: a is 'x', but"),
        (lambda: weighted(pa.array([[1]])), TypeError, "a must be .*, but the column is"),
        (lambda: late(tmp_path, ["3", ""]), ValueError, "row 101: a is 'missing', but must be"),
        (lambda: late(tmp_path, ["3", "9" * 19]), ValueError, "row 101: a is '9999999999999999999', but must be"),
        (lambda: times(pa.array([[1]])), TypeError, "a must be .*, but"),
        (lambda: features(pa.array([[1.0, 2.0], [3.0]])), ValueError,
         r"row 1: a is \[3\.0\], which has another length"),
        (lambda: features(pa.array([["x"]])), TypeError, "a must have vectors of numbers, but has string"),
        (lambda: features(pa.array([1.0, float("nan")])), ValueError, "row 1: a is nan"),
        (lambda: features(pa.array([1, None]), missing=0.5), ValueError, "row 1: a is 'missing', but must be a number"),
        (lambda: features(pa.array([[1], [None]]), missing=0.5), ValueError, "row 1: a is .*, which has a missing"),
        (lambda: features(pa.array([[1], [None]])), ValueError, "row 1: a is .*, which has a missing number; the key"),
        (lambda: features(pa.array([None, [1]])), ValueError, "row 0: a is 'missing', but must be a vector; the key"),
        (lambda: features(pa.array([None], pa.list_(pa.int8())), missing=7), ValueError, "no row has a vector in a"),
        (lambda: features(seconds), TypeError, r"a has timestamp\[s\], but a feature has numbers"),
        (lambda: ids([1, 2], ["x"]), TypeError, "s has .*, but the ids of these nodes are integers"),
        (lambda: ids(["1", "2"], [1]), TypeError, "s has int64, but the ids of these nodes are texts"),
        (lambda: ids(["x", "y"], [None, "x"]), ValueError, "row 0: s is 'missing', but must be an id"),
    ]  # fmt: skip
    check_refused(refused)
