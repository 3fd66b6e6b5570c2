"""Array-likes become tensors without a copy where none is needed."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.arguments import as_ids, as_tensor, is_read_only


class Column:
    """What a data frame's column is to NumPy."""

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


def test_a_tensor_stays_the_same_object() -> None:
    tensor = torch.arange(3).t()
    assert as_tensor("ids", tensor) is tensor


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_an_array_and_a_column_share_their_memory(dtype: str) -> None:
    array = np.zeros((4, 2), dtype=dtype)
    for given in (array, Column(array), array[::2], array.T):
        tensor = as_tensor("rows", given)
        tensor[0] = 1
        assert array[0, 0] == 1
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


@pytest.mark.parametrize(
    ("given", "values", "dtype"),
    [
        ([1, 2], [1, 2], torch.int64),
        ((0.5,), [0.5], torch.float32),
        ([[1], [2]], [[1], [2]], torch.int64),
        ([True], [True], torch.bool),
        ([], [], torch.int64),
        ((), [], torch.int64),
        (range(6, 0, -2), [6, 4, 2], torch.int64),
        (np.arange(3)[::-1], [2, 1, 0], torch.int64),
        (np.array([1, 2], dtype=">i4"), [1, 2], torch.int32),
        (np.int32(3), 3, torch.int32),
        (7, 7, torch.int64),
    ],
    ids=str,
)
def test_lists_and_unusual_arrays_are_copied(given: Any, values: Any, dtype: torch.dtype) -> None:
    tensor = as_tensor("ids", given)
    assert (tensor.tolist(), tensor.dtype) == (values, dtype)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "is None"),
        ("abc", "is 'abc'"),
        ({"a": 1}, "is {'a': 1}"),
        (["a", "b"], r"is \['a', 'b'\]"),
        ([[1, 2], [3]], r"list of numbers or of rows of one length, but is \[\[1, 2\], \[3\]\]"),
        ([1, None], r"is \[1, None\]"),
        ([2**70], r"is \[1180591620717411303424\]"),
        (object(), "is a object"),
        (Slow(), "is a Slow"),
        (np.array(["a"]), "holds <U1; convert it"),
        (np.array([None]), "holds object; convert it"),
        (np.array([0], dtype="M8[ns]"), r"holds datetime64\[ns\]; convert it, for example with .astype\('int64'\)"),
        (np.ma.masked_equal(np.arange(3), 1), "is a masked array, whose mask would be lost"),
        (torch.eye(3).to_sparse(), r"of torch.sparse_coo; convert it with .to_dense\(\)"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_holds_no_numbers_is_refused_by_the_argument_s_name(given: Any, text: str) -> None:
    with pytest.raises(TypeError, match=rf"^labels .*{text}"):
        as_tensor("labels", given)


def test_no_ids_of_floating_point_become_int64() -> None:
    assert as_ids("ids", torch.tensor([])).dtype == torch.int64
    assert as_ids("ids", torch.tensor([], dtype=torch.int32)).dtype == torch.int32
    assert as_ids("ids", torch.tensor([1.0])).dtype == torch.float32


@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("shape", [(2,), (2, 1), ()])
def test_ids_of_uint64_that_int64_can_not_hold_are_refused(wrap: Any, shape: tuple[int, ...]) -> None:
    largest = np.full(shape, 2**63 - 1, dtype=np.uint64)
    assert torch.equal(as_ids("seeds", wrap(largest)), torch.full(shape, 2**63 - 1))
    above = np.full(shape, 2**63 + 5, dtype=np.uint64)
    with pytest.raises(ValueError, match=r"^seeds must be below 2\*\*63, but holds 9223372036854775813; "):
        as_ids("seeds", wrap(above))
