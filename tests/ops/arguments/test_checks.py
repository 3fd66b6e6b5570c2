import re
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.arguments import (
    bounds,
    check_count,
    check_ids,
    check_length,
    check_seconds,
    check_vector,
    parse_bytes,
)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("ids", [[], [0], [4, 0, 4]])
def test_ids_pass(dtype: torch.dtype, ids: list[int]) -> None:
    tensor = torch.tensor(ids, dtype=dtype)
    check_vector("ids", tensor)
    check_ids("ids", tensor, 5)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([1], TypeError, "ids must be a torch.Tensor, but is a list"),
        (None, TypeError, "ids must be a torch.Tensor, but is a NoneType"),
        (torch.tensor(1), ValueError, r"ids must have 1 dimension, but has shape \(\)"),
        (torch.ones(2, 3), ValueError, r"ids must have 1 dimension, but has shape \(2, 3\)"),
        (torch.ones(2), TypeError, r"ids must be torch.int32 or torch.int64, but is torch.float32; .*\.to"),
        (torch.ones(2, dtype=torch.int16), TypeError, "but is torch.int16"),
    ],
)
def test_what_is_no_vector_of_ids_is_named(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_vector("ids", value)


def test_the_dtypes_that_are_right_are_named() -> None:
    check_vector("mask", torch.tensor([True]), (torch.bool,))
    with pytest.raises(TypeError, match=r"mask must be torch\.bool, but is torch\.int64"):
        check_vector("mask", torch.tensor([1]), (torch.bool,))


@pytest.mark.parametrize(
    ("ids", "bound", "message"),
    [
        ([0, 5], 5, "ids must lie in 0 .. 4, but holds 5"),
        ([0, -7, 9], 5, "ids must lie in 0 .. 4, but holds -7"),
        ([0], 0, "ids must lie in 0 .. -1, but holds 0"),
        ([2**40], 2**40, f"but holds {2**40}"),
    ],
)
@pytest.mark.parametrize("error", [ValueError, IndexError])
def test_ids_outside_are_named(ids: list[int], bound: int, message: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=message):
        check_ids("ids", torch.tensor(ids), bound, error)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_ids_of_a_mini_batch_wake_no_threads_of_torch(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.arange(-5, (1 << 20) - 5, dtype=dtype).flip(0)
    monkeypatch.setattr(torch, "aminmax", None)
    assert bounds(ids) == (-5, (1 << 20) - 6)


def test_bounds_beyond_32_bits() -> None:
    check_ids("ids", torch.tensor([2**40 - 1]), 2**40)
    check_ids("ids", torch.tensor([2**31 - 1], dtype=torch.int32), 2**40)


@pytest.mark.parametrize("value", [1, np.int32(1), torch.tensor(1), True])
def test_a_count_is_a_whole_number(value: object) -> None:
    check_count("size", value, 1)
    with pytest.raises(ValueError, match="size must be 2 or more, but is "):
        check_count("size", value, 2)


@pytest.mark.parametrize("value", [1.0, "1", None, torch.tensor([1, 2])])
def test_what_is_no_count_is_shown(value: object) -> None:
    with pytest.raises(TypeError, match=f"size must be a whole number, but is {re.escape(repr(value))}"):
        check_count("size", value, 1)


def test_seconds_can_be_waited() -> None:
    for seconds in (0.1, 1, np.float32(2.5), 1e8):
        check_seconds("timeout", seconds)
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout must be more than 0 seconds, but is"):
            check_seconds("timeout", wrong)
    with pytest.raises(ValueError, match=r"timeout must be 1e\+08 seconds or less, but is inf"):
        check_seconds("timeout", float("inf"))
    for other in (None, "5", True):
        with pytest.raises(TypeError, match="timeout must be a number of seconds, but is"):
            check_seconds("timeout", other)


def test_a_length_is_named_with_what_it_should_be() -> None:
    check_length("times", torch.arange(3), 3, "edge")
    with pytest.raises(ValueError, match="times must have 4 values, one per edge, but has 3"):
        check_length("times", torch.arange(3), 4, "edge")


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1K", 1 << 10), ("2kb", 1 << 11), ("1.5M", 3 << 19), (" 256 MB ", 1 << 28), (".5G", 1 << 29), ("4 GiB", 1 << 32),
     ("1tB", 1 << 40), ("100", 100), (77, 77)],
)  # fmt: skip
def test_a_number_of_bytes_is_a_number_or_a_text_with_a_unit(size: object, expected: int) -> None:
    assert parse_bytes("size", size) == expected


@pytest.mark.parametrize("size", ["MB", "", "-1MB", "1 MB MB", "4 apples", None, -1])
def test_what_is_no_number_of_bytes_is_refused(size: object) -> None:
    with pytest.raises(ValueError, match="size must be a number of bytes, such as '512M' or '4G', but is"):
        parse_bytes("size", size)


def test_no_bytes_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="size must be 1 byte or more, but is '0k'"):
        parse_bytes("size", "0k")
