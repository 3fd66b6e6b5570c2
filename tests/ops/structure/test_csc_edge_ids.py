from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@given(degrees=st.lists(st.integers(0, 9), max_size=12), first=st.integers(0, 99))
def test_equal_to_the_reference(dtype: torch.dtype, degrees: list[int], first: int) -> None:
    indptr = list(accumulate(degrees, initial=0))
    offset = [first * place for place in range(len(degrees))]
    starts, offsets = torch.tensor(indptr, dtype=dtype), torch.tensor(offset, dtype=dtype)
    result = ops.indptr_edge_ids(starts, offset=offsets)
    assert result.dtype == dtype
    assert result.tolist() == reference.indptr_edge_ids(indptr, offset)
    plain = ops.indptr_edge_ids(starts, output_size=indptr[-1])
    assert plain.dtype == dtype
    assert plain.tolist() == reference.indptr_edge_ids(indptr, [0] * len(degrees))


def test_the_dtype_of_the_result() -> None:
    indptr = torch.tensor([0, 2], dtype=torch.int32)
    assert ops.indptr_edge_ids(indptr, dtype=torch.int64).dtype == torch.int64
    offset = torch.tensor([2**40])
    assert ops.indptr_edge_ids(indptr, offset=offset).tolist() == [2**40, 2**40 + 1]


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"^offset must have 2 values, one per column of indptr, but has 3"):
        ops.indptr_edge_ids(torch.tensor([0, 1, 2]), offset=torch.arange(3))
    with pytest.raises(TypeError, match=r"^indptr must be torch.int32"):
        ops.indptr_edge_ids(torch.rand(3))
