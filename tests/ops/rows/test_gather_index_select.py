import pytest
import torch

from graphfeed import ops


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 2, 2), (6, 0)])
def test_rows_by_position(index_dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = torch.rand(shape)
    index = torch.tensor([5, 0, 0, 3])
    assert torch.equal(ops.index_select(values, index.to(index_dtype)), values[index])


@pytest.mark.parametrize("wrong", [-1, 6])
def test_positions_outside_are_errors_and_do_not_wrap(wrong: int) -> None:
    with pytest.raises(IndexError, match=rf"^index must lie in 0 .. 5, but holds {wrong}"):
        ops.index_select(torch.arange(6), torch.tensor([0, wrong]))
