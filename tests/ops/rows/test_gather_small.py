import pytest
import torch

from graphfeed.ops.rows.gather_small import take_small


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [((1 << 31) - 1, torch.int32), (1 << 31, torch.int64), (1 << 40, torch.int64), (-1, torch.int64)],
)
def test_numbers_are_int32_where_all_fit(largest: int, dtype: torch.dtype) -> None:
    values = torch.tensor([3, largest, 0, 9])
    found = take_small(values, torch.tensor([0, 3, 1, 0]))
    assert (found.tolist(), found.dtype) == ([3, 9, largest, 3], dtype)


def test_only_what_is_gathered_decides() -> None:
    assert take_small(torch.tensor([1 << 40, 5]), torch.tensor([1, 1])).dtype == torch.int32


def test_other_dtypes_stay() -> None:
    for dtype in (torch.uint8, torch.int32):
        assert take_small(torch.tensor([4, 5], dtype=dtype), torch.tensor([1])).dtype == dtype
