"""Each query gives what plain Python gives for the same rows."""

import math
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from graphfeed.ingest.queries import columns, entries, files, numbers
from graphfeed.ingest.tables.arrow_types import arrow

TEXTS = ["0", "7", "007", "+7", "-3", "1e3", "1.5", "", "NA", "nan", "inf", "1e400", "x", "2020-01-31", None]
FLOATS = [0.0, 1.0, -1.5, 2.0**24 + 1, 1e39, math.inf, math.nan, None]
VECTORS = [[1.0, 2.0], [1.0], [1.0, None], [1.0, math.nan], [1e39, 1.0], None]
INTEGERS = [0, 1, 2, -1, 1 << 40, None]


@pytest.fixture
def connection() -> Iterator[Any]:
    with duckdb.connect() as opened:
        yield opened


def parsed(text: str | None) -> int | None:
    """Return the integer of a string in its canonical form."""
    return int(text) if text is not None and text.lstrip("-").isdigit() and str(int(text)) == text else None


def as_float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def is_missing(text: str | None) -> bool:
    return text is None or text in columns.MISSING_TEXTS


def narrow(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def is_rounded(value: float | None) -> bool:
    return value is not None and 2**24 <= abs(value) <= 2e19 and value == int(value) and narrow(value) != value


def filled(value: Any) -> Any:
    return 9.0 if value is None or math.isnan(value) else value


TYPES = arrow()
EXPRESSIONS: list[tuple[str, list[Any], Callable[[Any], Any]]] = [
    (columns.is_missing("v"), TEXTS, is_missing),
    (columns.is_integer("v"), TEXTS, lambda text: None if text is None else (parsed(text) is not None or None)),
    (columns.parse_texts("v", TYPES.float64()), TEXTS, as_float),
    (columns.parse_texts("v", TYPES.date32()), ["2020-01-31", "x", None], {"2020-01-31": 18292}.get),
    (columns.plain("v", TYPES.int64()), INTEGERS, lambda value: value),
    (columns.in_folder(["a", "b'"], "v"), [1, 0], ["a", "b'"].__getitem__),
    (numbers.integer_of_text("v"), TEXTS, parsed),
    (numbers.is_padded("v"), TEXTS, lambda text: text in ("007", "+7") if text is not None else None),
    (numbers.is_no_integer("v"), TEXTS, lambda text: not is_missing(text) and parsed(text) is None),
    (
        numbers.is_no_number("TRY_CAST(v AS DOUBLE)", "v"),
        TEXTS,
        lambda text: not is_missing(text) and as_float(text) is None,
    ),
    (numbers.lacks_number("v"), VECTORS, lambda vector: vector is None or None in vector),
    (numbers.is_any_number("v", "e > 1"), VECTORS[:2], lambda vector: max(vector) > 1),
    (
        numbers.is_infinite_in_float32("v", None),
        FLOATS[:-1],
        lambda value: math.isinf(narrow(value)) and not math.isinf(value),
    ),
    (numbers.is_infinite_in_float32("v::DOUBLE", "v"), ["1e400", "inf", "1.5"], lambda text: text == "1e400"),
    (numbers.is_rounded_in_float32("v", None), FLOATS, lambda value: is_rounded(value) or None),
    (
        numbers.is_no_weight("TRY_CAST(v AS FLOAT)"),
        FLOATS,
        lambda value: not (value is not None and 0 <= narrow(value) < math.inf),
    ),
    (numbers.fill_number("v", "DOUBLE", 9.0), FLOATS, filled),
    (numbers.fill_number("v", "BIGINT", 9), INTEGERS, lambda value: 9 if value is None else value),
    (numbers.fill_number("v", "BIGINT", None), INTEGERS, lambda value: value),
    (
        numbers.fill_vector("v", "DOUBLE", 2, 9.0),
        VECTORS,
        lambda vector: [9.0] * 2 if vector is None else [*map(filled, vector)],
    ),
    (numbers.is_one("v"), INTEGERS, lambda value: value == 1),
    (numbers.is_no_mask("v"), INTEGERS, lambda value: value not in (0, 1, None)),
    (numbers.is_between("v", 1, 3), INTEGERS, lambda value: value in (1, 2)),
    (numbers.is_between("v", None, 1), INTEGERS, lambda value: value in (0, -1)),
    (numbers.is_between("v", 1, None), INTEGERS, lambda value: value in (1, 2, 1 << 40)),
    (numbers.is_value("v", "1", None, None), TEXTS, lambda text: text == "1"),
    (numbers.is_value("v", "1.0", "v", 1.0), INTEGERS, lambda value: value == 1),
    (numbers.label_of_float("v"), [0.0, 5.0, math.nan], lambda value: -1 if math.isnan(value) else int(value)),
    (
        entries.first_broken(["v = 1", "v > 0"]),
        INTEGERS,
        lambda value: None if value is None or value <= 0 else int(value != 1),
    ),
    (entries.first_broken([]), INTEGERS, lambda _: None),
]


@pytest.mark.parametrize(("sql", "given", "reference"), EXPRESSIONS, ids=[sql[:40] for sql, *_ in EXPRESSIONS])
def test_an_expression_has_the_value_of_plain_python(
    sql: str, given: list[Any], reference: Callable[[Any], Any], connection: Any
) -> None:
    connection.register("rows", pa.table({"place": range(len(given)), "v": pa.array(given)}))
    found = [value for (value,) in connection.sql(f"SELECT {sql} FROM rows ORDER BY place").fetchall()]
    expected = [reference(value) for value in given]
    if any(isinstance(value, bool) for value in found):  # a condition that is NULL is not fulfilled
        found, expected = [*map(bool, found)], [*map(bool, expected)]
    assert repr(found) == repr(expected)


def test_types_of_strings_are_common_to_all(connection: Any) -> None:
    given = {
        "1 7": "int64",
        "1 1.5": "double",
        "1 x": "string",
        "2020-01-31": "date32[day]",
        "NA": "null",
        "true": "bool",
    }
    given |= {"2020-01-31 2020-01-31T10:11:12": "timestamp[s]", "10:11": "time32[s]"}
    for number, (texts, expected) in enumerate(given.items()):
        connection.register("one", pa.table({"file": [number] * len(texts.split()), "c0": texts.split()}))
        ((file, bits),) = connection.sql(entries.types_by_file("one", {"c0": "any"})).fetchall()
        assert (file, str(columns.type_of_texts(bits))) == (number, expected)
        ((first,),) = connection.sql(entries.types_of_first("one", [columns.types_of("c0", False)], 9)).fetchall()
        assert first == max(bits, 0)
    connection.register("several", pa.table({"file": [0] * 3, "c0": ["1", "x", "2.5"]}))
    for role, expected in {"any": "string", "number": "double", "integer": "int64", "id": "string"}.items():
        ((_, bits),) = connection.sql(entries.types_by_file("several", {"c0": role})).fetchall()
        assert str(columns.type_of_texts(bits)) == expected


def test_a_value_that_is_converted_strictly_has_one_form(connection: Any) -> None:
    types = {str(kind): kind for kind, *_ in columns.text_types()}

    def convert(text: str, kind: str, role: str) -> Any:
        return connection.sql(f"SELECT {columns.strictly(columns.literal(text), types[kind], role)}").fetchall()

    kinds: dict[str, dict[str, Any]] = {
        "int64": {"7": 7, "-3": -3},
        "double": {"1.50": 1.5, "16777217.0": 16777217.0, "7": 7.0, "-7": -7.0},
    }
    for kind, known in kinds.items():
        for text, value in known.items():
            assert convert(text, kind, "number") == [(value,)]
    refused = {"int64": ["007", "1.0", ""], "double": ["16777217", "x", "1e400"], "date32[day]": ["20200-01-01"]}
    refused["timestamp[s]"] = ["2020-01-31 10:11:12.5", "2020-01-31"]
    wrong = [(text, kind, "number") for kind, texts in refused.items() for text in texts]
    for text, kind, role in [*wrong, ("-7", "double", "weight")]:
        with pytest.raises(duckdb.Error, match="not "):
            convert(text, kind, role)


def test_rows_of_files_are_numbered_and_counted(connection: Any, tmp_path: Path) -> None:
    paths = [tmp_path / f"[{number}]'.parquet" for number in range(2)]
    for number, path in enumerate(paths):
        pyarrow.parquet.write_table(pa.table({"a": [number, number + 10], "b": ["x", "y"]}), path)
    rows = files.numbered_parquet_rows(paths, 2, {"c0": "c0 + 1"})
    first = 1 << files.FILE_ROWS
    expected = [(0, 0, 1), (1, 0, 11), (first, 1, 2), (first + 1, 1, 12)]
    assert connection.sql(f"FROM {rows} ORDER BY n").fetchall() == expected
    assert connection.sql(files.count_parquet_rows(paths)).fetchall() == [(4,)]
    assert connection.sql(entries.first_of_files(rows)).fetchall() == [(0, 0), (first, 1)]
    pyarrow.parquet.write_table(pa.table({"a": [1.5], "b": ["x"]}), paths[1])
    assert len({found for _, found in connection.sql(files.parquet_columns(paths)).fetchall()}) == 2


def test_lines_are_rows_and_lines_of_another_width_are_rejected(connection: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"x\ny"\n2\n3,z\n')
    connection.execute(entries.create_rows("kept", ["VARCHAR", "VARCHAR"]))
    connection.execute(entries.insert_rows("kept", "file_index + 4", ["c1", "c0"], files.text_lines([path], 2, ",", 1)))
    assert connection.sql(f"FROM {entries.number_rows('kept')}").fetchall() == [(0, 4, "x\ny", "1"), (1, 4, "z", "3")]
    ((_, kind, line, text, _),) = connection.sql(files.rejected_lines()).fetchall()
    assert (kind, line, text.strip()) == ("MISSING COLUMNS", 3, "2")
    connection.execute(files.NO_REJECTS)
    assert connection.sql(entries.count_by_file("kept", 4)).fetchall() == [(4, 2)]
    assert connection.sql(entries.count_by_file("kept", 5)).fetchall() == []
    path.write_text("a,b\n1,2020-01-31\n2,2020-02-01\n")
    assert connection.sql(files.typed_csv_rows(path, ",", 1, 1)).fetchall() == [(1, date(2020, 1, 31))]
    path.write_text('{"a": 1}\n{"a": 2, "b": 3}\n')
    assert connection.sql(f"FROM {files.json_rows(path, 2)}").fetchall() == [(1, None), (2, 3)]
    path.write_text("# 1 2\n1\t2 \n\n 3  4\n5\n")
    lines = files.edge_list_lines(path, ("#", "%"))
    assert connection.sql(f"FROM {files.edge_list_rows(lines, 2)}").fetchall() == [("1", "2"), ("3", "4")]
    assert connection.sql(files.count_edge_list_lines(lines, 2)).fetchall() == [(4, 1, "5", 1)]


def test_invalid_rows_are_found_named_and_left_out(connection: Any) -> None:
    values = [5, -1, 7, None, -2, 7]
    connection.register("given", pa.table({"n": [n * 2 for n in range(6)], "v": values, "p": [True] * 6}))
    connection.execute(entries.create_bad(entries.with_code(["v IS NULL", "v < 0"], "given")))
    assert connection.sql(entries.bad_numbers()).fetchall() == [(2,), (6,), (8,)]
    assert connection.sql(entries.first_bad(5)).fetchall() == [(1, 2, 2), (1, 8, 2)]
    assert connection.sql(entries.count_codes(entries.BAD, [0, 4, 8])).fetchall() == [(1, 2, 1), (0, 6, 1), (1, 8, 1)]
    assert sorted(connection.sql(entries.values_of_rows(["v"], "given", [2, 4])).fetchall()) == [(2, -1), (4, 7)]
    connection.execute(entries.create_rows("places", ["BIGINT"]))
    connection.execute("INSERT INTO places VALUES (0, 0), (0, 1)")
    connection.execute(entries.add_bad("places", 9, "given"))
    assert connection.sql(f"SELECT n, code FROM {entries.BAD} ORDER BY n").fetchall() == [
        (0, 9),
        (2, 1),
        (6, 0),
        (8, 1),
    ]
    assert connection.sql(entries.without_bad("given")).fetchall() == [(4, 7, True), (10, 7, True)]
    assert connection.sql(f"FROM {entries.unlabelled('given', 'p', 'n < 5')}").fetchall() == [(10, 0)]


def test_values_have_codes_in_ascending_order(connection: Any) -> None:
    values = ["b", None, "a", "b", "c"]
    connection.register("given", pa.table({"n": range(5), "v": values, "w": [[1], None, [2], [3], [4]]}))
    assert connection.sql(entries.distinct_values("v", "given", 2)).fetchall() == [("a",), ("b",)]
    connection.execute(entries.create_codes("kind", "v", "given"))
    found = connection.sql(f"SELECT {entries.code_of('kind', 'v', 9)} FROM given ORDER BY n").fetchall()
    assert [code for (code,) in found] == [sorted({"a", "b", "c"}).index(value) if value else 9 for value in values]
    assert connection.sql(entries.first_values("v", "given", 3)).fetchall() == [("b", 0), (None, 1), ("a", 2)]
    assert connection.sql(entries.is_any(["v = 'c'", "v = 'd'"], "given")).fetchall() == [(True, False)]
    assert connection.sql(entries.length_of_first("w", "given")).fetchall() == [(1,)]
    for floats, whole in {
        (1.0, math.nan): True,
        (1.0, 2.0): False,
        (1.5, math.nan): False,
        (-1.0, math.nan): False,
    }.items():
        connection.register("floats", pa.table({"v": floats}))
        assert connection.sql(entries.are_whole("v", "floats")).fetchall() == [(whole,)]


def test_nodes_have_distinct_ids(connection: Any) -> None:
    connection.register("given", pa.table({"n": range(5), "v": ["b", "a", "b", None, "b"]}))
    connection.execute(entries.create_repeated("v", "given"))
    repeated = connection.sql(f"SELECT n FROM given WHERE {entries.IS_REPEATED} ORDER BY n").fetchall()
    assert repeated == [(2,), (4,)]
    connection.execute(entries.create_distinct_ids("texts", [("v", "given"), ("v || 'c'", "given")]))
    assert connection.sql("FROM texts").fetchall() == [("a",), ("ac",), ("b",), ("bc",)]
    assert connection.sql(entries.describe_ids("texts")).fetchall() == [(True, False)]
    for number, (values, same) in enumerate({(0, 1, 2): True, (1, 0): False, (): True}.items()):
        connection.register("integers", pa.table({"v": pa.array(values, pa.int64())}))
        connection.execute(entries.create_column(f"ids{number}", "id", "v", "integers"))
        assert connection.sql(entries.describe_ids(f"ids{number}")).fetchall() == [(False, same)]
    assert connection.sql(f"FROM {entries.number_nodes(3)}").fetchall() == [(0,), (1,), (2,)]
    assert connection.sql(f"FROM {entries.same_times(7, 2)}").fetchall() == [(7,), (7,)]
    connection.execute(f"{entries.drop_rows('texts')}; {entries.drop_rows('texts')}")


def test_edges_keep_the_order_of_their_rows(connection: Any) -> None:
    names = ["b", "a", "x", "b"]
    connection.register("given", pa.table({"n": range(4), "v": names, "t": [3, 1, 9, 4]}))
    connection.register("found", pa.table({"id": ["a", "b"]}))
    connection.execute("CREATE TABLE ids AS FROM found")
    join = entries.join_ids("ids", "own", "v")
    columns_of = {"source": "own.rowid", "destination": "n", "time": "t", "in_graph": "n < 2"}
    code = entries.first_broken(["own.rowid IS NULL"])
    connection.execute(entries.create_edges("edges", columns_of | {"code": code}, "given", [join]))
    places = [{"a": 0, "b": 1}.get(name) for name in names]
    assert connection.sql("SELECT source FROM edges").fetchall() == [(place,) for place in places]
    connection.execute(entries.mark_earlier("edges", 1))  # the invalid row with the time 9 does not count
    assert connection.sql("SELECT code FROM edges").fetchall() == [(None,), (1,), (0,), (None,)]
    connection.execute(entries.create_bad("edges"))
    connection.execute(entries.drop_bad("edges"))
    assert connection.sql("SELECT n, source FROM edges").fetchall() == [(0, 1), (3, 1)]
    assert connection.sql(entries.count_edges("edges", "in_graph")).fetchall() == [(2, 1)]
    assert connection.sql(entries.count_all("edges")).fetchall() == [(2,)]
    turned = entries.edges_of_graph("edges", turned=True, some=True)
    assert connection.sql(entries.select(["row", "source", "destination"], turned)).fetchall() == [(0, 0, 1)]


def test_negatives_that_are_edges_are_drawn_again(connection: Any) -> None:
    connection.execute(
        "CREATE TABLE edges (source BIGINT, destination BIGINT); INSERT INTO edges VALUES (0, 1), (0, 2)"
    )
    connection.execute(entries.create_rows("links", ["BIGINT"] * 3))
    connection.execute("INSERT INTO links VALUES (0, 0, 0, 1), (0, 1, 0, 2), (0, 2, 0, 2), (0, 3, 0, 3)")
    connection.execute(entries.create_again("edges", 2, redrawn=False))
    assert connection.sql("FROM again").fetchall() == [(1,)]
    assert connection.sql(entries.FIRST_AGAIN).fetchall() == [(0, 1)]
    connection.execute(entries.create_rows("drawn", ["BIGINT"] * 2))
    connection.execute("INSERT INTO drawn VALUES (0, 1, 5)")
    connection.execute(entries.TAKE_DRAWN)
    connection.execute(entries.create_again("edges", 2, redrawn=True))
    assert connection.sql("FROM again").fetchall() == []
    assert connection.sql("SELECT c2 FROM links ORDER BY c0").fetchall() == [(1,), (5,), (2,), (3,)]
    connection.execute(entries.DROP_PAIRS)
