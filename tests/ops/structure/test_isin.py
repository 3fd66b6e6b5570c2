import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops

IDS = st.lists(st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1), max_size=30)
DTYPES = [torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("test_dtype", DTYPES)
@given(elements=IDS, others=IDS)
def test_equal_to_the_reference(
    dtype: torch.dtype, test_dtype: torch.dtype, elements: list[int], others: list[int]
) -> None:
    result = ops.isin(torch.tensor(elements, dtype=dtype), torch.tensor(others, dtype=test_dtype))
    assert result.dtype == torch.bool
    assert result.tolist() == [element in others for element in elements]


@pytest.mark.parametrize("name", ["elements", "test_elements"])
def test_wrong_arguments(name: str) -> None:
    given = {"elements": torch.arange(3), "test_elements": torch.arange(3)}
    with pytest.raises(ValueError, match=f"^{name} must have 1 dimension, but has shape \\(1, 3\\)"):
        ops.isin(**(given | {name: torch.arange(3)[None]}))
    with pytest.raises(TypeError, match=rf"^{name} must be torch.int32 or torch.int64, but is torch.float32"):
        ops.isin(**(given | {name: torch.rand(3)}))
