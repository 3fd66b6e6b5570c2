import numpy as np
import pytest
import torch

from graphfeed.ops.arguments import (
    as_ids,
    as_tensor,
    bounds,
    check_count,
    check_ids,
    check_length,
    check_seconds,
    check_vector,
    parse_bytes,
)
from tests.ops.arguments.test_tensors import Slow
from tests.refusals import check_refused


def test_what_is_right_passes() -> None:
    for dtype in (torch.int32, torch.int64):
        for ids in ([], [0], [4, 0, 4]):
            check_vector("ids", torch.tensor(ids, dtype=dtype))
            check_ids("ids", torch.tensor(ids, dtype=dtype), 5)
    check_vector("mask", torch.tensor([True]), (torch.bool,))
    check_ids("ids", torch.tensor([2**40 - 1]), 2**40)
    check_ids("ids", torch.tensor([2**31 - 1], dtype=torch.int32), 2**40)
    check_length("times", torch.arange(3), 3, "edge")
    for value in (1, np.int32(1), torch.tensor(1), True):
        check_count("size", value, 1)
    check_count("size", 5, 1, 5)
    for seconds in (0.1, 1, np.float32(2.5), 1e8):
        check_seconds("timeout", seconds)


def test_what_is_wrong_is_named_with_what_would_be_right() -> None:
    ids, outside = torch.tensor([0, -7, 9]), torch.tensor([0, 5])
    check_refused([
        (lambda: check_vector("ids", [1]), TypeError, "^ids must be a torch.Tensor, but is a list; make one with"),
        (lambda: check_vector("ids", None), TypeError, "^ids must be a torch.Tensor, but is a NoneType"),
        (lambda: check_vector("ids", torch.tensor(1)), ValueError, r"ids must have 1 dimension, but has shape \(\)"),
        (lambda: check_vector("ids", torch.ones(2, 3)), ValueError, r"1 dimension, but has shape \(2, 3\)"),
        (lambda: check_vector("ids", torch.ones(2)), TypeError,
         r"ids must be torch.int32 or torch.int64, but is torch.float32; .*\.to"),
        (lambda: check_vector("mask", ids, (torch.bool,)), TypeError, "mask must be torch.bool, but is torch.int64"),
        (lambda: check_ids("ids", outside, 5), ValueError, "ids must lie in 0 .. 4, but holds 5; check the ids"),
        (lambda: check_ids("ids", ids, 5, IndexError), IndexError, "ids must lie in 0 .. 4, but holds -7"),
        (lambda: check_ids("ids", ids[:2], 5), ValueError, "ids must lie in 0 .. 4, but holds -7"),
        (lambda: check_ids("ids", outside, 0), ValueError, "ids must lie in 0 .. -1, but holds 5"),
        (lambda: check_ids("ids", torch.tensor([2**40]), 2**40), ValueError, f"but holds {2**40}"),
        (lambda: check_length("times", ids, 4, "edge"), ValueError, "times must have 4 values, one per edge, but has"),
        (lambda: check_count("size", 1, 2), ValueError, "size must be 2 or more, but is 1"),
        (lambda: check_count("size", torch.tensor(1), 2), ValueError, "size must be 2 or more, but is"),
        (lambda: check_count("size", 9, 2, 8), ValueError, "size must be 8 or less, but is 9"),
        (lambda: check_count("size", 1.0, 1), TypeError, r"size must be a whole number, but is 1\.0"),
        (lambda: check_count("size", "1", 1), TypeError, "size must be a whole number, but is '1'"),
        (lambda: check_count("size", None, 1), TypeError, "size must be a whole number, but is None"),
        (lambda: check_count("size", outside, 1), TypeError, r"must be a whole number, but is tensor\(\[0, 5\]\)"),
        (lambda: check_seconds("timeout", 0), ValueError, "timeout must be more than 0 seconds, but is 0"),
        (lambda: check_seconds("timeout", -1.0), ValueError, r"timeout must be more than 0 seconds, but is -1\.0"),
        (lambda: check_seconds("timeout", float("nan")), ValueError, "timeout must be more than 0 seconds, but is nan"),
        (lambda: check_seconds("timeout", float("inf")), ValueError, r"must be 1e\+08 seconds or less, but is inf"),
        (lambda: check_seconds("timeout", "5"), TypeError, "timeout must be a number of seconds, but is '5'"),
        (lambda: check_seconds("timeout", True), TypeError, "timeout must be a number of seconds, but is True"),
        (lambda: parse_bytes("size", "0k"), ValueError, "size must be 1 byte or more, but is '0k'"),
    ])  # fmt: skip
    for size in ("MB", "", "-1MB", "1 MB MB", "4 apples", None, -1):
        with pytest.raises(ValueError, match="size must be a number of bytes, such as '512M' or '4G', but is"):
            parse_bytes("size", size)


def test_what_holds_no_numbers_is_refused_by_the_argument_s_name() -> None:
    above = np.full((2, 1), 2**63 + 5, dtype=np.uint64)
    check_refused([
        (lambda: as_tensor("labels", None), TypeError, "^labels .*is None"),
        (lambda: as_tensor("labels", "abc"), TypeError, "^labels .*is 'abc'"),
        (lambda: as_tensor("labels", {"a": 1}), TypeError, "^labels .*is {'a': 1}"),
        (lambda: as_tensor("labels", ["a", "b"]), TypeError, r"^labels .*is \['a', 'b'\]"),
        (lambda: as_tensor("labels", [[1, 2], [3]]), TypeError,
         r"^labels .*list of numbers or of rows of one length, but is \[\[1, 2\], \[3\]\]"),
        (lambda: as_tensor("labels", [1, None]), TypeError, r"^labels .*is \[1, None\]"),
        (lambda: as_tensor("labels", [2**70]), TypeError, r"^labels .*is \[1180591620717411303424\]"),
        (lambda: as_tensor("labels", object()), TypeError, "^labels .*is a object"),
        (lambda: as_tensor("labels", Slow()), TypeError, "^labels .*is a Slow"),
        (lambda: as_tensor("labels", np.array(["a"])), TypeError, "^labels .*holds <U1; convert it"),
        (lambda: as_tensor("labels", np.array([None])), TypeError, "^labels .*holds object; convert it"),
        (lambda: as_tensor("labels", np.array([0], dtype="M8[ns]")), TypeError,
         r"^labels .*holds datetime64\[ns\]; convert it, for example with .astype\('int64'\)"),
        (lambda: as_tensor("labels", np.ma.masked_equal(np.arange(3), 1)), TypeError,
         "^labels is a masked array, whose mask would be lost"),
        (lambda: as_tensor("labels", torch.eye(3).to_sparse()), TypeError,
         r"^labels .*of torch.sparse_coo; convert it with .to_dense\(\)"),
        (lambda: as_ids("seeds", above), ValueError, r"^seeds must be below 2\*\*63, but holds 9223372036854775813; "),
        (lambda: as_ids("seeds", torch.from_numpy(above)), ValueError, r"^seeds must be below 2\*\*63, but holds"),
        (lambda: as_ids("seeds", above[0, 0]), ValueError, r"^seeds must be below 2\*\*63, but holds"),
    ])  # fmt: skip


def test_the_ids_of_a_mini_batch_wake_no_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "aminmax", None)
    for dtype in (torch.int32, torch.int64):
        ids = torch.arange(-5, (1 << 20) - 5, dtype=dtype).flip(0)
        assert bounds(ids) == (-5, (1 << 20) - 6)


SIZES = {
    "1K": 1 << 10, "2kb": 1 << 11, "1.5M": 3 << 19, " 256 MB ": 1 << 28, ".5G": 1 << 29, "4 GiB": 1 << 32,
    "1tB": 1 << 40, "100": 100, 77: 77,
}  # fmt: skip


def test_a_number_of_bytes_is_a_number_or_a_text_with_a_unit() -> None:
    assert {size: parse_bytes("size", size) for size in SIZES} == SIZES
