import re
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.time_order import earliest_times
from tests import reference

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.lists(st.one_of(st.integers(0, 3), INT64), max_size=80)
NO = torch.empty(0, dtype=torch.int64)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@given(st.lists(TIMES, max_size=5), st.booleans(), st.data())
def test_each_column_is_in_the_order_of_time(
    dtype: torch.dtype, columns: list[list[int]], by_type: bool, data: st.DataObject
) -> None:
    times = reference.join(columns)
    indptr = list(accumulate(map(len, columns), initial=0))
    types = reference.join(sorted(data.draw(st.integers(0, 2)) for _ in own) for own in columns)
    starts = torch.tensor(indptr, dtype=dtype)
    kinds = torch.tensor(types, dtype=torch.uint8) if by_type else None
    found = ops.order_by_time(starts, torch.tensor(times, dtype=torch.int64), kinds)
    keys = [(types[edge] if by_type else 0, times[edge], edge) for edge in range(len(times))]
    expected = reference.join(sorted(range(low, high), key=lambda edge: keys[edge]) for low, high in pairwise(indptr))
    assert found.times.tolist() == [times[edge] for edge in expected]
    if found.order is None:
        assert expected == list(range(len(times)))
    else:
        assert expected != list(range(len(times)))
        assert ops.places_in_order(starts, found.order).tolist() == expected


def test_a_graph_in_the_order_of_time_costs_no_memory() -> None:
    times = torch.tensor([1, 1, 5, 0, 2])
    assert ops.order_by_time(torch.tensor([0, 3, 5]), times).times.data_ptr() == times.data_ptr()


@given(INT64, st.integers(0, 2**63 - 1))
def test_a_window_begins_after_its_length(time: int, window: int) -> None:
    found = int(earliest_times(torch.tensor([time]), torch.tensor([window]))[0])
    assert found == max(time - max(window - 1, 0), -(2**63))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_times_of_any_integers_become_int64(dtype: torch.dtype) -> None:
    assert ops.as_times("t", torch.tensor([3, 1], dtype=dtype)).tolist() == [3, 1]
    assert ops.as_times("t", torch.tensor([3, 1], dtype=dtype)).dtype == torch.int64


@pytest.mark.parametrize(
    ("times", "error", "words"),
    [
        (torch.tensor([0.5]), TypeError, "t must be torch.int64, but is torch.float32; count whole units"),
        (torch.tensor([True]), TypeError, "but is torch.bool"),
        ([1, 2], TypeError, "t must be a torch.Tensor, but is a list"),
        (torch.zeros(2, 2, dtype=torch.int64), ValueError, "t must have 1 dimension"),
    ],
)
def test_times_that_are_none_are_refused(times: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        ops.as_times("t", times)


def test_times_are_one_an_edge() -> None:
    with pytest.raises(ValueError, match="times must have 3 values, one per edge, but has 0"):
        ops.order_by_time(torch.tensor([0, 3]), NO)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_links_hold_places_and_sources(dtype: torch.dtype) -> None:
    indptr, times = torch.tensor([0, 3, 5], dtype=dtype), torch.tensor([3, 1, 2, 5, 4])
    indices = torch.tensor([7, 2**31 - 1, 0, 3, 4], dtype=dtype)
    order = ops.order_by_time(indptr, times).order
    assert order is not None
    links = ops.link_sources(indptr, indices, order)
    assert links is not None
    assert torch.equal(ops.linked_order(links), order)
    assert torch.equal(links & 2**32 - 1, indices[ops.places_in_order(indptr, order)].to(torch.int64))


def test_ids_that_are_too_large_are_not_linked() -> None:
    order = torch.tensor([1, 0], dtype=torch.int32)
    assert ops.link_sources(torch.tensor([0, 2]), torch.tensor([0, 2**32]), order) is None
