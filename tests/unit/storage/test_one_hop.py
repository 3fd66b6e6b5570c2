"""One hop of a graph in memory, checked edge by edge, and compatibility with GraphBolt.

`tests/laws/test_edge_truth.py` checks the number of edges per column, and that they are edges of the graph;
`test_graph_kinds.py` compares them with the slow reference.
"""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage import CSCFormatBase, SampledSubgraph, SamplingRequest, fused_csc_sampling_graph
from tests.kinds import pipelines
from tests.kinds.digests import assert_same, digest
from tests.kinds.small_graphs import ALL, INDICES, INDPTR, KEY, make_graph, make_typed_graph

NONE = torch.tensor([], dtype=torch.int64)
TWO = torch.tensor([2])
BY_TYPE = {"item": torch.tensor([2, 0]), "user": torch.tensor([1])}


def test_every_edge_type_is_there_with_a_column_for_each_seed_of_its_destination() -> None:
    hop = make_typed_graph().sample_neighbors(BY_TYPE, ALL)
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
    assert_same(only_items.original_column_node_ids, {"user": NONE, "item": torch.tensor([0])})
    assert_same(only_items.sampled_csc["user:knows:user"], CSCFormatBase(torch.tensor([0]), NONE))
    assert_same(only_items.sampled_csc["user:likes:item"], CSCFormatBase(torch.tensor([0, 0]), NONE))


def test_columns_without_edges_can_be_viewed_as_bytes() -> None:
    hop: Any = make_typed_graph().sample_neighbors({"item": torch.tensor([0])}, ALL)
    empty = hop.sampled_csc["user:likes:item"].indices, hop.original_edge_ids["user:likes:item"]
    assert [part.view(torch.uint8).numel() for part in empty] == [0, 0]


def test_fan_outs_are_in_the_order_of_the_numbers_of_types() -> None:
    fanouts = torch.tensor([0, -1, 1])  # knows, likes, liked_by
    seeds = {"user": torch.tensor([1, 1]), "item": torch.tensor([2])}
    hop = make_typed_graph().sample_neighbors(seeds, fanouts, key=KEY)
    assert {kind: csc.indptr.tolist() for kind, csc in hop.sampled_csc.items()} == {
        "item:liked_by:user": [0, 1, 2],
        "user:knows:user": [0, 0, 0],
        "user:likes:item": [0, 2],
    }


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_results_have_the_dtypes_of_the_graph(index_dtype: torch.dtype) -> None:
    for indptr_dtype in (torch.int32, torch.int64):
        graph = fused_csc_sampling_graph(INDPTR.to(indptr_dtype), INDICES.to(index_dtype))
        seeds = torch.tensor([3, 0], dtype=index_dtype)
        hop = graph.sample_neighbors(seeds, TWO, key=KEY)
        usual = make_graph().sample_neighbors(seeds.long(), TWO, key=KEY)
        (layer,) = graph.sample_hops(seeds, SamplingRequest([TWO]), [KEY])
        trees = graph.sample_hops(seeds, SamplingRequest([TWO], only_new=True, disjoint=True), [KEY])
        assert_same(hop.sampled_csc.indptr, usual.sampled_csc.indptr.to(indptr_dtype))
        assert_same(hop.sampled_csc.indices, usual.sampled_csc.indices.to(index_dtype))
        for found in (layer, *trees):
            assert (found.sampled_csc.indptr.dtype, found.sampled_csc.indices.dtype) == (indptr_dtype, index_dtype)
            assert found.original_row_node_ids.dtype == index_dtype


def test_waiting_changes_nothing() -> None:
    seeds: Any
    for graph, seeds in ((make_graph(), torch.tensor([3, 0])), (make_typed_graph(), BY_TYPE)):
        usual = graph.sample_neighbors(seeds, TWO, key=KEY)
        assert_same(graph.sample_neighbors(seeds, TWO, async_op=True, key=KEY).wait(), usual)
        jointly = graph.sample_layer_neighbors(seeds, TWO, random_seed=[KEY])
        assert_same(graph.sample_layer_neighbors(seeds, TWO, random_seed=[KEY], async_op=True).wait(), jointly)


def test_without_a_key_it_draws_from_torch() -> None:
    graph, seeds = make_graph(), torch.arange(5).repeat(20)
    torch.manual_seed(3)
    first = digest(graph.sample_neighbors(seeds, TWO))
    assert first != digest(graph.sample_neighbors(seeds, TWO))
    torch.manual_seed(3)
    assert first == digest(graph.sample_neighbors(seeds, TWO))


def test_no_seeds_give_no_edges() -> None:
    assert_same(make_graph().sample_neighbors(NONE, ALL).sampled_csc, CSCFormatBase(torch.tensor([0]), NONE))
    for seeds in ({}, {"user": NONE}):
        for csc in make_typed_graph().sample_neighbors(seeds, ALL).sampled_csc.values():
            assert_same(csc, CSCFormatBase(torch.tensor([0]), NONE))
        (layer,) = make_typed_graph().sample_hops(seeds, SamplingRequest([ALL]), [KEY])
        assert_same(layer.original_row_node_ids, {"user": NONE, "item": NONE})


def test_edge_types_that_are_not_met_can_be_changed_one_by_one() -> None:
    graph, seeds = make_typed_graph(time=torch.arange(6)), {"item": torch.tensor([1])}
    in_time = SamplingRequest([TWO], temporal=gf.TemporalQuery(edge_timestamp_attr_name="time"))
    for (hop,) in (
        graph.sample_hops(seeds, SamplingRequest([TWO]), [1]),
        graph.sample_hops(seeds, in_time, [1], seeds_timestamp={"item": torch.tensor([9])}),
    ):
        parts = hop.sampled_csc
        parts["user:knows:user"].indices = torch.tensor([1])
        assert parts["item:liked_by:user"].indices.tolist() == []
        assert [len(own.indptr) for own in parts.values()] == [1, 1, 2]


def test_equal_seeds_of_labor_give_equal_samples() -> None:
    seeds: Any
    plain = gf.from_coo(pipelines.random_edges(50, 50, 900, 0), 50)
    typed = gf.from_coo({"a:r:b": pipelines.random_edges(50, 50, 900, 0)}, {"a": 50, "b": 50})
    for graph, seeds in ((plain, torch.arange(10)), (typed, {"b": torch.arange(10)})):

        def sample(graph: gf.FusedCSCSamplingGraph = graph, seeds: Any = seeds, **options: Any) -> SampledSubgraph:
            hop: SampledSubgraph = graph.sample_layer_neighbors(seeds, torch.tensor([3]), **options)
            return hop

        first = sample(random_seed=[7])
        assert_same(sample(random_seed=torch.tensor([7])), first)
        assert_same(sample(random_seed=[7, 8]), first)
        assert_same(sample(random_seed=[8, 7], seed2_contribution=1.0), first)
        assert_same(sample(random_seed=[7 - 2**64]), first)
        others = [sample(random_seed=[8]), sample(random_seed=[7, 8], seed2_contribution=0.5), sample(), sample()]
        assert len({digest(other) for other in [first, *others]}) == 5
