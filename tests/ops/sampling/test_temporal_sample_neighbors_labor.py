import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.chance import check_subsets
from tests.ops.graphs import FANOUTS, ID_DTYPES
from tests.ops.timed import NUM_TYPES, TimedGraph, split, timed_graphs

KEYS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
SHARES = st.sampled_from([0, 2**63, 2**64 - 1])


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(timed_graphs(), st.lists(FANOUTS, min_size=NUM_TYPES, max_size=NUM_TYPES), KEYS, SHARES, st.data())
def test_equal_to_the_reference(
    dtype: torch.dtype, graph: TimedGraph, fanouts: list[int], keys: tuple[int, int], share: int, data: st.DataObject
) -> None:
    replace, weighted, by_type = (data.draw(st.booleans()) for _ in range(3))
    fanouts = fanouts if by_type else fanouts[:1]
    picks = ops.temporal_labor_sample_neighbors(
        graph.columns(dtype, weighted=weighted, by_type=by_type),
        *graph.asked(dtype),
        torch.tensor(fanouts),
        keys,
        switch_threshold=share,
        replace=replace,
        windows=None if graph.windows is None else torch.tensor(graph.windows, dtype=torch.int64),
    )
    assert split(picks) == reference.temporal_labor_sample_neighbors(
        (graph.indptr, graph.indices, graph.stamps), graph.periods(), fanouts, (keys, share), replace,
        graph.units if weighted else None, graph.types if by_type else None,
    )  # fmt: skip


def test_eligible_neighbors_and_pairs_are_equally_likely() -> None:
    trials, size, before = 20_000, 12, 8
    indptr = torch.arange(trials + 1) * size
    times = torch.arange(size).repeat(trials)
    columns = ops.TemporalGraph(indptr, torch.arange(trials * size), times)
    seeds = torch.arange(trials)
    ends = torch.full((trials,), before)
    picks = ops.temporal_labor_sample_neighbors(columns, seeds, ends, torch.tensor([3]), (5, 6))
    places = picks.positions.reshape(trials, 3) - indptr[:-1, None]
    assert int(places.max()) < before
    check_subsets(places, before)


def test_columns_at_two_times_choose_the_same_neighbors_of_those_they_share() -> None:
    columns = ops.TemporalGraph(torch.tensor([0, 200]), torch.randperm(200), torch.arange(200))
    seeds, times = torch.zeros(2, dtype=torch.int64), torch.tensor([100, 200])
    early, late = split(ops.temporal_labor_sample_neighbors(columns, seeds, times, torch.tensor([20]), (1, 1)))
    assert {edge for edge in late if edge < 100} <= set(early)
    assert set(early) & set(late)
