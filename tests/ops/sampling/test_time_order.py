"""Edges are ordered by time as lists are sorted, on each device."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.temporal_graph import is_part_of
from graphfeed.ops.sampling.time_order import earliest_times, ensure_links
from tests import reference
from tests.ops.devices import Device, Put, results
from tests.ops.graphs import ID_DTYPES

INT64 = st.integers(-(2**63), 2**63 - 1)


TIMES = st.lists(st.one_of(st.integers(0, 3), INT64), max_size=80)


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(st.lists(TIMES, max_size=5), st.booleans(), st.data())
def test_each_column_is_in_the_order_of_time(
    device: Device, dtype: torch.dtype, columns: list[list[int]], by_type: bool, data: st.DataObject
) -> None:
    times, indptr = reference.join(columns), reference.running_sum(map(len, columns))
    types = reference.join(sorted(data.draw(st.integers(0, 2)) for _ in own) for own in columns)
    keys = [(types[edge] if by_type else 0, times[edge], edge) for edge in range(len(times))]
    expected = reference.join(sorted(range(low, high), key=lambda edge: keys[edge]) for low, high in pairwise(indptr))

    def order(put: Put) -> tuple[torch.Tensor, torch.Tensor | None]:
        starts, kinds = put(torch.tensor(indptr, dtype=dtype)), put(torch.tensor(types, dtype=torch.uint8))
        own = ops.order_by_time(starts, put(torch.tensor(times, dtype=torch.int64)), kinds if by_type else None)
        return own.times, None if own.order is None else ops.places_in_order(starts, own.order)

    for found, places in results(device, order):
        assert found.tolist() == [times[edge] for edge in expected]
        assert expected == (list(range(len(times))) if places is None else places.tolist())
        assert places is None or expected != list(range(len(times)))


def test_a_graph_in_the_order_of_time_costs_no_memory() -> None:
    times = torch.tensor([1, 1, 5, 0, 2])
    assert ops.order_by_time(torch.tensor([0, 3, 5]), times).times.data_ptr() == times.data_ptr()


@given(INT64, st.integers(0, 2**63 - 1))
def test_a_window_begins_after_its_length(time: int, window: int) -> None:
    found = int(earliest_times(torch.tensor([time]), torch.tensor([window]))[0])
    assert found == max(time - max(window - 1, 0), -(2**63))


def test_times_of_any_integers_become_int64() -> None:
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        found = ops.as_times("t", torch.tensor([3, 1], dtype=dtype))
        assert (found.dtype, found.tolist()) == (torch.int64, [3, 1]), dtype


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


def test_the_order_of_checked_links_is_not_checked_again() -> None:
    indptr, indices = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 0])
    found = ops.order_by_time(indptr, torch.tensor([5, 3, 4]))
    assert found.order is not None
    links = ops.link_sources(indptr, indices, found.order)
    assert links is not None
    graph = ops.TemporalGraph(indptr, indices, found.times, ops.linked_order(links), links)
    assert not is_part_of(ops.linked_order(links), graph)
    ensure_links(indptr, links)
    assert is_part_of(ops.linked_order(links), graph)
    assert not is_part_of(found.order, graph)
