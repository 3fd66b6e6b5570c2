import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.rows.cache_sets import CacheSets, find_in_sets, new_sets, replace_in_sets
from tests.cache_models import distinct
from tests.ops.emulated_cuda import Cuda, check_equal


@given(
    st.sampled_from([1, 20, 32, 65]),
    st.lists(st.lists(st.integers(0, 150), max_size=50), max_size=5),
)
def test_keys_lie_where_they_lie_on_the_cpu(cuda: Cuda, capacity: int, batches: list[list[int]]) -> None:
    for order in cuda.each_order():
        expected = new_sets(capacity)
        with order, cuda.running():
            sets = CacheSets(cuda.put(expected.keys), cuda.put(expected.uses))
            for request, batch in enumerate(batches):
                keys = torch.tensor(batch, dtype=torch.int64)
                slots = find_in_sets(expected, keys, request)
                check_equal(cuda, find_in_sets(sets, cuda.put(keys), request), slots)
                wanted = torch.tensor(distinct(keys[slots < 0].tolist()), dtype=torch.int64)
                check_equal(
                    cuda, replace_in_sets(sets, cuda.put(wanted), request), replace_in_sets(expected, wanted, request)
                )
            check_equal(cuda, sets.keys, expected.keys)
            check_equal(cuda, sets.uses, expected.uses)
