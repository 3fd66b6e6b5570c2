"""In time: edges are ordered on each device, and one hop picks what the reference picks on a GPU, too."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops import scratch
from tests.kinds import reference
from tests.kinds.graphs import FANOUTS, ID_DTYPES, KEYS, split
from tests.kinds.hops import record, sample_one
from tests.kinds.timed import NUM_TYPES, timed_graphs
from tests.stand_ins.devices import Device, Put, results
from tests.stand_ins.emulated_cuda import Cuda

INT64 = st.integers(-(2**63), 2**63 - 1)
FALLING = st.sampled_from([33, 65, 80]).map(lambda size: list(range(size, 0, -1)))
TIMES = st.lists(st.one_of(st.integers(0, 3), INT64), max_size=80) | FALLING


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
        assert own.times is not None
        return own.times, None if own.order is None else ops.places_in_order(starts, own.order)

    for found, places in results(device, order):
        assert found.tolist() == [times[edge] for edge in expected]
        assert expected == (list(range(len(times))) if places is None else places.tolist())
        assert places is None or expected != list(range(len(times)))


def test_a_graph_in_the_order_of_time_costs_no_memory() -> None:
    times = torch.tensor([1, 1, 5, 0, 2])
    found = ops.order_by_time(torch.tensor([0, 3, 5]), times).times
    assert found is not None
    assert found.data_ptr() == times.data_ptr()


def test_times_of_any_integers_become_int64() -> None:
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        found = ops.as_times("t", torch.tensor([3, 1], dtype=dtype))
        assert (found.dtype, found.tolist()) == (torch.int64, [3, 1]), dtype


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_links_hold_places_and_sources(dtype: torch.dtype) -> None:
    indptr, times = torch.tensor([0, 3, 5], dtype=dtype), torch.tensor([3, 1, 2, 5, 4])
    largest = 2**31 - 1 if dtype == torch.int32 else 2**32 - 1
    indices = torch.tensor([7, largest, 0, 3, 4], dtype=dtype)
    order = ops.order_by_time(indptr, times).order
    assert order is not None
    links = ops.link_sources(indptr, indices, order)
    assert links is not None
    assert torch.equal(ops.linked_order(links), order)
    assert torch.equal(links & 2**32 - 1, indices[ops.places_in_order(indptr, order)].to(torch.int64))


def test_ids_that_are_too_large_are_not_linked() -> None:
    order = torch.tensor([1, 0], dtype=torch.int32)
    assert ops.link_sources(torch.tensor([0, 2]), torch.tensor([0, 2**32]), order) is None


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("method", ["uniform", "labor"])
@given(
    st.lists(FANOUTS, min_size=NUM_TYPES, max_size=NUM_TYPES),
    st.tuples(KEYS, KEYS),
    st.sampled_from([0, 2**63]),
    st.data(),
)
def test_equal_to_the_reference(
    cuda: Cuda, dtype: torch.dtype, method: str, fanouts: list[int], keys: tuple[int, int], share: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    graph = data.draw(timed_graphs(most=130 if method == "labor" else 700))
    how = data.draw(st.sampled_from(["", "replace"] if method == "labor" else ["", "replace", "latest"]))
    weighted, by_type = data.draw(st.booleans()) and how != "latest", data.draw(st.booleans())
    fanouts = fanouts if by_type else fanouts[:1]
    arrays = reference.Graph(graph.indptr, graph.indices, graph.types, graph.units if weighted else None, graph.stamps)
    own_method = how if how == "latest" else method
    expected = reference.pick_edges(arrays, graph.periods(), fanouts, (keys, share), own_method, how == "replace")
    drawing: dict[str, Any] = {"method": how if how == "latest" else method, "replace": how == "replace"}

    def sample(put: Put) -> ops.Picks:
        return graph.sample(dtype, fanouts, *keys, put=put, weighted=weighted, switch_threshold=share, **drawing)

    for picks in results(cuda, sample, each_order=True):
        found = split(picks)
        if weighted and how != "replace":  # written in the order of the ranks
            found, expected = [sorted(part) for part in found], [sorted(part) for part in expected]
        assert found == expected


def test_picks_are_kept_where_more_edges_are_eligible_than_are_gathered_at_once() -> None:
    size = 1000
    ranks, seeds = torch.arange(size), torch.zeros(3 * scratch.BLOCK_EDGES // size, dtype=torch.int64)
    order = ops.TimeOrder(ranks, earliest=ranks)
    columns = record(torch.tensor([0, size]), torch.zeros_like(ranks), by_column=order)
    moments = {"times": torch.full_like(seeds, size), "windows": torch.full_like(seeds, size)}
    picks = sample_one(columns, seeds, torch.tensor([-1]), 0, **moments)
    assert split(picks) == [ranks[1:].tolist()] * len(seeds)
