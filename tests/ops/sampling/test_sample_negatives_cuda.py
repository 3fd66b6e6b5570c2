import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import ID_DTYPES, KEYS


@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(st.integers(0, 9), st.integers(1, 4), st.integers(1, 2**31), KEYS)
def test_draws_are_those_of_the_cpu(
    cuda: Cuda, dtype: torch.dtype, count: int, ratio: int, num_destinations: int, key: int
) -> None:
    pairs = torch.arange(2 * count, dtype=dtype).reshape(count, 2)
    expected = ops.sample_negatives(pairs, ratio, num_destinations, key)
    with cuda.running():
        check_equal(cuda, ops.sample_negatives(cuda.put(pairs), ratio, num_destinations, key), expected)
