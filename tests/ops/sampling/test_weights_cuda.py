import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.weights import WEIGHT_DTYPES
from tests.ops.emulated_cuda import Cuda, check_equal

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(0, 1e4, width=16)), max_size=12)


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
@pytest.mark.parametrize("indptr_dtype", [torch.int32, torch.int64])
@given(WEIGHTS, st.integers(0, 12))
def test_units_are_those_of_the_cpu(
    cuda: Cuda, dtype: torch.dtype, indptr_dtype: torch.dtype, weights: list[float], first: int
) -> None:
    values = torch.tensor(weights).to(dtype)
    indptr = torch.tensor([0, min(first, len(weights)), len(weights)], dtype=indptr_dtype)
    expected = ops.cumulate_weights(indptr, values)
    with cuda.running():
        check_equal(cuda, ops.cumulate_weights(cuda.put(indptr), cuda.put(values)), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_smallest_weights_keep_their_edges_eligible(cuda: Cuda, dtype: torch.dtype) -> None:
    smallest = torch.finfo(dtype).smallest_normal / 64
    weights, indptr = torch.tensor([smallest, 0, 1, smallest, 2 * smallest], dtype=dtype), torch.tensor([0, 3, 5])
    expected = ops.cumulate_weights(indptr, weights)
    assert expected.tolist() == [1, 1, 2**31 + 1, 2**30, 3 * 2**30]
    with cuda.running():
        check_equal(cuda, ops.cumulate_weights(cuda.put(indptr), cuda.put(weights)), expected)
