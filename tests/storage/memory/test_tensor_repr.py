import torch

from graphfeed.storage.memory.tensor_repr import indent_continuation, tensor_repr


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
