"""Contents of written TFRecord files, and descriptions of the features of examples."""

import gzip
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ingest import FixedLenFeature, read_tfrecords
from graphfeed.ingest import write_tfrecords as write
from tests.kinds import tfrecords
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.tfrecords import entry, example, feature, field

COLUMNS = {
    "id": torch.tensor([5, -1, 2**40]),
    "pair": np.array([[1, 2], [3, 4], [5, 6]], dtype=np.int32),
    "half": torch.tensor([0.5, 1.0, 2.0], dtype=torch.float16),
    "flag": torch.tensor([True, False, True]),
    "name": torch.tensor([list(b"ab"), list(b"cd"), list(b"ef")], dtype=torch.uint8),
}
ROWS: list[tfrecords.Example] = [
    {"id": [5], "pair": [1, 2], "half": [0.5], "flag": [1], "name": [b"ab"]},
    {"id": [-1], "pair": [3, 4], "half": [1.0], "flag": [0], "name": [b"cd"]},
    {"id": [2**40], "pair": [5, 6], "half": [2.0], "flag": [1], "name": [b"ef"]},
]


def test_the_file_is_that_of_the_format(tmp_path: Path) -> None:
    write(tmp_path / "plain", COLUMNS)
    write(tmp_path / "packed", COLUMNS, compression="GZIP")
    wanted = b"".join(tfrecords.record(tfrecords.example(row)) for row in ROWS)
    assert (tmp_path / "plain").read_bytes() == wanted
    assert gzip.decompress((tmp_path / "packed").read_bytes()) == wanted


def test_integers_floats_and_bytes_of_any_size_are_written_as_the_format_has_them(tmp_path: Path) -> None:
    for count in [0, 1, 2, 13]:
        integers = [0, 1, 127, 128, 2**14 - 1, 2**14, 2**35, 2**63 - 1, -1, -(2**63)]
        rows: list[tfrecords.Example] = [
            {
                "a": [integers[(row + place) % len(integers)] for place in range(count)],
                "b" * 150: [float(row)] * count,
                "": [b"x" * 200] * count,
            }
            for row in range(12)
        ]
        columns = {
            "a": torch.tensor([row["a"] for row in rows], dtype=torch.int64),
            "b" * 150: torch.tensor([row["b" * 150] for row in rows], dtype=torch.float32),
            "": torch.full((12, count, 200), ord("x"), dtype=torch.uint8),
        }
        write(tmp_path / "file", columns)
        if count:
            assert (tmp_path / "file").read_bytes() == b"".join(map(tfrecords.record, map(tfrecords.example, rows)))
        found = read_tfrecords(tmp_path / "file")
        assert {name: values.shape[1:].numel() for name, values in found.items()}[""] == 200 * count
        assert found["a"].flatten().tolist() == columns["a"].flatten().tolist()


def test_the_same_rows_make_the_same_compressed_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, COLUMNS, compression="gzip")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_what_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    def writing(columns: Any, **options: Any) -> Any:
        return write(tmp_path / "file", columns, **options)

    refused: list[Refusal] = [
        (lambda: writing({"a": torch.zeros(2, dtype=torch.float64)}), TypeError,
         r"columns\['a'\] must be integers, float32 or bytes"),
        (lambda: writing({"a": torch.zeros(2, 2, 2)}), ValueError,
         r"must have shape \(rows,\) or \(rows, k\), but has \(2, 2, 2\)"),
        (lambda: writing({"a": torch.zeros(2, dtype=torch.uint8)}), ValueError, r"must have shape \(rows, length\)"),
        (lambda: writing([1, 2]), TypeError, r"columns must be a dict, but is \[1, 2\]"),
        (lambda: writing({"a": [1], 3: [1]}), TypeError, r"columns must have .* strings, but has \['a', 3\]"),
        (lambda: writing({"a": [1], "b": [1, 2]}), ValueError, "the same number of rows, but have {'a': 1, 'b': 2}"),
        (lambda: writing(COLUMNS, compression="zlib"), ValueError, "must be 'gzip' or None, but is 'zlib'"),
    ]  # fmt: skip
    check_refused(refused)
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_no_reader_would_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [len(tfrecords.example({"a": [b"x" * length]})) for length in (100, 101)]
    monkeypatch.setitem(inspect.unwrap(write).__globals__, "MOST_RECORD_BYTES", sizes[0])
    write(tmp_path / "file", {"a": torch.zeros(3, 100, dtype=torch.uint8)})
    with pytest.raises(ValueError, match=f"a record may have {sizes[0]} bytes, but row 0 takes {sizes[1]}"):
        write(tmp_path / "larger", {"a": torch.zeros(3, 101, dtype=torch.uint8)})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_record_says_what_its_features_are(tmp_path: Path) -> None:
    wanted = {"a": (torch.int64, (1, 3)), "b": (torch.float32, (1,)), "c": (torch.uint8, (1, 2, 2))}
    for packed in (True, False):
        path = tfrecords.write(
            tmp_path / "file", [example({"a": [1, -1, 300], "b": [1.0], "c": [b"xy", b"zw"]}, packed)]
        )
        assert {name: (own.dtype, own.shape) for name, own in read_tfrecords(path).items()} == wanted, packed


def test_a_record_that_does_not_say_it_is_refused_if_it_is_asked_for(tmp_path: Path) -> None:
    cases = {
        "feature 'a' has strings of 1 to 2 bytes, which don't fit a tensor": example({"a": [b"x", b"yz"]}),
        "feature 'a' has no list": field(1, entry("a", b"")),
        "feature 'a' has several lists": field(1, entry("a", feature([1]) + feature([1.0]))),
        "feature 'a' occurs twice": field(1, entry("a", feature([1])) * 2),
        "not a tf.train.Example": example({"a": [1]})[:-1],
        "not a tf.train.Exampl": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        "not a tf.train.Examp": b"\x0b",
    }
    for words, content in cases.items():
        path = tfrecords.write(tmp_path / "file", [content])
        check_refused([(lambda path=path: read_tfrecords(path), ValueError, words)])  # type: ignore[misc]
    others = field(1, entry("a", feature([1])) + entry("b", feature([b"x", b"yz"])) + entry("c", b"") * 2)
    assert list(read_tfrecords(tfrecords.write(tmp_path / "file", [others]), ["a"])) == ["a"]


def test_dtypes_are_known_by_whatever_names_them(tmp_path: Path) -> None:
    write(tmp_path / "file", COLUMNS)
    for name in ("int64", torch.int64, np.int64, np.dtype("int64"), SimpleNamespace(name="int64")):
        given: Any = name
        found = read_tfrecords(tmp_path / "file", {"pair": FixedLenFeature([2], given)})
        assert found["pair"].tolist() == [[1, 2], [3, 4], [5, 6]], name


def test_what_is_no_spec_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "file", {"a": [1]})

    def reading(features: Any) -> Any:
        return read_tfrecords(tmp_path / "file", features)

    refused: list[Refusal] = [
        (lambda: reading("id"), TypeError, "features must be a list of names"),
        (lambda: reading(3), TypeError, "features must be a list or a dict, but is 3"),
        (lambda: reading([1]), TypeError, "features must have names that are strings"),
        (lambda: reading({"a": SimpleNamespace(dtype="int64")}), TypeError,
         r"features\['a'\] must be a FixedLenFeature"),
        (lambda: reading({"a": FixedLenFeature([], "float64")}), ValueError,
         "int64, float32 or 'string', but is 'float64'"),
        (lambda: reading({"a": FixedLenFeature([-1], "int64")}), ValueError, "shape must be a list of integers"),
        (lambda: reading({"a": FixedLenFeature([None], "int64")}), ValueError, "shape must be a list of integers"),
        (lambda: reading({"a": FixedLenFeature([2], "int64", [1, 2, 3])}), ValueError, "one number, or have shape"),
        (lambda: reading({"a": FixedLenFeature([3, 2], "int64", [1, 2])}), ValueError, "one number, or have shape"),
        (lambda: reading({"a": FixedLenFeature([], "int64", 1.5)}), ValueError,
         "default_value must be an integer for dtype int64, but is 1.5"),
        (lambda: reading({"a": FixedLenFeature([2**62], "int64")}), ValueError,
         r"features\['a'\].shape must be that of the values of"),
        (lambda: reading({"a": FixedLenFeature([0, 2**62], "int64")}), ValueError,
         r"features\['a'\].shape must be that of the values"),
        (lambda: reading({"a": FixedLenFeature([], "string", 5)}), ValueError, "default_value must be bytes, but is 5"),
    ]  # fmt: skip
    check_refused(refused)
