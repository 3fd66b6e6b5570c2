from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.storage.graph.sampling_request import Strategy
from tests.digests import assert_same, digests
from tests.pipelines import random_edges
from tests.tensors import tensor

SIZE, MANY = 300, 6000
GENERATOR = torch.Generator().manual_seed(0)
EDGES = random_edges(SIZE, SIZE, MANY, 0)
TIMES = torch.randint(0, 1000, (MANY,), generator=GENERATOR)
BORN = torch.randint(0, 500, (SIZE,), generator=GENERATOR)
GRAPH = gf.from_coo(EDGES, SIZE, node_attributes={"born": BORN}, edge_attributes={"time": TIMES, "w": TIMES / 1000})
SEEDS, MOMENTS = torch.arange(SIZE), torch.randint(0, 1200, (SIZE,), generator=GENERATOR)
ITEMS = gf.ItemSampler(gf.ItemSet((SEEDS, MOMENTS), names=("seeds", "timestamp")), batch_size=40, shuffle=True)


def check_times(batch: gf.MiniBatch, seed_times: torch.Tensor, names: Any, window: int | None, hop_time: str) -> int:
    """Check ids, rows and times of all edges of a mini-batch; return how many there are."""
    times, count = seed_times, 0
    assert batch.sampled_subgraphs is not None
    rows = batch.sampled_subgraphs[-1].original_column_node_ids
    for layer in reversed(batch.sampled_subgraphs):
        csc, edges = layer.sampled_csc, tensor(layer.original_edge_ids)
        assert isinstance(csc, gf.CSCFormatBase)
        columns = tensor(layer.original_column_node_ids)
        assert torch.equal(columns, tensor(rows))
        rows = torch.cat([columns, EDGES[0][edges]])
        assert torch.equal(tensor(layer.original_row_node_ids), rows)
        assert torch.equal(csc.indices, torch.arange(len(columns), len(rows)))
        places = torch.repeat_interleave(csc.indptr.diff())
        assert torch.equal(columns[places], EDGES[1][edges])
        for stamps in ([TIMES[edges]] if names[1] else []) + ([BORN[EDGES[0][edges]]] if names[0] else []):
            assert (stamps < times[places]).all()
            assert window is None or (stamps > times[places] - window).all()
        times = torch.cat([times, TIMES[edges] if hop_time == "edge" else times[places]])
        count += len(edges)
    assert torch.equal(tensor(batch.input_nodes), tensor(rows))
    return count


@given(
    st.sampled_from([("born", "time"), (None, "time"), ("born", None)]),
    st.sampled_from(["uniform", "latest"]),
    st.sampled_from([None, 300]),
    st.data(),
)
def test_time_is_never_violated(names: Any, strategy: Any, window: int | None, data: st.DataObject) -> None:
    hop_time: Any = data.draw(st.sampled_from(["seed", "edge"] if names[1] else ["seed"]))
    weights = "w" if strategy == "uniform" and data.draw(st.booleans()) else None
    fanouts = data.draw(st.lists(st.sampled_from([-1, 2, 5]), min_size=2, max_size=2))
    pipe = ITEMS.temporal_sample_neighbor(
        GRAPH, fanouts, False, weights, names[0], names[1], window, hop_time, strategy
    )  # fmt: skip
    batch = next(iter(pipe))
    assert check_times(batch, tensor(batch.timestamp), names, window, hop_time) > 0


@pytest.mark.parametrize("own", [False, True])
def test_ends_of_edges_are_looked_at_at_their_times(own: bool) -> None:
    pairs = EDGES.T[:60]
    moments = torch.stack([TIMES[:60], TIMES[:60] + 400], dim=1) if own else TIMES[:60]
    items = gf.ItemSampler(gf.ItemSet((pairs, moments), names=("seeds", "timestamp")), batch_size=20)
    for batch in items.temporal_sample_neighbor(GRAPH, [3], edge_timestamp_attr_name="time"):
        layers = batch.sampled_subgraphs
        assert layers is not None
        columns, seeds = tensor(layers[0].original_column_node_ids), tensor(batch.seeds)
        assert torch.equal(columns[tensor(batch.compacted_seeds)], seeds)
        times = tensor(batch.timestamp)
        check_times(batch, times.reshape(-1) if own else times.repeat_interleave(2), (None, "time"), None, "seed")


def test_an_inclusive_window_as_large_as_can_be_takes_all_from_before() -> None:
    def sample(window: int | None) -> list[str]:
        options: dict[str, Any] = {"edge_timestamp_attr_name": "time", "pre_time_window": window, "inclusive": True}
        return digests(ITEMS.temporal_sample_neighbor(GRAPH, [3, 3], **options))

    expected = sample(None)
    for window in (2**63 - 3, 2**63 - 2, 2**63 - 1):
        assert sample(window) == expected, window


class Newest(gf.TemporalSampler):
    """A sampler of a user."""

    @property
    def chosen_by(self) -> Strategy:
        return "latest"


def test_a_subclass_says_how_edges_are_chosen() -> None:
    named = ITEMS.temporal_sample_neighbor(GRAPH, [3, 2], edge_timestamp_attr_name="time", strategy="latest")
    assert digests(Newest(ITEMS, GRAPH, [3, 2], edge_timestamp_attr_name="time")) == digests(named)


def test_each_seed_may_have_a_window_of_its_own() -> None:
    stage: Any = ITEMS.temporal_sample_neighbor(GRAPH, [3, 2], edge_timestamp_attr_name="time")
    same: Any = ITEMS.temporal_sample_neighbor(GRAPH, [3, 2], edge_timestamp_attr_name="time", pre_time_window=300)
    torch.manual_seed(0)
    expected = same.sample_subgraphs(SEEDS, MOMENTS)
    torch.manual_seed(0)
    assert_same(stage.sample_subgraphs(SEEDS, MOMENTS, torch.full_like(SEEDS, 300)), expected)
