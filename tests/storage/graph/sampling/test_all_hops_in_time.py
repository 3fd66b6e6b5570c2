"""All hops in time in one call give what one hop after the other gives."""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.storage.graph.sampling.temporal_sampling import temporal_sample_hop_by_hop, temporal_sample_one_hop
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests.digests import assert_same
from tests.pipelines import random_edges

SIZES = {"user": 60, "shop": 3, "item": 40}
EDGES = {
    "user:likes:item": random_edges(60, 40, 450, 1),
    "user:knows:user": random_edges(60, 60, 350, 2),
    "shop:sells:item": torch.empty(2, 0, dtype=torch.int64),
    "item:liked_by:user": random_edges(40, 60, 400, 3),
    "item:made_for:shop": random_edges(40, 3, 50, 4),
}
GENERATOR = torch.Generator().manual_seed(5)
COUNTS = {kind: ends.shape[1] for kind, ends in EDGES.items()}
GRAPH = gf.from_coo(
    EDGES,
    SIZES,
    node_attributes={
        "born": {kind: torch.randint(0, 60, (size,), generator=GENERATOR) for kind, size in SIZES.items()}
    },
    edge_attributes={
        "time": {kind: torch.randint(0, 100, (count,), generator=GENERATOR) for kind, count in COUNTS.items()},
        "w": {kind: (torch.rand(count, generator=GENERATOR) - 0.3).clamp(min=0) for kind, count in COUNTS.items()},
    },
)
SEEDS = {"item": torch.tensor([5, 0, 5, 7]), "user": torch.arange(12)}
MOMENTS = {"item": torch.tensor([50, 90, 20, 0]), "user": torch.arange(12) * 9}
WINDOWS = {"item": torch.tensor([5, 90, 0, 30]), "user": torch.arange(12) * 4}
ONE = [torch.tensor([2]), torch.tensor([3]), torch.tensor([-1])]
EACH = [torch.tensor([1, 2, 3, -1, 0]), torch.tensor([60, 0, 2, 1, 3])]
BOTH = [torch.tensor([2]), torch.tensor([60, 0, 2, 1, 3])]
NAMES = [("born", "time"), (None, "time"), ("born", None)]
WAYS: list[Any] = [
    ("uniform", False, None), ("uniform", True, "w"), ("uniform", False, "w"), ("latest", False, None),
    ("labor", False, None),
]  # fmt: skip


def requests(fanouts: list[torch.Tensor]) -> list[SamplingRequest]:
    """Return a request for each way of sampling in time."""
    found = []
    for names, window, (strategy, again, weights) in product(NAMES, (None, 30, WINDOWS), WAYS):
        hop_time: Any = "seed" if window is WINDOWS or names[1] is None else "edge"
        query = gf.TemporalQuery(*names, window, hop_time, inclusive=names[0] is None)
        found.append(SamplingRequest(fanouts, again, weights, strategy, temporal=query))
    return found


def hop_by_hop(request: SamplingRequest, keys: list[int]) -> Any:
    sample = partial(temporal_sample_one_hop, GRAPH)
    return temporal_sample_hop_by_hop(GRAPH.num_nodes, sample, SEEDS, MOMENTS, request, keys)


@pytest.mark.parametrize("fanouts", [ONE, EACH, BOTH], ids=["one", "each", "both"])
def test_types_are_equal_to_one_hop_at_a_time(fanouts: list[torch.Tensor]) -> None:
    keys = list(range(7, 7 + len(fanouts)))
    for request in requests(fanouts):
        found, expected = GRAPH.temporal_sample_hops(SEEDS, MOMENTS, request, keys), hop_by_hop(request, keys)
        assert_same(found, expected)
        for mine, its in zip(found, expected, strict=True):
            csc: Any = mine.sampled_csc
            assert list(csc) == list(its.sampled_csc) == list(EDGES)
            assert all(own.indptr.dtype == its.sampled_csc[kind].indptr.dtype for kind, own in csc.items())


def test_no_hop_of_a_graph_with_types_is_made_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "sample_neighbors", None)
    for request in requests(BOTH):
        assert len(GRAPH.temporal_sample_hops(SEEDS, MOMENTS, request, [1, 2])) == 2


def test_trees_whose_nodes_are_merged_are_made_hop_by_hop() -> None:
    query = gf.TemporalQuery(edge_timestamp_attr_name="time")
    request = SamplingRequest(ONE, temporal=query, only_new=True, disjoint=True)
    assert_same(GRAPH.temporal_sample_hops(SEEDS, MOMENTS, request, [1, 2, 3]), hop_by_hop(request, [1, 2, 3]))


def test_edge_types_that_are_not_met_can_be_changed_one_by_one() -> None:
    request = SamplingRequest([torch.tensor([2])], temporal=gf.TemporalQuery(edge_timestamp_attr_name="time"))
    (hop,) = GRAPH.temporal_sample_hops({"shop": torch.tensor([0])}, {"shop": torch.tensor([99])}, request, [1])
    parts: Any = hop.sampled_csc
    parts["user:likes:item"].indices = torch.tensor([1])
    assert parts["shop:sells:item"].indices.tolist() == []
    assert [len(own.indptr) for own in parts.values()] == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("hop_time", ["seed", "edge"])
def test_what_has_the_time_of_a_seed_exists_in_one_call_as_hop_by_hop(hop_time: Any) -> None:
    ends, times = random_edges(40, 40, 900, 8), torch.arange(900) // 60
    graph = gf.from_coo(ends, 40, edge_attributes={"time": times})
    seeds, moments = torch.tensor([3, 0, 3, 7]), torch.tensor([5, 9, 14, 2])
    query = gf.TemporalQuery(None, "time", 4, hop_time, inclusive=True)
    request = SamplingRequest([torch.tensor([-1]), torch.tensor([3])], temporal=query)
    sample = partial(temporal_sample_one_hop, graph)
    expected = temporal_sample_hop_by_hop(40, sample, seeds, moments, request, [1, 2])
    assert_same(graph.temporal_sample_hops(seeds, moments, request, [1, 2]), expected)
    exclusive = replace(request, temporal=replace(query, inclusive=False))
    fewer, more = graph.temporal_sample_hops(seeds, moments, exclusive, [1, 2])[0].sampled_csc, expected[0].sampled_csc
    assert isinstance(fewer, gf.CSCFormatBase)
    assert isinstance(more, gf.CSCFormatBase)
    assert len(fewer.indices) < len(more.indices)
