"""Messages show any value in short."""

import time
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.arguments import brief
from graphfeed.ops.arguments.texts import LONGEST
from tests.ops.arguments.test_tensors import Slow


class Untold:
    """Something whose text fails."""

    def __repr__(self) -> str:
        raise ArithmeticError("asked for its text")


class Texted(torch.Tensor):
    """A tensor with a text of its own."""

    def __repr__(self) -> str:  # type: ignore[override]
        raise ArithmeticError("asked for its text")


def nested(levels: int) -> Any:
    """Return a list that has 9 ** levels leaves and takes no memory, as aliases in YAML make it."""
    bomb: Any = "lol"
    for _ in range(levels):
        bomb = [bomb] * 9
    return bomb


SHOWN = [
    (None, "None"),
    (True, "True"),
    (1.5, "1.5"),
    (np.int64(3), "3"),
    ("abc", "'abc'"),
    ([1, 2], "[1, 2]"),
    ((1,), "(1,)"),
    ({"a:b:c": 2}, "{'a:b:c': 2}"),
    (MappingProxyType({"a": 2}), "{'a': 2}"),
    (list(range(9)), "[0, 1, 2, 3, ... 9 in all]"),
    ([[[1]]], "[[[... 1 in all]]]"),
    (torch.tensor([1, 2]), "tensor([1, 2])"),
    (torch.zeros(5, 2), "a Tensor of shape (5, 2) and torch.float32"),
    (np.zeros(5), "a ndarray of shape (5,) and float64"),
    (10**5000, "an integer of 16610 bits"),
    (np.array([Untold()]), "a ndarray of shape (1,) and object"),
    (
        np.array([(Untold(), 1)], dtype=[("a", "O"), ("b", int)]),
        "a ndarray of shape (1,) and [('a', 'O'), ('b', '<i8')]",
    ),
    (torch.zeros(2).as_subclass(Texted), "a Texted of shape (2,) and torch.float32"),
    (Slow(), "a Slow"),
    ([Slow()], "[a Slow]"),
    (len, "len"),
    (Slow, "Slow"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[text for _, text in SHOWN])
def test_a_value_is_shown_in_short(value: Any, text: str) -> None:
    assert brief(value).replace("np.int64(3)", "3") == text


@pytest.mark.parametrize(
    "value",
    [nested(40), "a" * 10**6, b"a" * 10**6, {"a" * 1000: nested(9)}, torch.zeros(10**6), [torch.zeros(10**6)] * 10**6],
    ids=["nested", "text", "bytes", "dict", "tensor", "tensors"],
)
def test_the_text_of_anything_is_short_and_takes_no_time(value: Any) -> None:
    start = time.thread_time()
    assert len(brief(value)) <= LONGEST + len("...")
    assert time.thread_time() - start < 0.5
