"""In time: edges are ordered on each device, and one hop picks what the reference picks, each with its chance."""

import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling.hops import scratch
from tests.kinds import reference
from tests.kinds.chance import check_counts, check_subsets
from tests.kinds.graphs import FANOUTS, ID_DTYPES, KEYS, split
from tests.kinds.hops import sample_one
from tests.kinds.timed import NUM_TYPES, TimedGraph, timed_graphs
from tests.stand_ins.devices import Device, Put, results
from tests.stand_ins.emulated_cuda import Cuda

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


@pytest.mark.parametrize("count", [33, 40, 64, 65, 100, 1000])
def test_edges_at_one_time_keep_their_order_in_long_columns(device: Device, count: int) -> None:
    chance = random.Random(count)
    columns = [[1] + [0] * (count - 1), [0] * (count - 1) + [-1], chance.choices(range(3), k=count)]
    times, indptr = reference.join(columns), reference.running_sum(map(len, columns))
    expected = [sorted(range(count), key=own.__getitem__) for own in columns]

    def order(put: Put) -> torch.Tensor:
        found = ops.order_by_time(put(torch.tensor(indptr)), put(torch.tensor(times))).order
        assert found is not None
        return found

    for found in results(device, order):
        assert found.reshape(len(columns), count).tolist() == expected


def test_a_graph_in_the_order_of_time_costs_no_memory() -> None:
    times = torch.tensor([1, 1, 5, 0, 2])
    assert ops.order_by_time(torch.tensor([0, 3, 5]), times).times.data_ptr() == times.data_ptr()


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


WEIGHTS = torch.tensor([4.0, 0.0, 1.0, 2.5, 0.5, 0.0])


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
    compare(cuda, dtype, graph, method, how, fanouts, (keys, share), weighted=weighted)


def compare(
    device: Device, dtype: torch.dtype, graph: TimedGraph, method: str, how: str, fanouts: list[int],
    draws: tuple[tuple[int, int], int], *, weighted: bool,
) -> None:  # fmt: skip
    """Compare a hop on a device with the reference; with several fan-outs, it is sampled by type."""
    keys, share = draws
    arrays = reference.Graph(graph.indptr, graph.indices, graph.types, graph.units if weighted else None, graph.stamps)
    own_method = how if how == "latest" else method
    expected = reference.pick_edges(arrays, graph.periods(), fanouts, draws, own_method, how == "replace")
    drawing: dict[str, Any] = {"method": how if how == "latest" else method, "replace": how == "replace"}

    def sample(put: Put) -> ops.Picks:
        return graph.sample(dtype, fanouts, *keys, put=put, weighted=weighted, switch_threshold=share, **drawing)

    for picks in results(device, sample, each_order=True):
        found = split(picks)
        if weighted and how != "replace":  # written in the order of the ranks
            found, expected = [sorted(part) for part in found], [sorted(part) for part in expected]
        assert found == expected


@pytest.mark.parametrize("method", ["uniform", "labor"])
@pytest.mark.parametrize("how", ["", "replace"])
@pytest.mark.parametrize("by_type", [False, True])
def test_weights_of_edges_before_a_window_do_not_count(device: Device, method: str, how: str, by_type: bool) -> None:
    """The nodes and edges have times. Before each window, there are edges with weights."""
    chance, count, degree = random.Random(7), 60, 12
    graph = TimedGraph(
        indptr=list(range(0, count * degree + 1, degree)),
        indices=[chance.randrange(count) for _ in range(count * degree)],
        stamps=[(chance.randrange(12), chance.choice([ops.ALWAYS, *range(12)])) for _ in range(count * degree)],
        weights=[chance.choice([0.0, 0.5, 1.0, 3.0]) for _ in range(count * degree)],
        types=[kind for _ in range(count) for kind in sorted(chance.choices(range(NUM_TYPES), k=degree))],
        seeds=list(range(count)),
        times=[10] * count,
        windows=[6] * count,
    )
    fanouts = [1, 2, 3] if by_type else [2]
    compare(device, torch.int64, graph, method, how, fanouts, ((3, 4), 2**63), weighted=True)


BEFORE = torch.tensor([1, 3, 5, 7, 8, 9])


MOMENTS = torch.tensor([5, -5, 5, -1, 0, -3, 9, -2, -9, -7])
"""The times of a column; those of BEFORE are below 0."""


def sample_one_column(fanout: int, trials: int, weights: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
    """Sample as many such columns at time 0; return which of BEFORE were picked, one trial a row."""
    indptr = torch.arange(trials + 1) * len(MOMENTS)
    times, order = ops.order_by_time(indptr, MOMENTS.repeat(trials))
    assert order is not None
    columns = ops.TemporalGraph(indptr, torch.zeros_like(times), times, order)
    if weights is not None:
        own = torch.full((len(MOMENTS),), 7.0)
        own[BEFORE] = weights
        by_rank = own.repeat(trials)[ops.places_in_order(indptr, order)]
        columns = columns._replace(cumulative=ops.cumulate_weights(indptr, by_rank))
    seeds = torch.arange(trials)
    picks = sample_one(columns, seeds, torch.tensor([fanout]), 3, times=seeds * 0, **options)
    places = picks.positions.reshape(trials, -1) - indptr[:-1, None]
    assert torch.isin(places, BEFORE).all(), "time is violated"
    return torch.searchsorted(BEFORE, places)


def test_eligible_edges_and_pairs_are_equally_likely() -> None:
    check_subsets(sample_one_column(3, 20_000), 6)


def test_with_replacement_eligible_edges_are_equally_likely() -> None:
    check_counts(torch.bincount(sample_one_column(2, 20_000, replace=True).flatten(), minlength=6), torch.ones(6))


def test_choices_follow_the_weights_of_what_is_eligible() -> None:
    picks = sample_one_column(1, 20_000, weights=WEIGHTS)
    check_counts(torch.bincount(picks.flatten(), minlength=6), WEIGHTS)
    picks = sample_one_column(2, 20_000, weights=WEIGHTS, replace=True)
    check_counts(torch.bincount(picks.flatten(), minlength=6), WEIGHTS)


def test_labor_draws_eligible_neighbors_and_pairs_equally_likely() -> None:
    trials, size, before = 20_000, 12, 8
    indptr, seeds = torch.arange(trials + 1) * size, torch.arange(trials)
    columns = ops.TemporalGraph(indptr, torch.arange(trials * size), torch.arange(size).repeat(trials))
    picks = sample_one(columns, seeds, torch.tensor([3]), 5, 6, times=torch.full((trials,), before), method="labor")
    places = picks.positions.reshape(trials, 3) - indptr[:-1, None]
    assert int(places.max()) < before
    check_subsets(places, before)


def test_labor_chooses_the_same_neighbors_of_those_that_columns_at_two_times_share() -> None:
    columns = ops.TemporalGraph(torch.tensor([0, 200]), torch.randperm(200), torch.arange(200))
    seeds, times = torch.zeros(2, dtype=torch.int64), torch.tensor([100, 200])
    early, late = split(sample_one(columns, seeds, torch.tensor([20]), 1, 1, times=times, method="labor"))
    assert {edge for edge in late if edge < 100} <= set(early)
    assert set(early) & set(late)


def test_picks_are_kept_where_more_edges_are_eligible_than_are_gathered_at_once() -> None:
    size = 1000
    ranks, seeds = torch.arange(size), torch.zeros(3 * scratch.BLOCK_EDGES // size, dtype=torch.int64)
    columns = ops.TemporalGraph(torch.tensor([0, size]), torch.zeros_like(ranks), ranks, earliest=ranks)
    moments = {"times": torch.full_like(seeds, size), "windows": torch.full_like(seeds, size)}
    picks = sample_one(columns, seeds, torch.tensor([-1]), 0, **moments)
    assert split(picks) == [ranks[1:].tolist()] * len(seeds)


def test_a_node_at_two_times_draws_anew_and_at_one_time_alike() -> None:
    indptr, seeds = torch.tensor([0, 1000]), torch.zeros(3, dtype=torch.int64)
    columns = ops.TemporalGraph(indptr, torch.zeros(1000, dtype=torch.int64), torch.arange(1000))
    picks = sample_one(columns, seeds, torch.tensor([5]), 1, times=torch.tensor([1000, 1001, 1000]))
    first, second, third = split(picks)
    assert first == third != second
