from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ingest import FixedLenFeature
from graphfeed.ingest.tfrecord.example_schema import ExampleSchema, describe_example
from tests.tfrecords import entry, example, feature, field


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
