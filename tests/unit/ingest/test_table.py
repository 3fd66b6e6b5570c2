"""Tables of each format, intact and damaged."""

import csv
import dataclasses
import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset, read_tfrecords
from tests.kinds.example_tables import USERS, new_engine, rows_of, source, sources_of, write
from tests.kinds.refusals import Refusal, check_all_refused, check_refused


def test_arrays_are_tables_of_their_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "pairs.npy", np.array([[1, 2, 3], [4, 5, 6]]))
    assert rows_of(source(tmp_path / "pairs.npy", pairs=True), columns=["0", "1"])[1] == {"0": 2, "1": 5}
    assert rows_of(tmp_path / "pairs.npy", columns=["2"]) == [{"2": 3}, {"2": 6}]
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=np.array([7, 8]))
    assert rows_of(tmp_path / "a.npz", columns=["x", "y"])[1] == {"x": [0, 1], "y": 8}
    np.savez(tmp_path / "b.npz", x=np.eye(2), y=np.array([7]))
    with pytest.raises(ValueError, match=r"b\.npz can't be read as \.npz: its arrays must have the same number"):
        rows_of(tmp_path / "b.npz", columns=["0"])


def test_streams_of_arrow_are_read_too(tmp_path: Path) -> None:
    with pa.ipc.new_stream(tmp_path / "t.arrow", pa.table(USERS).schema) as file:
        file.write_table(pa.table(USERS))
    assert [row["name"] for row in rows_of(tmp_path / "t.arrow", columns=["name"])] == USERS["name"]


def test_csv_without_a_header_and_with_texts_that_look_missing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,null\n2,NA\n3,\n")
    assert rows_of(source(tmp_path / "t.csv", header=False), columns=["1"]) == [{"1": "null"}, {"1": "NA"}, {"1": None}]


def test_lines_with_the_wrong_number_of_values_are_named_or_told_of(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4,5\n6,7\n")
    with pytest.raises(ValueError, match=r"t\.csv can't be read as \.csv: row 1 has 3 values instead of 2: '3,4,5'"):
        rows_of(tmp_path / "t.csv", columns=["a"])
    told: list[Any] = []
    found = rows_of(tmp_path / "t.csv", columns=["a"], on_width=lambda table, *given: told.append(given))
    assert [row["a"] for row in found] == ["1", "6"]
    assert told == [(1, "row 1 has 3 values instead of 2: '3,4,5'")]


def test_a_quote_without_an_end_is_named(tmp_path: Path) -> None:
    for suffix in [".csv", ".ndjson"]:
        path = tmp_path / f"t{suffix}"
        path.write_text('a,b\n1,"y\n' + "1,y\n" * 600 if suffix == ".csv" else '{"a": 1, "b": "y}' + " " * 3000)
        with pytest.raises(ValueError, match=rf"t\{suffix} can't be read as \{suffix}: "):
            rows_of(path, columns=["a"])


def test_offsets_of_arrow_files_are_validated(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    table = pa.table({"a": pa.array(["ab", "cd", "ef"])})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    data = bytearray(path.read_bytes())
    place = data.find(np.array([0, 2, 4, 6], np.int32).tobytes())
    data[place + 4 : place + 8] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"t\.arrow can't be read as \.arrow"):
        rows_of(path, columns=["a"])


def test_patterns_stand_for_files_in_order(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.doc", "in/side/a.csv", "in/b[1].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    inside = {"in/*/*.csv": ["a.csv"], "i?/**/[ab]*.csv": ["b[1].csv", "a.csv"], "in/b[1].csv": ["b[1].csv"]}
    for pattern, names in inside.items():
        for path in (pattern, str(tmp_path / pattern)):
            found = sources_of(path, tmp_path)
            assert [Path(table.name).name for table in found] == names
    for pattern in ("*.csv", str(tmp_path / "*.csv")):
        found = sources_of(pattern, tmp_path)
        assert [Path(table.name).name for table in found] == ["a.csv", "b.csv"]
    with pytest.raises(FileNotFoundError, match=r"there is no file .*d\*\.csv"):
        sources_of("d*.csv", tmp_path)
    with pytest.raises(ValueError, match=r"c\.doc has no suffix of a known format"):
        sources_of("c.doc", tmp_path)


def test_files_of_a_pattern_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ["part.{}", "week={}/part", "{}", "2024-{}-1_x", "a{}/b{}"]:
        for suffix in (".parquet", ".arrow", ".csv.gz", ".jsonl.gz", ".npz"):
            folder = tmp_path / name
            paths = [folder / f"{name.format(number, number)}{suffix}" for number in (0, 1, 2, 9, 10, 11, 100)]
            for path in reversed(paths):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            assert [table.source for table in sources_of(f"**/*{suffix}", folder)] == paths


def test_a_folder_stands_for_its_parquet_files(tmp_path: Path) -> None:
    names = ["year=2/part.10.parquet", "year=2/part.9.parquet", "year=10/part.0.parquet", "b[1]/c.PQ"]
    others = ["_temporary/part.0.parquet", "_SUCCESS", ".part.0.parquet.crc", "notes.csv"]
    for name in [*names, *others]:
        path = tmp_path / "likes.parquet" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(write(tmp_path / "t.parquet", {"x": [1]}).read_bytes())
    (tmp_path / "t.parquet").unlink()
    wanted = [str(tmp_path / "likes.parquet" / name) for name in (names[3], *names[1::-1], names[2])]
    for place in ("likes.parquet", "likes.parquet/", str(tmp_path / "likes.parquet"), "*.parquet"):
        found = sources_of(place, tmp_path)
        assert [table.name for table in found] == wanted
    assert found[1].keys == {"year": "2"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty is a folder without Parquet files; write a pattern, such as e"):
        sources_of("empty", tmp_path)


def test_addresses_of_remote_storages_are_refused(tmp_path: Path) -> None:
    paths: list[Any] = ["s3://bucket/t.parquet", "gs://bucket/*.csv", Path("s3://bucket/t"), "https://a.b/c.csv"]
    edges = {"e": EdgeTable({"source": [0], "destination": [0]})}
    for call in (
        lambda path: build_dataset(Spec({"e": EdgeTable(path)})),
        lambda path: build_dataset(str(path)),
        lambda path: build_dataset(Spec(edges), path),
        lambda path: read_tfrecords(path),
        lambda path: read_tfrecords([tmp_path, path]),
    ):
        check_all_refused(call, paths, r"must be a path on this machine, but is '(s3|gs|https):/")


def test_an_error_while_lines_are_left_out_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,2\n3,4,5\n6,\xff\n")
    with pytest.raises(ValueError, match=r"t\.csv can't be read as \.csv: .*(?i:unicode|utf-?8)"):
        rows_of(tmp_path / "t.csv", columns=["b"], on_width=lambda *_: None)


def test_values_in_quotes_may_have_several_lines(tmp_path: Path) -> None:
    texts = [f"{'line' * (number % 7)}\n{number}" for number in range(50)]
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f'"{text}",{k}\n' for k, text in enumerate(texts)))
    found = rows_of(tmp_path / "t.csv", columns=["a", "b"])
    assert found == [{"a": text, "b": str(k)} for k, text in enumerate(texts)]


def test_rows_of_csv_are_those_that_python_reads(tmp_path: Path) -> None:
    for names_of_columns in ["a,b", '"a{}x",b', "a"]:
        for end in ["\n", "\r\n", "\r"]:
            header = names_of_columns.format(end)
            lines = ["1,2", '3,x"y', f'4,"5{end}{end}6"', "a,b"] if "," in header else ["1", "a"]
            with new_engine() as engine:
                for before, (middle, last) in product(
                    ("", "\ufeff", end * 2, f"\ufeff{end}"), (("", ""), (end, end * 2))
                ):
                    text = end.join([header, *lines[:1]]) + end + middle + end.join(lines[1:]) + last
                    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((before + text).encode()))
                    names, *rows = list(csv.reader(io.StringIO(text, newline="")))
                    wanted = [row or list[Any]([None]) for row in rows if row or len(names) == 1]
                    table = source(tmp_path / "t.csv.gz")
                    if before == "\ufeff" and header[0] == '"':  # the engine begins in the middle of the header
                        with pytest.raises(ValueError, match=r"t\.csv\.gz can't be read as \.csv: the engine read "):
                            rows_of(table, columns=names, engine=engine)
                    else:
                        assert [list(row.values()) for row in rows_of(table, columns=names, engine=engine)] == wanted
                (tmp_path / "t.csv").write_text(end + header)
                assert rows_of(tmp_path / "t.csv", columns=names, engine=engine) == []


def test_lines_that_end_in_several_ways_are_read_or_named(tmp_path: Path) -> None:
    for ends in list(product(["\n", "\r\n", "\r"], repeat=3)):
        for value in ("2", '"2"', '"2\n"'):
            (tmp_path / "t.csv").write_bytes("a,b{}1,{}{}3,4{}".format(ends[0], value, *ends[1:]).encode())
            try:
                found = [list(row.values()) for row in rows_of(tmp_path / "t.csv", columns=["a", "b"])]
            except ValueError as error:
                row = next(row for row, end in enumerate(ends) if end != ends[0])
                found, line = [], f"line {row + 1 + value.count(chr(10))} ends with"
                named = f"t.csv can't be read as .csv: {line}" in str(error)
            assert named if not found else found == [["1", value.strip('"')], ["3", "4"]]


def test_a_line_that_is_too_long_for_the_engine_is_an_error(tmp_path: Path) -> None:
    for suffix in [".csv", ".txt", ".ndjson"]:
        for quote in ["", '"']:
            value = b"x" * (70 << 20)
            texts = {
                ".csv": b"a,b\n1,2\n3,%s\n5,6\n",
                ".txt": b"1 2\n3 %s\n5 6\n",
                ".ndjson": b'{"a": 1}\n{"a": "%s"}\n',
            }
            path = tmp_path / f"t{suffix}"
            path.write_bytes(texts[suffix] % (quote.encode() + value + quote.encode()))
            with pytest.raises(ValueError, match=rf"t\{suffix} can't be read as \{suffix}: "):
                rows_of(path, columns=["0" if suffix == ".txt" else "a"])


def test_each_file_may_have_another_beginning_and_wrong_rows(tmp_path: Path) -> None:
    texts = {
        "one.csv": "a,b\n1,2\n3\n4,5\n",
        "two.csv": "\n\na,b\n6,7\n\n8\n",
        "none.csv": "a,b\n",
        "more.csv": "a,b\n9,9\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    tables = [tmp_path / name for name in ("one.csv", "none.csv", "one.csv", "two.csv", "more.csv")]
    told = list[Any]()
    found = rows_of(*tables, columns=["a"], on_width=lambda table, count, _: told.append((table.name, count)))
    assert [row["a"] for row in found] == ["1", "4", "1", "4", "6", "9"]
    assert told == [(str(tmp_path / name), 1) for name in ("one.csv", "one.csv", "two.csv")]


EARLY: list[dict[str, Any]] = [{"id": number, "f": None} for number in range(50)]


def write_json(folder: Path, *late: Any) -> Any:
    path = folder / "t.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*EARLY, *late]))
    return source(path)


def test_a_value_may_come_late(tmp_path: Path) -> None:
    cases: list[Any] = [(3, pa.int64()), (1.5, pa.float64()), ("a", pa.string()), ([1], pa.list_(pa.int64()))]
    for late, kind in cases:
        table = write_json(tmp_path, {"id": 50, "f": late}, {"id": 51, "late": late})
        assert [table.type_of(name) for name in ("id", "f", "late")] == [pa.int64(), kind, kind]
        found = rows_of(table, columns=["late", "f"])
        assert found[-2:] == [{"late": None, "f": late}, {"late": late, "f": None}]
        assert len(found) == 52


def test_integers_and_floats_have_a_common_type_also_in_lists(tmp_path: Path) -> None:
    table = write_json(tmp_path, *[{"a": 1, "b": [1]}] * 50, {"a": 1.5, "b": [1.5]})
    assert rows_of(table, columns=["a", "b"])[-2:] == [{"a": 1.0, "b": [1.0]}, {"a": 1.5, "b": [1.5]}]


def test_a_column_that_nothing_reads_may_hold_anything(tmp_path: Path) -> None:
    pairs: list[Any] = [(1, "a"), ([1], 1), ({"x": 1}, {"x": "a"}), (True, 1), ([1], ["a"])]
    for between, (one, other) in product((0, 50), pairs):
        table = write_json(tmp_path, {"id": 50, "z": one}, *[{"id": 51}] * between, {"id": 52, "z": other})
        assert [row["id"] for row in rows_of(table, columns=["id"])] == [*range(50), 50, *[51] * between, 52]
        with pytest.raises((TypeError, ValueError), match=r"t\.ndjson.* z "):
            build_dataset(Spec({"e": EdgeTable(table.source, source="id", destination="id", features={"z": "z"})}))


def test_what_is_no_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    for text, message in (('{"id": 1}\n{"id": \n', "Malformed JSON"), (" \n", "it has no lines")):
        path.write_text(text)
        with pytest.raises(ValueError, match=rf"t\.ndjson can't be read as \.ndjson: .*{message}"):
            rows_of(path, columns=["id"])


SNAP = "# Directed graph: 4 nodes\n# FromNodeId\tToNodeId\n0\t1\n0\t2\n3\t1\n"


def test_a_list_of_edges_of_snap_is_a_table(tmp_path: Path) -> None:
    for name, between in (("e.txt", "\t"), ("e.edges", " "), ("e.edgelist", "  \t "), ("e.txt.gz", " ")):
        text = SNAP.replace("\t", between).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        spec = Spec({"e": EdgeTable(name, source="0", destination="1")}, folder=tmp_path)
        graph = build_dataset(spec).graph
        assert graph is not None
        assert graph.csc_indptr.tolist() == [0, 0, 2, 3, 3], name
        assert graph.indices.tolist() == [0, 3, 0], name


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """Start the engine once, for all examples."""
    with new_engine() as engine:
        yield engine


@given(
    rows=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.sampled_from(["", "\r"])), min_size=1),
    blanks=st.sampled_from([" ", "\t", "  ", " \t\t"]),
    outside=st.sampled_from(["", " ", "\t "]),
    comment=st.sampled_from(["", "# a b\n", "% c\td\n", "\n"]),
)
def test_blanks_comments_and_empty_lines_of_lists_of_edges_do_not_matter(
    engine: Any, rows: list[tuple[int, int, str]], blanks: str, outside: str, comment: str
) -> None:
    text = "".join(f"{comment}{outside}{one}{blanks}{other}{outside}{end}\n" for one, other, end in rows)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "e.txt").write_text(text, newline="")
        found = rows_of(Path(folder) / "e.txt", columns=["0", "1"], engine=engine)
    assert found == [{"0": str(one), "1": str(other)} for one, other, _ in rows]


def test_what_is_no_table_or_has_no_such_column_is_refused(tmp_path: Path) -> None:
    table = source(write(tmp_path / "t.parquet", USERS))
    (tmp_path / "two.csv").write_text("a,a\n1,2\n")
    (tmp_path / "t.parquet.gz").touch()
    np.save(tmp_path / "deep.npy", np.zeros((2, 2, 2)))
    flat = {"source": np.arange(2), "destination": np.zeros((2, 0))}
    known = "no suffix of a known format"
    no_table: Any = EdgeTable(3)
    refused: list[Refusal] = [
        (lambda: rows_of(table, columns=["nam"]), ValueError,
         r"t\.parquet has no column 'nam'; it has \['name', 'age', 'split'\]"),
        (lambda: source(tmp_path / "two.csv").names, ValueError, r"two\.csv has two columns 'a'; rename one"),
        (lambda: build_dataset(Spec({"e": EdgeTable("t.parquet.gz")}, folder=tmp_path)), ValueError, known),
        (lambda: build_dataset(Spec({"e": no_table})), TypeError,
         "a table must be a path, a data frame, an Arrow table"),
        (lambda: source(tmp_path / "deep.npy").schema, ValueError,
         "it must have one or two dimensions, but has shape"),
        (lambda: build_dataset(Spec({"e": EdgeTable(flat)})), ValueError, r"an array of shape \(2, 0\) can't be a col"),
    ]  # fmt: skip
    check_refused(refused)


def test_keys_of_folders_are_columns(tmp_path: Path) -> None:
    for suffix in [".parquet", ".csv", ".csv.gz", ".ndjson", ".arrow", ".npz", ".tfrecord", ".txt"]:
        folders = ["day=2020-01-02/kind=it's", "day=2020-01-01/kind=b", "day=2020-01-01/kind=it's"]
        for number, folder in enumerate(folders):
            (tmp_path / folder / "n=7").mkdir(parents=True, exist_ok=True)
            path = tmp_path / folder / "n=7" / f"x{suffix}"
            columns = {"s": [number, number], "d": [0, 1]}
            path.write_text(f"{number} 0\n{number} 1\n") if suffix == ".txt" else write(path, columns)
        source, destination = ("0", "1") if suffix == ".txt" else ("s", "d")
        split = Split("kind", train="b", test="it's")
        edges = EdgeTable(f"day=*/**/x{suffix}", source=source, destination=destination, time="day", label="kind")
        dataset = build_dataset(
            Spec({"e": dataclasses.replace(edges, features={"n": "n"}, split=split)}, {"n": NodeTable(count=3)},
                 folder=tmp_path)
        )  # fmt: skip
        assert dataset.yaml_data["time_unit"] == "day"
        (task,) = dataset.tasks
        assert task.metadata["class_names"] == ["b", "it's"]
        items: Any = task.train_set
        assert items.names == ("seeds", "timestamp", "labels", "seed_edge_ids")
        found = [member.tolist() for member in items[:]]
        assert found == [[[1, 0], [1, 1]], [18262] * 2, [0, 0], [0, 1]]
        assert dataset.feature.read("edge", None, "n").flatten().tolist() == [7] * 6
        assert sorted(dataset.graph.edge_attributes["time"].tolist()) == [18262] * 4 + [18263] * 2


def test_a_column_of_a_file_goes_before_a_key_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "w=5").mkdir()
    write(tmp_path / "w=5" / "e.parquet", {"s": [0], "d": [1], "w": [2.0]})
    spec = Spec({"e": EdgeTable("w=5/e.parquet", source="s", destination="d", weight="w")}, folder=tmp_path)
    assert build_dataset(spec).graph.edge_attributes["weight"].tolist() == [2]
