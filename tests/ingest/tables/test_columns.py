"""Values of columns, and what is said of those that are wrong."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.ingest.tables.column_types import common_types, vector_lengths
from graphfeed.ingest.tables.columns import Batch, ColumnTypes, Problems
from graphfeed.ingest.tables.table import TableSource


def batch(columns: dict[str, Any], on_error: Any = "raise", kinds: Any = None, first_row: int = 10) -> Batch:
    rows = pa.record_batch(columns)
    source = TableSource(pa.table(columns), "some.csv")
    lengths = vector_lengths([source], common_types([source], rows.schema.names))
    types = ColumnTypes(rows.schema if kinds is None else kinds, lengths=lengths)
    return Batch(source, rows, first_row, Problems(on_error), types)


def texts(values: list[Any], kind: Any, on_error: Any = "raise") -> Batch:
    return batch({"a": pa.array(values, pa.string())}, on_error, pa.schema({"a": kind}))


def test_numbers_of_every_kind_become_integers() -> None:
    values = [pa.array([1, 2], kind) for kind in (pa.int8(), pa.uint64(), pa.int64())]
    values += [pa.array([1, 2], pa.timestamp("s")), pa.array([1, 2], pa.date32())]
    assert all(batch({"a": column}).integers("a", "x").tolist() == [1, 2] for column in values)
    assert texts(["1", "+2"], pa.int64()).integers("a", "x").tolist() == [1, 2]
    assert texts(["1970-01-01 00:00:02"], pa.timestamp("s")).integers("a", "x").tolist() == [2]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, None]), r"some\.csv, row 11: a is 'missing', but must be x"),
        (pa.array([1, (1 << 64) - 1], pa.uint64()), "row 11: a is 18446744073709551615, which is more than int64"),
    ],
)
def test_a_row_without_an_integer_is_named(column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch({"a": column}).integers("a", "x")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["3", "4x"], "'4x'"),
        (["3", "1.5"], "'1.5'"),
        (["3", ""], "missing"),
        (["3", "9" * 19], "'9999999999999999999'"),
    ],
)
def test_a_text_that_is_no_integer_is_named(values: list[str], found: str) -> None:
    with pytest.raises(ValueError, match=f"row 11: a is '?{found}'?, but must be x"):
        texts(values, pa.int64()).integers("a", "x")


def test_a_column_without_any_value_has_the_type_that_it_has_elsewhere() -> None:
    nothing, kinds = {"a": pa.nulls(2)}, pa.schema({"a": pa.float32()})
    assert batch(nothing, kinds=kinds).feature("a", 9).tolist() == [9, 9]
    assert batch(nothing).feature("a", 9).tolist() == [9, 9]
    skipping = batch(nothing, "skip")
    assert skipping.keep(skipping.integers("a", "x")).tolist() == []
    for texts in (False, True):
        skipping = batch(nothing, "skip")
        skipping.ids("a", texts)
        assert skipping.drop.all()
        with pytest.raises(ValueError, match="row 10: a is 'missing', but must be an"):
            batch(nothing).ids("a", texts)


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array(["a"]), pa.array([[1]])])
def test_a_column_of_another_kind_is_a_type_error(column: Any) -> None:
    with pytest.raises(TypeError, match="a must be x, but"):
        batch({"a": column}).integers("a", "x")


def test_rows_that_are_wrong_are_left_out_and_counted_once() -> None:
    own = texts(["1", "x", "3", "y"], pa.int64(), "skip")
    values = own.integers("a", "a number")
    own.refuse("a", np.array([False, True, True, False]), "but is not wanted")
    assert own.keep(values).tolist() == [1]
    first, second = own.problems.as_list()
    assert first["file"] == second["file"] == "some.csv"
    assert first == {"file": "some.csv", "reason": "a: but is not wanted", "rows": 1} | {
        "first": "row 12: a is '3', but is not wanted"
    }
    assert (second["rows"], second["first"]) == (2, "row 11: a is 'x', but must be a number")


def test_features_are_numbers_or_vectors_of_one_length() -> None:
    own = batch({"a": pa.array([1, 2]), "b": pa.array([True, False]), "c": pa.array([[1.0, 2.0], [3.0, 4.0]])})
    assert own.feature("a", None).tolist() == [1, 2]
    assert own.feature("b", None).tolist() == [1, 0]
    assert own.feature("c", None).tolist() == [[1, 2], [3, 4]]
    wrong = batch({"c": pa.array([[1.0, 2.0], [3.0]])})
    with pytest.raises(ValueError, match=r"row 11: c is \[3\.0\], which has another length than 2"):
        wrong.feature("c", None)
    with pytest.raises(TypeError, match="c must have vectors of numbers, but has string"):
        batch({"c": pa.array([["x"]])}).feature("c", None)
    skipped = batch({"c": pa.array([[1.0, 2.0], [3.0], [5.0, 6.0]])}, "skip")
    assert skipped.keep(skipped.feature("c", None)).tolist() == [[1, 2], [5, 6]]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, float("nan")]),
        pa.array([[1.0], [float("nan")]]),
        pa.array([1.0, None]),
        pa.array([[1.0], [None]]),
    ],
)
def test_nan_and_missing_features_are_named_unless_something_takes_their_place(column: Any) -> None:
    with pytest.raises(ValueError, match=r"some\.csv, row 11: a is .*(nan|missing|None)"):
        batch({"a": column}).feature("a", None)
    assert np.ravel(batch({"a": column}).feature("a", 7.0)).tolist() == [1, 7]
    skipped = batch({"a": column}, "skip")
    assert np.ravel(skipped.keep(skipped.feature("a", None))).tolist() == [1]


def test_ids_are_texts_or_integers_but_not_both() -> None:
    assert batch({"a": pa.array([5, 6])}).ids("a", texts=False).tolist() == [5, 6]
    assert batch({"a": pa.array(["x", "y"])}).ids("a", texts=True).to_pylist() == ["x", "y"]
    with pytest.raises(TypeError, match="a has texts, but the ids of these nodes are integers"):
        batch({"a": pa.array(["x"])}).ids("a", texts=False)
    with pytest.raises(TypeError, match="a has int64, but the ids of these nodes are texts"):
        batch({"a": pa.array([1])}).ids("a", texts=True)
    with pytest.raises(ValueError, match="row 10: a is 'missing', but must be an id"):
        batch({"a": pa.array([None, "x"])}).ids("a", texts=True)
    assert texts(["7", "8"], pa.string()).ids("a", texts=True).to_pylist() == ["7", "8"]
    # Polars has these.
    views = batch({"a": pa.array(["x", "y"], pa.string_view())})
    assert views.ids("a", texts=True).to_pylist() == views.texts("a").to_pylist() == ["x", "y"]


def test_vectors_have_one_dtype_whatever_is_missing_in_a_batch() -> None:
    vectors = pa.array([[1, None], [3, 4]])
    found = batch({"a": vectors}).feature("a", 7)
    assert found.dtype == np.int64
    assert found.tolist() == [[1, 7], [3, 4]]
    with pytest.raises(ValueError, match=r"row 10: a is .*, which has a missing number; the key `missing:`"):
        batch({"a": vectors}).feature("a", None)
    assert batch({"a": pa.array([[], []], pa.list_(pa.int64()))}).feature("a", None).shape == (2, 0)


def test_times_are_no_features() -> None:
    with pytest.raises(TypeError, match=r"some\.csv: a has timestamp\[s\], but a feature has numbers"):
        batch({"a": pa.array([0], pa.timestamp("s"))}).feature("a", None)


def test_one_wrong_value_leaves_the_longest_integers_beside_it_alone() -> None:
    right = [(1 << 63) - 1, -(1 << 63), 1234567890123456789]
    own = texts([*map(str, right), str(1 << 63), "x"], pa.int64(), "skip")
    assert own.keep(own.integers("a", "a number")).tolist() == right


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.int64(), 2), pa.large_list(pa.float64())])
def test_a_vector_that_is_missing_is_refused_or_made_of_what_takes_its_place(kind: Any) -> None:
    vectors = {"a": pa.array([None, [1, 2], None, [3, None]], kind)}
    with pytest.raises(ValueError, match="row 10: a is 'missing', but must be a vector; the key `missing:`"):
        batch(vectors).feature("a", None)
    assert batch(vectors).feature("a", 7).tolist() == [[7, 7], [1, 2], [7, 7], [3, 7]]


def test_the_first_vectors_may_be_missing_if_their_length_is_known() -> None:
    assert batch({"a": pa.array([None], pa.list_(pa.float32(), 2))}).feature("a", 7).tolist() == [[7, 7]]
    with pytest.raises(ValueError, match=r"some\.csv: no row has a vector in a, so their length isn't known"):
        batch({"a": pa.array([None], pa.list_(pa.float32()))}).feature("a", 7)
