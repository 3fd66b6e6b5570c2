"""Column values as ids, times and features, of one type over all tables, and errors for invalid ones."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset
from tests.kinds.example_tables import edges_of
from tests.kinds.refusals import Refusal, check_refused

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
    """Return times or weights in a CSV file whose first hundred rows, which determine guessed types, have another."""
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
    assert features(pa.array([1, 2], pa.int8()), missing=1000).tolist() == [[1], [2]]  # no value is missing
    assert features(pa.array([True, None]), missing=1).tolist() == [[1], [1]]
    found = features(pa.array([[1, None], [3, 4]]), missing=7)
    assert (found.dtype, found.tolist()) == (torch.int64, [[1, 7], [3, 4]])
    for kind in (pa.list_(pa.float32()), pa.list_(pa.int64(), 2), pa.large_list(pa.float64())):
        vectors = pa.array([None, [1, 2], None, [3, None]], kind)
        assert features(vectors, missing=7).tolist() == [[7, 7], [1, 2], [7, 7], [3, 7]], kind
    assert features(pa.array([None], pa.list_(pa.float32(), 2)), missing=7).tolist() == [[7, 7]]


def test_ids_are_texts_or_integers_but_not_both() -> None:
    assert ids([5, 6], [6]).ids("n")[:] == [5, 6]
    assert ids(["7", "8"], ["8"]).ids("n")[:] == ["7", "8"]
    views = pa.array(["x", "y"], pa.string_view())  # as in Polars
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
         r"row 1: a is \[3\.0\], but vectors must have"),
        (lambda: features(pa.array([["x"]])), TypeError, "a must have vectors of numbers, but has string"),
        (lambda: features(pa.array([1.0, float("nan")])), ValueError, "row 1: a is nan"),
        (lambda: features(pa.array([1, None]), missing=0.5), ValueError, "row 1: a is 'missing', but must be a number"),
        (lambda: features(pa.array([[1], [None]]), missing=0.5), ValueError, "row 1: a is .*, which has a missing"),
        (lambda: features(pa.array([[1], [None]])), ValueError, "row 1: a is .*, which has a missing number; the key"),
        (lambda: features(pa.array([None, [1]])), ValueError, "row 0: a is 'missing', but must be a vector; the key"),
        (lambda: features(pa.array([None], pa.list_(pa.int8())), missing=7), ValueError, "no row has a vector in a"),
        (lambda: features(seconds), TypeError, r"a has timestamp\[s\], but a feature has numbers"),
        (lambda: ids([1, 2], ["x"]), TypeError, "s has .*, but the ids of these nodes are integers"),
        (lambda: ids(["1", "2"], [1.5]), TypeError, "s has double, but the ids of these nodes are strings"),
        (lambda: ids([1, 2], ["1", "x"]), ValueError, "row 1: s is 'x', but must be an integer id"),
        (lambda: ids([1, 2], large), ValueError, "row 1: s is 18446744073709551615, which is more than int64"),
        (lambda: ids(["x", "y"], [None, "x"]), ValueError, "row 0: s is 'missing', but must be an id"),
    ]  # fmt: skip
    check_refused(refused)


DAYS = [datetime(2020, 1, 1), datetime(2020, 1, 2)]


def timed(times: Any) -> Any:
    return pa.table({"s": [0, 1], "d": [1, 0], "t": times})


def text(folder: Path, name: str, lines: str) -> str:
    (folder / name).write_text(lines)
    return name


def nodes(folder: Path, *files: Any, **options: Any) -> Any:
    names = [
        text(folder, f"{number}.csv", part) if isinstance(part, str) else part for number, part in enumerate(files)
    ]
    return build_dataset(Spec({"n:r:n": ENDS}, {"n": NodeTable(names, id="id", **options)}, folder=folder))


def labels(dataset: Any) -> list[list[Any]]:
    return [part.tolist() for part in dataset.tasks[0].train_set[:]["n"]]


def test_times_of_nodes_and_edges_have_one_unit_which_is_written_down(tmp_path: Path) -> None:
    edges = EdgeTable(timed(pa.array(DAYS, pa.timestamp("ns"))), source="s", destination="d", time="t")
    days = pa.table({"t": pa.array([date(2020, 1, 1)] * 2)})
    with pytest.raises(TypeError, match=r"the time of edges is timestamp\[ns\], but that of nodes is date32\[day\]"):
        build_dataset(Spec({"e": edges}, {"n": NodeTable(days, time="t")}))
    same = pa.table({"t": pa.array(DAYS, pa.timestamp("ns"))})
    dataset = build_dataset(Spec({"e": edges}, {"n": NodeTable(same, time="t")}), tmp_path / "out")
    assert dataset.yaml_data["time_unit"] == "ns"
    numbers = EdgeTable(timed([1, 2]), source="s", destination="d", time="t")
    assert build_dataset(Spec({"e": numbers})).yaml_data["time_unit"] is None


def test_a_number_that_is_also_a_column_is_refused(tmp_path: Path) -> None:
    file = text(tmp_path, "e.csv", "0,1,5\n1,0,6\n")

    def build(key: Any, value: Any) -> Any:
        edges = EdgeTable(file, header=False, source="0", destination="1", **{key: value})
        return build_dataset(Spec({"e": edges}, folder=tmp_path)).graph.edge_attributes[key].tolist()

    for key in ("weight", "time"):
        with pytest.raises(ValueError, match=rf"edges: {key} is 2, which may be .* write '2' in quotes .*, or 2\.0"):
            build(key, 2)
        assert [build(key, value) for value in ("2", 2.0, 7)] == [[6, 5], [2, 2], [7, 7]]


def test_the_widest_type_holds_the_numbers_of_all_tables(tmp_path: Path) -> None:
    narrow = pa.table({"id": [0, 1], "x": pa.array([1, 2], pa.int8())})
    wide = pa.table({"id": [2], "x": pa.array([70000])})
    found = nodes(tmp_path, narrow, wide, features={"x": "x"}).feature.read("node", "n", "x")
    assert found.flatten().tolist() == [1, 2, 70000]
    found = nodes(tmp_path, "id,x\n0,3\n1,10\n", "id,x\n2,3.5\n", features={"x": "x"}).feature.read("node", "n", "x")
    assert found.flatten().tolist() == [3, 10, 3.5]


def test_what_says_that_a_number_is_missing_makes_no_column_of_texts(tmp_path: Path) -> None:
    one, other = "id,y\n0,3\n1,10\n", "id,y\n2,2\n3,NA\n"
    dataset = nodes(tmp_path, one, other, label="y")
    assert labels(dataset) == [[0, 1, 2], [3, 10, 2]]
    assert "class_names" not in dataset.tasks[0].metadata
    dataset = nodes(tmp_path, "id,y\n0,2\n1,NA\n", features={"y": "y"}, missing=0)
    assert dataset.feature.read("node", "n", "y").flatten().tolist() == [2, 0]


def test_ids_with_leading_zeros_are_texts(tmp_path: Path) -> None:
    for ids in (["7", "007"], ["16", "0x10"], ["true", "1"], ["2020-01-01", "2020-01-02"], ["5", "x"]):
        file = text(tmp_path, "n.csv", "id\n" + "".join(f"{own}\n" for own in ids))
        lines = f"s,d\n{ids[0]},{ids[1]}\n{ids[1]},{ids[0]}\n"
        edges = EdgeTable(text(tmp_path, "e.csv", lines), source="s", destination="d")
        for given in ({"n": NodeTable(file, id="id")}, {}):
            dataset = build_dataset(Spec({"n:r:n": edges}, given, folder=tmp_path))
            assert sorted(dataset.ids("n")[:]) == sorted(ids)
            assert edges_of(dataset, "n:r:n") == sorted([tuple(ids), tuple(ids[::-1])])


def test_an_empty_line_is_a_row_of_a_table_of_one_column(tmp_path: Path) -> None:
    table = NodeTable(text(tmp_path, "n.csv", "x\n1\n\n3\n"), features={"x": "x"}, missing=0)
    dataset = build_dataset(Spec({"n:r:n": ENDS}, {"n": table}, folder=tmp_path))
    assert dataset.feature.read("node", "n", "x").flatten().tolist() == [1, 0, 3]


def test_vectors_of_several_types_become_those_of_the_widest(tmp_path: Path) -> None:
    tables = [
        pa.table({"id": [0], "x": pa.array([[1, 2]], pa.list_(pa.int8()))}),
        pa.table({"id": [1], "x": pa.array([[0.5, 3]], pa.list_(pa.float64(), 2))}),
        pa.table({"id": [2], "x": pa.array([[70000, 4]], pa.large_list(pa.uint64()))}),
    ]
    found = nodes(tmp_path, *tables, features={"x": "x"}).feature.read("node", "n", "x")
    assert found.tolist() == [[1, 2], [0.5, 3], [70000, 4]]
    large = tables[2].set_column(0, "id", [[1]])
    found = nodes(tmp_path, tables[0], large, features={"x": "x"}).feature.read("node", "n", "x")
    assert (found.dtype, found.tolist()) == (torch.int64, [[1, 2], [70000, 4]])


def test_a_table_without_a_vector_may_stand_among_others(tmp_path: Path) -> None:
    for number, rows in enumerate(['{"id": 0, "x": null}\n', '{"id": 1, "x": [1.5, 2]}\n']):
        (tmp_path / f"{number}.ndjson").write_text(rows)
    table = NodeTable("*.ndjson", id="id", features={"x": "x"}, missing=0)
    dataset = build_dataset(Spec({"n:r:n": ENDS}, {"n": table}, folder=tmp_path))
    assert dataset.feature.read("node", "n", "x").tolist() == [[0, 0], [1.5, 2]]


CATEGORIES = {
    "pyarrow": pa.array(["x", None, "y", "x"]).dictionary_encode(),
    "polars": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 0], pa.uint32()), pa.array(["x", "y"], pa.string_view())
    ),
}


def test_categories_are_ids_labels_and_parts_of_a_split() -> None:
    for library in CATEGORIES:
        column = CATEGORIES[library]
        nodes = pa.table({"id": column.take(pa.array([0, 2])) if library == "pyarrow" else column[2:], "y": column[:2]})
        edges = EdgeTable(pa.table({"source": column[2:], "destination": column[2:]}))
        table = NodeTable(nodes, id="id", label="y", split=Split("id", train="x", test="y"))
        dataset = build_dataset(Spec({"n:r:n": edges}, {"n": table}))
        assert sorted(dataset.ids("n")[:]) == ["x", "y"]
        assert dataset.tasks[0].metadata["class_names"] == ["x"]


def test_decimals_are_ids_features_weights_and_times() -> None:
    whole = pa.array([Decimal(5), Decimal(9)], pa.decimal128(20, 0))
    parts = pa.array([Decimal("0.5"), Decimal("1.5")], pa.decimal128(5, 2))
    edges = EdgeTable(pa.table({"source": whole, "destination": whole, "w": parts, "t": whole}), weight="w", time="t")
    dataset = build_dataset(
        Spec({"n:r:n": edges}, {"n": NodeTable(pa.table({"id": whole, "f": parts}), id="id", features={"f": "f"})})
    )
    assert dataset.ids("n")[:] == [5, 9]
    assert np.ravel(dataset.feature.read("node", "n", "f")).tolist() == [0.5, 1.5]
    assert {name: values.tolist() for name, values in dataset.graph.edge_attributes.items()} == {
        "weight": [0.5, 1.5],
        "time": [5, 9],
    }


def test_texts_of_several_kinds_are_texts() -> None:
    tables = [pa.table({"id": pa.array([own], kind)}) for own, kind in (("a", pa.string()), ("b", pa.large_string()))]
    ends = EdgeTable(pa.table({"s": ["a"], "d": ["b"]}), source="s", destination="d")
    assert build_dataset(Spec({"n:r:n": ends}, {"n": NodeTable(tables, id="id")})).ids("n")[:] == ["a", "b"]


def test_types_that_have_nothing_in_common_are_refused(tmp_path: Path) -> None:
    zones = pa.array([day.replace(tzinfo=UTC) for day in DAYS], pa.timestamp("ms", "UTC"))
    milliseconds = pa.array(DAYS, pa.timestamp("ms"))

    def times(*columns: Any) -> Any:
        tables = [timed(column) for column in columns]
        return build_dataset(Spec({"e": EdgeTable(tables, source="s", destination="d", time="t")}))

    def csv_times(*lines: str) -> Any:
        files = [text(tmp_path, f"{number}.csv", f"s,d,t\n0,1,{line}\n") for number, line in enumerate(lines)]
        edges = EdgeTable(files, source="s", destination="d", time="t")
        return build_dataset(Spec({"e": edges}, folder=tmp_path))

    def vectors(column: Any) -> Any:
        tables = [pa.table({"id": [0], "x": [[1, 2]]}), pa.table({"id": [1], "x": column})]
        return nodes(tmp_path, *tables, features={"x": "x"})

    def ids(column: Any, ends: Any = ENDS) -> Any:
        table = NodeTable(pa.table({"id": column}), id="id")
        return build_dataset(Spec({"n:r:n": ends}, {"n": table}, folder=tmp_path))

    zeros = EdgeTable(text(tmp_path, "zeros.csv", "s,d\n7,8\n007,8\n"), source="s", destination="d")
    unit = r"frame 1: t is .*, but it is .* in frame 0; save the column with one type"
    large = pa.array([[1 << 63, 0]], pa.list_(pa.uint64()))
    booleans = r"frame 1: x is list<.*bool>, but it is .*list<.*int64> in frame 0"
    longer = r"frame 1, row 0: x is \[5, 6, 7\], but vectors must have length 2, as the first one"
    some_texts = ("id,y\n0,3\n1,1\n", "id,y\n2,cat\n3,ant\n")
    written = r"1\.csv: t is timestamp\[s\], but it is date32\[day\] in .*0\.csv"
    refused: list[Refusal] = [
        (lambda: times(milliseconds, pa.array(DAYS, pa.timestamp("us"))), TypeError, unit),
        (lambda: times(milliseconds, pa.array([1, 2])), TypeError, unit),
        (lambda: times(milliseconds, zones), TypeError, unit),
        (lambda: csv_times("2020-01-01", "2020-01-01 12:00:00"), TypeError, written),
        (lambda: vectors(pa.array([[True, False]])), TypeError, booleans),
        (lambda: vectors(pa.array([[5, 6, 7]])), ValueError, longer),
        (lambda: vectors(large), ValueError, "frame 1 can't be read as a table: .* out of range"),
        (lambda: nodes(tmp_path, *some_texts, label="y"), TypeError,
         r"1\.csv: y is string, but it is int64 in .*0\.csv"),
        (lambda: ids([7, 8], zeros), ValueError, "row 1: s is '007', but an integer id must be written without"),
        (lambda: ids(pa.array([True, False])), TypeError, r"id has .*, but an id must be an integer or a string"),
        (lambda: ids(pa.array(DAYS)), TypeError, r"id has .*, but an id must be an integer or a string"),
    ]  # fmt: skip
    check_refused(refused)
