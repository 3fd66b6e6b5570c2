"""What is written to TFRecord files, and what examples say of their features."""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ingest import FixedLenFeature
from graphfeed.ingest import write_tfrecords as write
from graphfeed.ingest.tfrecord.example_schema import ExampleSchema, describe_example
from tests import tfrecords
from tests.tfrecords import entry, example, feature, field

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


def test_the_same_rows_make_the_same_compressed_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, COLUMNS, compression="gzip")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"a": torch.zeros(2, dtype=torch.float64)}, TypeError, r"columns\['a'\] must be integers, float32 or bytes"),
        ({"a": torch.zeros(2, 2, 2)}, ValueError, r"must have shape \(rows,\) or \(rows, k\), but has \(2, 2, 2\)"),
        ({"a": torch.zeros(2, dtype=torch.uint8)}, ValueError, r"must have shape \(rows, length\)"),
        ([1, 2], TypeError, r"columns must be a dict from name to values, but is \[1, 2\]"),
        ({"a": [1], 3: [1]}, TypeError, r"columns must have names that are text, but has \['a', 3\]"),
        ({"a": [1], "b": [1, 2]}, ValueError, "equally many rows, but have {'a': 1, 'b': 2}"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(
    tmp_path: Path, columns: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        write(tmp_path / "file", columns)
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_no_reader_would_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [len(tfrecords.example({"a": [b"x" * length]})) for length in (100, 101)]
    monkeypatch.setitem(write.__globals__, "BATCH_BYTES", 1)
    monkeypatch.setitem(write.__globals__, "MOST_RECORD_BYTES", sizes[0])
    write(tmp_path / "file", {"a": torch.zeros(3, 100, dtype=torch.uint8)})
    with pytest.raises(ValueError, match=f"a record may have {sizes[0]} bytes, but row 0 takes {sizes[1]}"):
        write(tmp_path / "larger", {"a": torch.zeros(3, 101, dtype=torch.uint8)})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_another_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="compression must be 'gzip' or None, but is 'zlib'"):
        write(tmp_path / "file", COLUMNS, compression="zlib")


def test_a_file_that_could_not_be_finished_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "file", {"a": [1]})
    before = (tmp_path / "file").read_bytes()

    def fail(*arguments: Any) -> torch.Tensor:
        raise OSError("no space left")

    monkeypatch.setitem(write.__globals__, "write_examples", fail)
    with pytest.raises(OSError, match="no space left"):
        write(tmp_path / "file", COLUMNS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == before


@pytest.mark.parametrize("packed", [True, False])
def test_a_record_says_what_its_features_are(packed: bool) -> None:
    content = example({"a": [1, -1, 300], "b": [1.0], "c": [b"xy", b"zw"], "d": [b""]}, packed)
    assert describe_example(content) == {
        "a": ("int64", 3, 8),
        "b": ("float", 1, 4),
        "c": ("bytes", 2, 2),
        "d": ("bytes", 1, 0),
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (example({"a": [b"x", b"yz"]}), "feature 'a' has strings of 1 to 2 bytes, which fit no tensor"),
        (field(1, entry("a", b"")), "feature 'a' has no list"),
        (field(1, entry("a", feature([1]) + feature([1.0]))), "feature 'a' has several lists"),
        (field(1, entry("a", feature([1])) * 2), "feature 'a' is there twice"),
        (example({"a": [1]})[:-1], "no tf.train.Example"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "no tf.train.Example"),
        (b"\x0b", "no tf.train.Example"),
    ],
)
def test_a_record_that_does_not_say_it_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        describe_example(content)


def test_features_that_are_not_asked_for_may_be_anything() -> None:
    schema = ExampleSchema(["a"])
    schema.settle(field(1, entry("a", feature([1])) + entry("b", feature([b"x", b"yz"])) + entry("c", b"") * 2))
    assert list(schema.columns or {}) == ["a"]


@pytest.mark.parametrize("name", ["int64", torch.int64, np.int64, np.dtype("int64"), SimpleNamespace(name="int64")])
def test_dtypes_are_known_by_whatever_names_them(name: Any) -> None:
    schema = ExampleSchema({"a": FixedLenFeature([2], name)})
    assert schema.given["a"].kind == "int64"
    assert schema.given["a"].row_shape == (2,)


def test_what_the_caller_says_is_kept_and_the_rest_is_taken_from_the_record() -> None:
    specs = {"a": FixedLenFeature([3, 1], "int64"), "c": FixedLenFeature([], "string")}
    schema = ExampleSchema(specs)
    schema.settle(example({"a": [1, 2, 3], "c": [b"wxyz"], "other": [1.0]}))
    assert schema.columns is not None
    assert {name: column.row_shape for name, column in schema.columns.items()} == {"a": (3, 1), "c": (4,)}


@pytest.mark.parametrize(
    ("features", "error", "text"),
    [
        ("id", TypeError, "features must be a list of names"),
        (3, TypeError, "features must be a list of names, or a dict of specs, but is 3"),
        ([1], TypeError, "features must have names that are text"),
        ({"a": SimpleNamespace(dtype="int64")}, TypeError, r"features\['a'\] must be a FixedLenFeature"),
        ({"a": FixedLenFeature([], "float64")}, ValueError, "int64, float32 or 'string', but is 'float64'"),
        ({"a": FixedLenFeature([-1], "int64")}, ValueError, "shape must be a list of whole numbers"),
        ({"a": FixedLenFeature([None], "int64")}, ValueError, "shape must be a list of whole numbers"),
        ({"a": FixedLenFeature([2], "int64", [1, 2, 3])}, ValueError, "one number, or have shape"),
        ({"a": FixedLenFeature([3, 2], "int64", [1, 2])}, ValueError, "one number, or have shape"),
        ({"a": FixedLenFeature([], "int64", 1.5)}, ValueError, "default_value must be an integer, .* but is 1.5"),
        ({"a": FixedLenFeature([2**62], "int64")}, ValueError, r"features\['a'\].shape must be that of the values of"),
        ({"a": FixedLenFeature([0, 2**62], "int64")}, ValueError, r"features\['a'\].shape must be that of the values"),
        ({"a": FixedLenFeature([], "string", 5)}, ValueError, "default_value must be bytes, but is 5"),
    ],
)  # fmt: skip
def test_what_is_no_spec_is_refused(features: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ExampleSchema(features)
