"""As GraphBolt's in-memory graph, but all is checked when the graph is made, an unknown name is a KeyError, a negative
or too large seed a ValueError, and no seeds at all are no error."""

import pickle
from typing import Any

import pytest
import torch

from graphfeed import ops
from graphfeed.ops.memory import buffers
from graphfeed.storage import CSCFormatBase, FusedCSCSamplingGraph, SampledSubgraph, fused_csc_sampling_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests.digests import assert_same, digest
from tests.pipelines import random_edges

INDPTR = torch.tensor([0, 3, 4, 4, 8, 9])
INDICES = torch.tensor([1, 2, 3, 0, 0, 1, 2, 4, 3])
KEY = 1234
ALL = torch.tensor([-1])


def make_graph(**attributes: torch.Tensor) -> FusedCSCSamplingGraph:
    """Return 5 nodes with in-degrees 3, 1, 0, 4, 1."""
    return fused_csc_sampling_graph(INDPTR, INDICES, edge_attributes=attributes)


def make_typed_graph(edge_ids: bool = False, **weights: torch.Tensor) -> FusedCSCSamplingGraph:
    """Return users 0, 1 and items 2, 3, 4; the numbers of types don't follow the order of the dicts."""
    attributes = {**weights, ORIGINAL_EDGE_ID: torch.arange(10, 16)} if edge_ids else weights
    return fused_csc_sampling_graph(
        torch.tensor([0, 1, 4, 4, 4, 6]),
        torch.tensor([1, 0, 2, 3, 0, 1]),
        node_type_offset=torch.tensor([0, 2, 5]),
        type_per_edge=torch.tensor([0, 0, 2, 2, 1, 1], dtype=torch.uint8),
        node_type_to_id={"item": 1, "user": 0},
        edge_type_to_id={"item:liked_by:user": 2, "user:knows:user": 0, "user:likes:item": 1},
        edge_attributes=attributes,
    )


def csc_of(hop: SampledSubgraph) -> CSCFormatBase:
    assert isinstance(hop.sampled_csc, CSCFormatBase)
    return hop.sampled_csc


def edge_ids_of(hop: SampledSubgraph) -> torch.Tensor:
    assert isinstance(hop.original_edge_ids, torch.Tensor)
    return hop.original_edge_ids


def test_all_neighbours_come_in_the_order_of_the_graph() -> None:
    hop = make_graph().sample_neighbors(torch.tensor([3, 2, 0]), ALL)
    assert_same(csc_of(hop), CSCFormatBase(torch.tensor([0, 4, 4, 7]), torch.tensor([0, 1, 2, 4, 1, 2, 3])))
    assert_same(hop.original_column_node_ids, torch.tensor([3, 2, 0]))
    assert hop.original_row_node_ids is None
    assert_same(hop.original_edge_ids, torch.tensor([4, 5, 6, 7, 0, 1, 2]))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 0, 1, 2, 3, 100])
def test_a_column_has_as_many_edges_as_asked_for(fanout: int, replace: bool) -> None:
    hop = make_graph().sample_neighbors(torch.arange(5), torch.tensor([fanout]), replace=replace, key=KEY)
    degrees = INDPTR.diff()
    expected = degrees.clamp(max=fanout if fanout >= 0 else 5)
    if replace and fanout >= 0:
        expected = torch.where(degrees > 0, fanout, 0)
    assert_same(csc_of(hop).indptr.diff(), expected)
    columns = torch.repeat_interleave(torch.arange(5), expected)
    assert ((INDPTR[columns] <= edge_ids_of(hop)) & (edge_ids_of(hop) < INDPTR[columns + 1])).all()
    assert_same(csc_of(hop).indices, INDICES[edge_ids_of(hop)])
    if not replace or fanout < 0:
        assert len(set(edge_ids_of(hop).tolist())) == len(edge_ids_of(hop))


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("indptr_dtype", [torch.int32, torch.int64])
def test_results_have_the_dtypes_of_the_graph(indptr_dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    graph = fused_csc_sampling_graph(INDPTR.to(indptr_dtype), INDICES.to(index_dtype))
    seeds = torch.tensor([3, 0], dtype=index_dtype)
    hop = graph.sample_neighbors(seeds, torch.tensor([2]), key=KEY)
    usual = make_graph().sample_neighbors(seeds.long(), torch.tensor([2]), key=KEY)
    assert_same(csc_of(hop).indptr, csc_of(usual).indptr.to(indptr_dtype))
    assert_same(csc_of(hop).indices, csc_of(usual).indices.to(index_dtype))
    (layer,) = graph.sample_hops(seeds, SamplingRequest([torch.tensor([2])]), [KEY])
    assert csc_of(layer).indptr.dtype == indptr_dtype
    assert csc_of(layer).indices.dtype == index_dtype


def test_draws_depend_on_key_and_node_alone() -> None:
    graph, fanout = make_graph(), torch.tensor([2])
    alone = graph.sample_neighbors(torch.tensor([3]), fanout, key=KEY)
    among = graph.sample_neighbors(torch.tensor([0, 3, 3]), fanout, key=KEY)
    assert_same(edge_ids_of(among)[2:4], edge_ids_of(alone))
    assert_same(edge_ids_of(among)[4:], edge_ids_of(alone))
    others = {digest(graph.sample_neighbors(torch.tensor([3]), fanout, key=key)) for key in range(50)}
    assert len(others) > 5


def test_waiting_and_optional_results_change_nothing() -> None:
    graph, seeds, fanouts = make_graph(), torch.tensor([3, 0]), torch.tensor([2])
    usual = graph.sample_neighbors(seeds, fanouts, key=KEY)
    assert_same(graph.sample_neighbors(seeds, fanouts, False, None, True, key=KEY), usual)
    assert_same(graph.sample_neighbors(seeds, fanouts, async_op=True, key=KEY).wait(), usual)
    jointly = graph.sample_layer_neighbors(seeds, fanouts, random_seed=[KEY])
    assert_same(graph.sample_layer_neighbors(seeds, fanouts, False, None, True, [KEY], 0.0), jointly)
    assert_same(graph.sample_layer_neighbors(seeds, fanouts, random_seed=[KEY], async_op=True).wait(), jointly)


def test_without_a_key_it_draws_from_torch() -> None:
    graph, seeds = make_graph(), torch.arange(5).repeat(20)
    torch.manual_seed(3)
    first = digest(graph.sample_neighbors(seeds, torch.tensor([2])))
    assert first != digest(graph.sample_neighbors(seeds, torch.tensor([2])))
    torch.manual_seed(3)
    assert first == digest(graph.sample_neighbors(seeds, torch.tensor([2])))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("fanout", "replace"), [(-1, False), (2, False), (3, True)])
def test_an_edge_of_weight_0_is_never_drawn(dtype: torch.dtype, fanout: int, replace: bool) -> None:
    weights = torch.tensor([0, 1, 0, 0, 1, 1, 1, 0, 1]).to(dtype)
    hop = make_graph(w=weights).sample_neighbors(torch.arange(5), torch.tensor([fanout]), replace, "w", key=KEY)
    assert weights[edge_ids_of(hop)].bool().all()
    eligible = torch.tensor([1, 0, 0, 3, 1])
    if fanout > 0:
        eligible = torch.where(eligible > 0, fanout, 0) if replace else eligible.clamp(max=fanout)
    assert_same(csc_of(hop).indptr.diff(), eligible)


def test_a_weight_that_was_replaced_counts() -> None:
    graph = make_graph(w=torch.tensor([1.0] + 8 * [0.0]))
    assert_same(edge_ids_of(graph.sample_neighbors(torch.arange(5), ALL, probs_name="w")), torch.tensor([0]))
    graph.add_edge_attribute("w", torch.tensor(8 * [0.0] + [1.0]))
    assert_same(edge_ids_of(graph.sample_neighbors(torch.arange(5), ALL, probs_name="w")), torch.tensor([8]))


def test_every_edge_type_is_there_with_a_column_for_each_seed_of_its_destination() -> None:
    hop = make_typed_graph().sample_neighbors({"item": torch.tensor([2, 0]), "user": torch.tensor([1])}, ALL)
    none = torch.tensor([], dtype=torch.int64)
    assert_same(hop.original_column_node_ids, {"user": torch.tensor([1]), "item": torch.tensor([2, 0])})
    assert_same(
        hop.sampled_csc,
        {
            "item:liked_by:user": CSCFormatBase(torch.tensor([0, 2]), torch.tensor([0, 1])),
            "user:knows:user": CSCFormatBase(torch.tensor([0, 1]), torch.tensor([0])),
            "user:likes:item": CSCFormatBase(torch.tensor([0, 2, 2]), torch.tensor([0, 1])),
        },
    )
    only_items = make_typed_graph().sample_neighbors({"item": torch.tensor([0])}, ALL)
    assert_same(only_items.original_column_node_ids, {"user": none, "item": torch.tensor([0])})
    assert isinstance(only_items.sampled_csc, dict)
    assert_same(only_items.sampled_csc["user:knows:user"], CSCFormatBase(torch.tensor([0]), none))
    assert_same(only_items.sampled_csc["user:likes:item"], CSCFormatBase(torch.tensor([0, 0]), none))


@pytest.mark.parametrize("original", [False, True], ids=["positions", "original ids"])
def test_edge_ids_are_the_original_ones_where_the_graph_has_them(original: bool) -> None:
    hop = make_typed_graph(original).sample_neighbors({"user": torch.tensor([1]), "item": torch.tensor([2])}, ALL)
    positions = {"item:liked_by:user": [2, 3], "user:knows:user": [1], "user:likes:item": [4, 5]}
    expected = {kind: torch.tensor(places) + (10 if original else 0) for kind, places in positions.items()}
    assert_same(hop.original_edge_ids, expected)


def test_each_edge_type_may_have_its_own_fanout() -> None:
    graph = make_typed_graph()
    fanouts = torch.tensor([0, -1, 1])  # by the types' numbers: knows, likes, liked_by
    hop = graph.sample_neighbors({"user": torch.tensor([1, 1]), "item": torch.tensor([2])}, fanouts, key=KEY)
    assert isinstance(hop.sampled_csc, dict)
    assert {kind: csc.indptr.tolist() for kind, csc in hop.sampled_csc.items()} == {
        "item:liked_by:user": [0, 1, 2],
        "user:knows:user": [0, 0, 0],
        "user:likes:item": [0, 2],
    }


def test_one_fanout_is_for_all_edges_of_a_node_together() -> None:
    for key in range(20):
        hop = make_typed_graph().sample_neighbors({"user": torch.tensor([1])}, torch.tensor([2]), key=key)
        assert isinstance(hop.sampled_csc, dict)
        assert sum(len(csc.indices) for csc in hop.sampled_csc.values()) == 2


def test_no_seeds_give_no_edges() -> None:
    none = torch.tensor([], dtype=torch.int64)
    assert_same(csc_of(make_graph().sample_neighbors(none, ALL)), CSCFormatBase(torch.tensor([0]), none))
    for seeds in ({}, {"user": none}):
        hop = make_typed_graph().sample_neighbors(seeds, ALL)
        assert isinstance(hop.sampled_csc, dict)
        for csc in hop.sampled_csc.values():
            assert_same(csc, CSCFormatBase(torch.tensor([0]), none))
        (layer,) = make_typed_graph().sample_hops(seeds, SamplingRequest([ALL]), [KEY])
        assert_same(layer.original_row_node_ids, {"user": none, "item": none})


def test_all_hops_are_the_same_without_a_dense_node_map(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fused_csc_sampling_graph(torch.arange(0, 3001, 10), random_edges(300, 300, 3000, 0)[0])
    arguments = (torch.arange(0, 300, 7), SamplingRequest([torch.tensor([4]), torch.tensor([3])]), [KEY, KEY + 1])
    usual = graph.sample_hops(*arguments)
    monkeypatch.setattr(buffers, "NODE_MAPS", buffers.NodeMaps(limit_bytes=0))
    assert_same(graph.sample_hops(*arguments), usual)


@pytest.mark.parametrize("make", [make_graph, make_typed_graph])
def test_it_pickles_with_its_attributes_and_weights(make: Any) -> None:
    graph = make(w=torch.rand(9 if make is make_graph else 6))
    seeds = torch.tensor([0, 1])
    typed = graph.node_type_to_id is not None
    arguments = ({"user": seeds} if typed else seeds, torch.tensor([1]), False, "w")
    usual = graph.sample_neighbors(*arguments, key=KEY)
    again = pickle.loads(pickle.dumps(graph))
    assert_same(again.sample_neighbors(*arguments, key=KEY), usual)
    assert_same(again.num_nodes, graph.num_nodes)
    assert_same(again.num_edges, graph.num_edges)


def test_a_large_one_pickles_small_and_brings_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = random_edges(1000, 1000, 1 << 17, 0)[0]
    graph = fused_csc_sampling_graph(torch.linspace(0, 1 << 17, 1001).long(), edges, edge_attributes={"w": edges / 2})
    graph.prepare(SamplingRequest([ALL], probs_name="w"))
    packed = pickle.dumps(graph)
    again = pickle.loads(packed)
    assert len(packed) < 1 << 13
    assert_same(again.indices, edges)
    monkeypatch.setattr(ops, "cumulate_weights", None)
    assert_same(again.cumulative_weights("w"), graph.cumulative_weights("w"))
