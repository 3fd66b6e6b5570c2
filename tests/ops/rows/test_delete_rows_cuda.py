import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, check_equal
from tests.ops.graphs import ID_DTYPES

PLACES = st.sets(st.integers(0, 8)).map(lambda places: torch.tensor(sorted(places), dtype=torch.int64))


@given(PLACES, st.sampled_from([(), (3,), (40,)]), st.sampled_from([torch.uint8, torch.float32, torch.int64]))
def test_rows_are_those_of_the_cpu(
    cuda: Cuda, places: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    values = torch.randint(0, 100, (9, *shape)).to(dtype)
    expected = ops.delete_rows(values, places)
    with cuda.running():
        check_equal(cuda, ops.delete_rows(cuda.put(values), cuda.put(places)), expected)


@pytest.mark.parametrize("dtype", ID_DTYPES)
@given(PLACES)
def test_columns_are_those_of_the_cpu(cuda: Cuda, dtype: torch.dtype, places: torch.Tensor) -> None:
    indptr = torch.tensor([0, 0, 4, 5, 5, 9, 9], dtype=dtype)
    expected = ops.delete_from_columns(indptr, places)
    with cuda.running():
        check_equal(cuda, ops.delete_from_columns(cuda.put(indptr), cuda.put(places)), expected)


def test_places_that_fall_are_named(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match="places must ascend, without duplicates"):
        ops.delete_rows(cuda.put(torch.zeros(4)), cuda.put(torch.tensor([2, 1])))
