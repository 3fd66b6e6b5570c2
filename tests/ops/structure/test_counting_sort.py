import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference


@given(st.integers(1, 9), st.data(), st.sampled_from([torch.int32, torch.int64]))
def test_parts_give_the_order_of_the_whole(num_nodes: int, data: st.DataObject, dtype: torch.dtype) -> None:
    ends = data.draw(st.lists(st.integers(0, num_nodes - 1), max_size=40))
    cut = data.draw(st.integers(0, len(ends)))
    parts = [torch.tensor(part, dtype=dtype) for part in (ends[:cut], ends[cut:])]
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    for part in parts:
        ops.count_edges(part, indptr[1:])
    indptr = indptr.cumsum(0)
    starts = indptr[:-1].clone()
    places = torch.cat([ops.assign_slots(part, starts) for part in parts])
    order = torch.empty_like(places)
    order[places] = torch.arange(len(ends))
    expected_indptr, _, expected_order = reference.coo_to_csc(ends, ends, num_nodes)
    assert indptr.tolist() == expected_indptr
    assert order.tolist() == expected_order
    assert starts.tolist() == expected_indptr[1:]


def test_an_id_that_is_no_node_is_named() -> None:
    for function in (ops.count_edges, ops.assign_slots):
        with pytest.raises(ValueError, match=r"destinations must lie in 0 \.\. 1, but holds 2"):
            function(torch.tensor([0, 2]), torch.zeros(2, dtype=torch.int64))
        with pytest.raises(TypeError, match=r"destinations must be torch\.int32 or torch\.int64"):
            function(torch.tensor([0.0]), torch.zeros(2, dtype=torch.int64))
