"""TFRecord files as tables of their features."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset, guess_spec
from tests.kinds import tfrecords
from tests.kinds.example_tables import edges_of, rows_of, sources_of

ROWS: list[tfrecords.Example] = [
    {"name": [f"node {k}".encode()], "x": [k / 2, 1.0], "k": [k], "tags": [b"a", b"bc"]} for k in range(8, 13)
]


def rows(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    return rows_of(path, columns=columns)


def test_columns_are_numbers_vectors_and_texts_of_any_length(tmp_path: Path) -> None:
    path = tfrecords.write(tmp_path / "t.tfrecord", ROWS)
    assert rows(path, ["k", "name", "x"]) == [{"k": k, "name": f"node {k}", "x": [k / 2, 1.0]} for k in range(8, 13)]
    assert rows(path, ["name"])[-1] == {"name": "node 12"}


def test_what_is_wrong_with_a_record_is_told_with_file_record_and_byte(tmp_path: Path) -> None:
    wrong: list[tuple[tfrecords.Example, str]] = [
        ({"name": [b"a"], "k": [1, 2]}, "feature 'k' has 2 values, and not 1"),
        ({"name": [b"a"], "k": [0.5]}, "feature 'k' is a list of float, and not of int64"),
        ({"name": [b"a"]}, "feature 'k' is missing"),
        ({"k": [1]}, "feature 'name' is missing"),
        ({"k": [1], "name": [7]}, "feature 'name' is a list of int64, and not of bytes"),
        ({"k": [1], "name": [b"a", b"b"]}, "feature 'name' has 2 values, and not 1"),
        ({"k": [1], "name": [b"\xa9"]}, "feature 'name' is not a string in UTF-8"),
        ({"k": [1], "name": [b"\xff"]}, "feature 'name' is not a string in UTF-8: b'\\\\xff'"),
    ]  # fmt: skip
    start = sum(len(tfrecords.record(tfrecords.example(own))) for own in ROWS[:3])
    for (row, text), suffix in product(wrong, (".tfrecord", ".tfrecord.gz")):
        path = tfrecords.write(tmp_path / f"t{suffix}", [*ROWS[:3], row])
        whole = r"t\.tfrecord\S* can't be read as \.tfrecord: record 3, at byte \d+.*: " + text
        with pytest.raises(ValueError, match=whole) as error:
            rows(path, ["k", "name"])
        byte = int(re.findall(r"at byte (\d+)", str(error.value))[0])
        assert start < byte <= start + len(tfrecords.record(tfrecords.example(row)))


def test_texts_of_any_length_are_copied_as_they_are(tmp_path: Path) -> None:
    for size in (0, 1, 63, 64, 65, 128, 129, 256, 257, 5000):
        texts = ["", "ä" * size, "x", "b" * size, "", f"{size}é"]
        path = tfrecords.write(tmp_path / "t.tfrecord", [{"name": [text.encode()]} for text in texts])
        assert [row["name"] for row in rows(path, ["name"])] == texts, size


def test_a_file_that_is_damaged_is_told_with_record_and_byte(tmp_path: Path) -> None:
    path = tfrecords.write(tmp_path / "t.tfrecord", ROWS)
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"t\.tfrecord can't be read as \.tfrecord: record 4, at byte \d+: .*checksum"):
        rows(path, ["k"])
    tfrecords.write(path, [b"\x0a\xff"])
    with pytest.raises(ValueError, match=r"t\.tfrecord.*: record 0, at byte \d+: the content is no(t a)? tf\.train"):
        rows(path, ["name"])
    with pytest.raises(ValueError, match=r"t\.tfrecord has no column 'tags'; it has \['name', 'x', 'k'\]"):
        rows(tfrecords.write(path, ROWS), ["tags"])


def test_shards_without_records_are_left_out_unless_all_are(tmp_path: Path) -> None:
    names = [f"likes.tfrecord-{number:05}-of-00003{'.gz' * (number == 1)}" for number in range(3)]
    parts: list[list[tfrecords.Example]] = [[], [], [{"user": [b"ann"], "item": [5]}]]
    for name, part in zip(names, parts, strict=True):
        tfrecords.write(tmp_path / name, part)
    found = sources_of("likes.tfrecord-*", tmp_path)
    assert [Path(source.name).name for source in found] == names[2:]
    edges = EdgeTable("likes.tfrecord-*", source="user", destination="item")
    dataset = build_dataset(Spec({"user:likes:item": edges}, folder=tmp_path))
    assert edges_of(dataset, "user:likes:item") == [("ann", 5)]
    (tmp_path / names[2]).write_bytes(b"")
    with pytest.raises(ValueError, match=r"-00000-of-00003 can't be read as \.tfrecord: it has no records, so"):
        build_dataset(Spec({"user:likes:item": edges}, folder=tmp_path))


def test_vectors_labels_and_splits_come_from_tfrecords(tmp_path: Path) -> None:
    names, classes = [b"c", b"a", b"b"], [b"long", b"x", b"long"]
    nodes: list[tfrecords.Example] = [
        {"id": [name], "feat": [k / 4, 2.0], "y": [label], "part": [k]}
        for k, (name, label) in enumerate(zip(names, classes, strict=True))
    ]
    tfrecords.write(tmp_path / "nodes.tfrecord", nodes)
    tfrecords.write(tmp_path / "edges.tfrecord.gz", [{"source": [b"a"], "destination": [b"c"]}])
    spec, _ = guess_spec([tmp_path / "nodes.tfrecord", tmp_path / "edges.tfrecord.gz"])
    part = Split("part", train="0", validation="1", test="2")
    wanted = NodeTable(str(tmp_path / "nodes.tfrecord"), id="id", features={"feat": "feat"}, label="y")
    assert spec.nodes["node"] == replace(wanted, split=None, features={"feat": ("feat", "part")})
    dataset = build_dataset(replace(spec, nodes={"node": replace(wanted, split=part)}))
    assert dataset.feature.read("node", None, "feat").tolist() == [[0, 2], [0.25, 2], [0.5, 2]]
    task: Any = dataset.tasks[0]
    assert [[value.tolist() for value in items[:]] for items in (task.train_set, task.test_set)] == [
        [[0], [0]],
        [[2], [0]],
    ]
    assert task.metadata["class_names"] == ["long", "x"]
