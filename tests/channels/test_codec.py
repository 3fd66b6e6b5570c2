from typing import Any

import pytest
import torch

from graphfeed.channels.codec import DTYPES, pack_tensors, read_table, unpack_tensors
from tests.digests import assert_same


def through(message: Any) -> Any:
    return unpack_tensors(*pack_tensors(message))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float16, torch.bfloat16, torch.complex64], ids=str)
def test_every_dtype_and_shape_comes_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.ones(shape, dtype=dtype)
    assert_same(through({"x": value})["x"], value)


def test_values_that_do_not_lie_together_come_back() -> None:
    base = torch.arange(60).reshape(3, 4, 5)
    message = {"a": base.transpose(0, 2), "ü": base[:, 1]}
    assert_same(through(message), {name: value.clone() for name, value in message.items()})


def test_names_of_dtypes_are_torchs() -> None:
    assert DTYPES["int64"] is torch.int64
    assert DTYPES["bfloat16"] is torch.bfloat16


@pytest.mark.parametrize("message", [{1: torch.ones(1)}, {"a": [1]}, {"a": None}], ids=str)
def test_anything_else_is_refused(message: Any) -> None:
    with pytest.raises(TypeError, match="must be a dict of texts to tensors, but has"):
        pack_tensors(message)


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match=r"must be dense, but 'a' is torch\.sparse_coo; send its parts"):
        pack_tensors({"a": torch.eye(2).to_sparse()})


@pytest.mark.parametrize(
    "table",
    [
        b"x",
        b"[1]",
        b"[" * 100_000,
        b'[["a", "int64"]]',
        b'[["a", "int64", [-2]]]',
        b'[["a", "no type", [1]]]',
        b'[["a", "quint8", [1]]]',
        b'[["a", "uint8", [0, 1e400]]]',
        b'[["a", "uint8", [0, 9223372036854775808]]]',
        b'[["a", "uint8", [' + b"1, " * 64 + b"1]]]",
    ],
)
def test_a_table_that_describes_no_tensors_is_refused(table: bytes) -> None:
    with pytest.raises(ValueError, match="what came is no message: "):
        read_table(table)
