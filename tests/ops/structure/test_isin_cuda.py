import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import ID_DTYPES

IDS = st.lists(st.integers(-2, 9), max_size=12)


@given(IDS, IDS, st.sampled_from(ID_DTYPES), st.sampled_from(ID_DTYPES))
def test_members_are_those_of_the_cpu(
    cuda: Cuda, elements: list[int], others: list[int], dtype: torch.dtype, other_dtype: torch.dtype
) -> None:
    given = (torch.tensor(elements, dtype=dtype), torch.tensor(others, dtype=other_dtype))
    expected = ops.isin(*given)
    with cuda.running():
        check_equal(cuda, ops.isin(*map(cuda.put, given)), expected)
