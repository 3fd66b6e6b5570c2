import numpy as np
import pytest
import torch

from graphfeed.ops import Key
from graphfeed.storage.memory.tensor_repr import LONGEST, indent_continuation, shape_text, shapes_repr, tensor_repr


def test_lines_after_the_first_are_indented() -> None:
    assert indent_continuation("a\nb\nc", 2) == "a\n  b\n  c"


def test_fields_stand_below_each_other() -> None:
    assert tensor_repr("Edge", {"source": 1, "to": torch.tensor([2])}) == "Edge(source=1,\n     to=tensor([2]),\n)"


def test_values_of_several_lines_are_aligned_where_they_begin() -> None:
    inner = tensor_repr("B", {"c": 1, "d": 2})
    assert tensor_repr("A", {"b": inner}) == "A(b=B(c=1,\n      d=2,\n    ),\n)"


def test_each_element_of_a_list_has_a_line() -> None:
    assert tensor_repr("A", {"b": [1, "x\ny"], "empty": []}) == "A(b=[1,\n     x\n     y],\n  empty=[],\n)"


def test_without_fields() -> None:
    assert tensor_repr("A", {}) == "A()"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(2, 3), "float32[2, 3]"),
        (torch.tensor(1), "int64[]"),
        (torch.empty(4, device="meta"), "float32[4] on meta"),
        (np.zeros(3, np.uint8), "uint8[3]"),
        ({("user", "feat"): torch.zeros(1)}, "{('user', 'feat'): float32[1]}"),
        ([1, (None, "a")], "[1, (None, 'a')]"),
        (Key(1, 2, 3), "Key(seed=1, epoch=2, index=3)"),
        ("a" * LONGEST, "str(...)"),
        ([0] * 10, "[0, 0, 0, 0, 0, 0, 0, 0, ... 2 more]"),
    ],
    ids=str,
)
def test_values_in_few_words(value: object, text: str) -> None:
    assert shape_text(value) == text


def test_the_text_of_somebody_elses_object_is_not_asked_for() -> None:
    class Slow:
        def __repr__(self) -> str:
            raise AssertionError("this may take long")

    assert shape_text([Slow()]) == "[Slow(...)]"


def test_what_is_too_long_for_a_line_has_a_line_per_element() -> None:
    text = shape_text({"a" * 60: torch.zeros(1), "b" * 60: [torch.zeros(1)]})
    assert text == f"{{\n  '{'a' * 60}': float32[1],\n  '{'b' * 60}': [float32[1]],\n}}"


def test_a_record_of_shapes_has_a_line_per_field() -> None:
    assert shapes_repr("A", {"b": torch.zeros(1), "c": 1}) == "A(\n  b=float32[1],\n  c=1,\n)"
    assert shapes_repr("A", {}) == "A()"
