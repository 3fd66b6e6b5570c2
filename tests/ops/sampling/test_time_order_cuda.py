from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.emulated_cuda import Cuda, check_equal

TIMES = st.lists(st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), max_size=20)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@given(st.lists(TIMES, max_size=5), st.booleans(), st.data())
def test_columns_are_in_the_order_that_the_cpu_finds(
    cuda: Cuda, dtype: torch.dtype, columns: list[list[int]], by_type: bool, data: st.DataObject
) -> None:
    indptr = torch.tensor(list(accumulate(map(len, columns), initial=0)), dtype=dtype)
    times = torch.tensor(reference.join(columns), dtype=torch.int64)
    types = reference.join(sorted(data.draw(st.integers(0, 2)) for _ in own) for own in columns)

    def order(put: Any) -> ops.TimeOrder:
        kinds = put(torch.tensor(types, dtype=torch.uint8)) if by_type else None
        return ops.order_by_time(put(indptr), put(times), kinds)

    expected = order(lambda tensor: tensor)
    with cuda.running():
        found = order(cuda.put)
        check_equal(cuda, found.times, expected.times)
        if expected.order is None:
            assert found.order is None
        else:
            check_equal(cuda, found.order, expected.order)
            assert found.order is not None
            places = ops.places_in_order(cuda.put(indptr), found.order)
            check_equal(cuda, places, ops.places_in_order(indptr, expected.order))
