"""Array-likes become tensors without a copy where none is needed, and messages show any value in short."""

import time
import warnings
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import as_ids, as_tensor, brief, is_read_only
from graphfeed.ops.arguments.texts import LONGEST


class Column:
    """Behaves like a data frame's column for NumPy."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.values


class Slow:
    """Something whose text takes long and fails."""

    def __repr__(self) -> str:
        raise RuntimeError("asked for its text")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"asked for {name}")


def test_tensors_arrays_and_columns_share_their_memory() -> None:
    tensor = torch.arange(3).t()
    assert as_tensor("ids", tensor) is tensor
    for dtype in ("bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"):
        array = np.zeros((4, 2), dtype=dtype)
        for given in (array, Column(array), array[::2], array.T):
            as_tensor("rows", given)[0] = 1
            assert array[0, 0] == 1, dtype
            array[:] = 0


def test_a_read_only_array_is_shared_without_a_warning() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = as_tensor("ids", Column(array))
    assert tensor.data_ptr() == array.ctypes.data
    assert (is_read_only(Column(array)), is_read_only(array.copy()), is_read_only(tensor)) == (True, False, False)
    del array
    assert tensor.tolist() == [0, 1, 2]


def test_lists_and_unusual_arrays_are_copied() -> None:
    cases: list[tuple[Any, Any, torch.dtype]] = [
        ([1, 2], [1, 2], torch.int64),
        ([[1], [2]], [[1], [2]], torch.int64),
        ([], [], torch.int64),
        (range(6, 0, -2), [6, 4, 2], torch.int64),
        (np.arange(3)[::-1], [2, 1, 0], torch.int64),
        (np.array([1, 2], dtype=">i4"), [1, 2], torch.int32),
        (np.int32(3), 3, torch.int32),
    ]
    for given, values, dtype in cases:
        tensor = as_tensor("ids", given)
        assert (tensor.tolist(), tensor.dtype) == (values, dtype), given


def test_ids_are_int64_where_it_can_hold_them() -> None:
    assert as_ids("ids", torch.tensor([])).dtype == torch.int64
    assert as_ids("ids", torch.tensor([], dtype=torch.int32)).dtype == torch.int32
    assert as_ids("ids", torch.tensor([1.0])).dtype == torch.float32
    for shape in ((2, 1), ()):
        largest = np.full(shape, 2**63 - 1, dtype=np.uint64)
        for given in (np.asarray(largest), torch.from_numpy(largest)):
            assert torch.equal(as_ids("seeds", given), torch.full(shape, 2**63 - 1))


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


SHOWN: list[tuple[Any, str]] = [
    (np.int64(3), "3"),
    ("abc", "'abc'"),
    ({"a:b:c": 2}, "{'a:b:c': 2}"),
    (MappingProxyType({"a": 2}), "{'a': 2}"),
    (list(range(9)), "[0, 1, 2, 3, ... 9 in all]"),
    ([[[1]]], "[[[... 1 in all]]]"),
    (torch.tensor([1, 2]), "tensor([1, 2])"),
    (torch.zeros(5, 2), "a Tensor of shape (5, 2) and torch.float32"),
    (10**5000, "an integer of 16610 bits"),
    (np.array([Untold()]), "a ndarray of shape (1,) and object"),
    (torch.zeros(2).as_subclass(Texted), "a Texted of shape (2,) and torch.float32"),
    (Slow(), "a Slow"),
    ([Slow()], "[a Slow]"),
    (len, "len"),
]


def test_a_value_is_shown_in_short() -> None:
    for value, text in SHOWN:
        assert brief(value).replace("np.int64(3)", "3") == text


def test_the_text_of_anything_is_short_and_takes_no_time() -> None:
    tensor = torch.zeros(10**6)
    start = time.thread_time()
    for value in (nested(40), "a" * 10**6, b"a" * 10**6, {"a" * 1000: nested(9)}, tensor, [tensor] * 10**6):
        assert len(brief(value)) <= LONGEST + len("...")
    assert time.thread_time() - start < 0.5
