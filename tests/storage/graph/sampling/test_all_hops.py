"""All hops of a graph with types in one call give what one hop after the other gives."""

import pickle
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure import csc
from graphfeed.storage.graph.sampling_graph import sample_hop_by_hop
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests import pipelines
from tests.digests import assert_same

SIZES = {"user": 120, "shop": 3, "item": 80}
EDGES = {
    "user:likes:item": pipelines.random_edges(120, 80, 900, 1),
    "user:knows:user": pipelines.random_edges(120, 120, 700, 2),
    "shop:sells:item": torch.empty(2, 0, dtype=torch.int64),
    "item:liked_by:user": pipelines.random_edges(80, 120, 800, 3),
    "item:made_for:shop": pipelines.random_edges(80, 3, 50, 4),
}
WEIGHTS = {kind: torch.arange(ends.shape[1]) % 3.0 for kind, ends in EDGES.items()}
SEEDS = {"item": torch.tensor([5, 0, 5, 7]), "user": torch.arange(12)}
ONE = [torch.tensor([2]), torch.tensor([3]), torch.tensor([4])]
EACH = [torch.tensor([1, 2, 3, -1, 0]), torch.tensor([60, 0, 2, 1, 3])]


def make_graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(EDGES, SIZES, edge_attributes={"w": WEIGHTS})


GRAPH = make_graph()


def one_by_one(graph: gf.FusedCSCSamplingGraph, request: SamplingRequest, keys: list[int]) -> Any:
    def sample(nodes: Any, fanout: torch.Tensor, key: int) -> gf.SampledSubgraph:
        return graph.sample_neighbors(nodes, fanout, request.replace, request.probs_name, key=key)

    return sample_hop_by_hop(graph, SEEDS, request, keys, sample)


@pytest.mark.parametrize("fanouts", [ONE, EACH], ids=["one", "each"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("probs_name", [None, "w"])
def test_equal_to_one_hop_at_a_time(fanouts: list[torch.Tensor], replace: bool, probs_name: str | None) -> None:
    request = SamplingRequest(fanouts, replace, probs_name)
    keys = list(range(7, 7 + len(fanouts)))
    found = GRAPH.sample_hops(SEEDS, request, keys)
    expected = one_by_one(GRAPH, request, keys)
    assert_same(found, expected)
    for mine, its in zip(found, expected, strict=True):
        csc, other = mine.sampled_csc, its.sampled_csc
        assert isinstance(csc, dict)
        assert list(csc) == list(other) == list(EDGES)
        assert all(own.indptr.dtype == other[kind].indptr.dtype for kind, own in csc.items())


@pytest.mark.parametrize("fanouts", [ONE, EACH], ids=["one", "each"])
@pytest.mark.parametrize(("replace", "probs_name"), [(False, None), (True, "w")])
def test_labor_equals_one_hop_at_a_time(fanouts: list[torch.Tensor], replace: bool, probs_name: str | None) -> None:
    request = SamplingRequest(fanouts, replace, probs_name, "labor")
    pairs = [(hop, hop + 1) for hop in range(len(fanouts))]

    def sample(nodes: Any, fanout: torch.Tensor, pair: tuple[int, int]) -> gf.SampledSubgraph:
        return GRAPH.sample_layer_neighbors(nodes, fanout, replace, probs_name, False, pair, 0.3)

    assert_same(
        GRAPH.labor_sample_hops(SEEDS, request, pairs, 0.3), sample_hop_by_hop(GRAPH, SEEDS, request, pairs, sample)
    )


def test_edges_without_ids_are_known_by_their_positions() -> None:
    fields = {name: value for name, value in GRAPH.fields().items() if name != "edge_attributes"}
    graph = gf.fused_csc_sampling_graph(**fields)
    request = SamplingRequest(ONE)
    assert_same(graph.sample_hops(SEEDS, request, [1, 2, 3]), one_by_one(graph, request, [1, 2, 3]))


def test_no_hop_is_made_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "sample_neighbors", None)
    assert len(GRAPH.sample_hops(SEEDS, SamplingRequest(ONE), [1, 2, 3])) == 3
    assert len(GRAPH.labor_sample_hops(SEEDS, SamplingRequest(ONE, strategy="labor"), [(1, 2)] * 3)) == 3


def test_edge_types_that_are_not_met_can_be_changed_one_by_one() -> None:
    (hop,) = GRAPH.sample_hops({"shop": torch.tensor([0])}, SamplingRequest([torch.tensor([2])]), [1])
    parts: Any = hop.sampled_csc
    parts["user:likes:item"].indices = torch.tensor([1])
    assert parts["shop:sells:item"].indices.tolist() == []
    assert [len(own.indptr) for own in parts.values()] == [1, 1, 1, 1, 2]


def test_without_room_for_a_map_the_hops_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = GRAPH.sample_hops(SEEDS, SamplingRequest(ONE), [1, 2, 3])
    monkeypatch.setattr(buffers, "NODE_MAPS", buffers.NodeMaps(limit_bytes=8))
    assert_same(GRAPH.sample_hops(SEEDS, SamplingRequest(ONE), [1, 2, 3]), expected)


def test_a_graph_in_another_process_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = pickle.loads(pickle.dumps(GRAPH))
    monkeypatch.setattr(csc, "check_joined", None)
    assert len(copy.sample_hops(SEEDS, SamplingRequest(ONE), [1, 2, 3])) == 3


def test_seeds_outside_of_their_type_are_named() -> None:
    with pytest.raises(ValueError, match=r"seeds of type 'shop' must lie in 0 \.\. 2, but holds 3"):
        GRAPH.sample_hops({"shop": torch.tensor([3])}, SamplingRequest(ONE), [1, 2, 3])
