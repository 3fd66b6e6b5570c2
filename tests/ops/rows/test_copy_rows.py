import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import copy_rows


@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("width", [1, 3, 100])
@given(pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 7)), max_size=30))
def test_rows_go_where_they_should_in_order(dtype: torch.dtype, width: int, pairs: list[tuple[int, int]]) -> None:
    source = torch.arange(6 * width).reshape(6, width).to(dtype)
    out = torch.zeros(8, width, dtype=dtype)
    wanted = out.clone()
    for start, target in pairs:
        if target >= 0:
            wanted[target] = source[start]
    columns = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    copy_rows(source, columns[:, 0], out, columns[:, 1])
    assert torch.equal(out, wanted)


def test_other_dtypes_of_as_many_bytes_keep_their_bits() -> None:
    out = torch.zeros(1, 1, dtype=torch.int64)
    copy_rows(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), out, torch.tensor([0]))
    assert out.view(torch.float32).tolist() == [[1.0, 2.0]]


def test_rows_without_bytes_are_no_trouble() -> None:
    copy_rows(torch.zeros(2, 0), torch.tensor([1]), torch.zeros(2, 0), torch.tensor([0]))
    copy_rows(torch.zeros(2, 3), torch.tensor([1]), torch.zeros(0, 3), torch.tensor([-1]))


def test_wrong_arguments_are_named() -> None:
    one = torch.tensor([0])
    with pytest.raises(ValueError, match="from_rows and to_rows must have the same length, but have 1 and 2"):
        copy_rows(torch.zeros(1, 1), one, torch.zeros(1, 1), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="rows of source and out must have the same number of bytes, but have 4 and 8"):
        copy_rows(torch.zeros(1, 1), one, torch.zeros(1, 2), one)
    with pytest.raises(TypeError, match=r"to_rows must be torch.int64"):
        copy_rows(torch.zeros(1, 1), one, torch.zeros(1, 1), one.int())
