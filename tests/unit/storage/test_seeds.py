"""Seeds of any integer dtype and in any form give the same samples as seeds of the graph's dtype."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds.array_likes import AS
from tests.kinds.digests import assert_same, digest

EDGES = torch.tensor([[1, 2, 3, 4, 0, 1], [0, 0, 1, 3, 2, 4]])
IDS = torch.tensor([3, 0, 1])
DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint32]
ONE = torch.tensor([1])

each_graph = pytest.mark.parametrize("of_graph", [torch.int32, torch.int64], ids=str)


def graph_of(dtype: torch.dtype) -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(EDGES.to(dtype), 5, edge_attributes={"time": torch.tensor([1, 2, 3, 4, 5, 6])})


METHODS: dict[str, Callable[[gf.FusedCSCSamplingGraph, Any], gf.SampledSubgraph]] = {
    "sample_neighbors": lambda graph, seeds: graph.sample_neighbors(seeds, ONE, key=5),
    "sample_layer_neighbors": lambda graph, seeds: graph.sample_layer_neighbors(seeds, ONE, random_seed=[5]),
    "temporal_sample_neighbors": lambda graph, seeds: graph.temporal_sample_neighbors(
        seeds, torch.tensor([4, 5, 6]), ONE, edge_timestamp_attr_name="time", key=5
    ),
    "in_subgraph": lambda graph, seeds: graph.in_subgraph(seeds),
}
PIPES: dict[str, Callable[[gf.Datapipe, gf.FusedCSCSamplingGraph], gf.Datapipe]] = {
    "neighbors": lambda pipe, graph: pipe.sample_neighbor(graph, fanouts=[1, 2]),
    "layer neighbors": lambda pipe, graph: pipe.sample_layer_neighbor(graph, fanouts=[1, 2]),
    "in-edges": lambda pipe, graph: pipe.sample_in_subgraph(graph),
    "links": lambda pipe, graph: (
        pipe.sample_uniform_negative(graph, 2).sample_neighbor(graph, fanouts=[2]).exclude_seed_edges()
    ),
}


@each_graph
def test_seeds_of_another_integer_type_are_converted(of_graph: torch.dtype) -> None:
    graph = graph_of(of_graph)
    for sample in METHODS.values():
        expected = vars(sample(graph, IDS.to(of_graph)))
        for dtype in DTYPES:
            assert_same(vars(sample(graph, IDS.to(dtype))), expected)


def test_seeds_may_be_array_likes() -> None:
    graph, typed = graph_of(torch.int64), gf.from_coo({"a:b:a": EDGES, "a:c:d": EDGES}, {"a": 5, "d": 5})
    expected = typed.sample_neighbors({"a": IDS, "d": IDS}, ONE, key=5)
    convert: Callable[[torch.Tensor], Any]
    for convert in AS.values():
        for sample in METHODS.values():
            assert_same(vars(sample(graph, convert(IDS))), vars(sample(graph, IDS)))
        seeds = {"a": convert(IDS), "d": IDS.int()}
        assert_same(vars(typed.sample_neighbors(seeds, ONE, key=5)), vars(expected))


@each_graph
def test_a_pipeline_takes_seeds_of_any_integer_type(of_graph: torch.dtype) -> None:
    def hops(name: str, given: torch.dtype) -> list[str]:
        seeds = EDGES.T[:4].contiguous() if name == "links" else IDS
        items = gf.ItemSet(seeds.to(given), names="seeds")
        pipe = PIPES[name](gf.ItemSampler(items, batch_size=2, shuffle=True), graph_of(of_graph))
        return [digest([vars(hop) for hop in batch.sampled_subgraphs]) for batch in pipe]

    for name in PIPES:
        expected = hops(name, of_graph)
        for dtype in DTYPES:
            assert hops(name, dtype) == expected, (name, dtype)


def test_a_minibatcher_may_give_seeds_as_array_likes() -> None:
    graph, pairs = graph_of(torch.int64), gf.ItemSet(EDGES.T.contiguous(), names="seeds")

    def sampled(items: gf.Datapipe) -> list[Any]:
        return list(items.sample_uniform_negative(graph, 1).sample_neighbor(graph, fanouts=[1]))

    expected = sampled(gf.ItemSampler(pairs, 2))
    for convert in AS.values():

        def own(rows: torch.Tensor, names: Any, convert: Any = convert) -> gf.MiniBatch:
            return gf.MiniBatch(seeds=convert(rows))

        for one, other in zip(sampled(gf.ItemSampler(pairs, 2, own)), expected, strict=True):
            assert_same(one.input_nodes, other.input_nodes)
            assert_same(one.seeds, other.seeds)


def test_times_of_edges_and_of_seeds_are_any_integers() -> None:
    ends, times = torch.tensor([[0, 1, 2], [0, 0, 0]]), torch.tensor([3, 1, 2], dtype=torch.int16)
    graph = gf.from_coo(ends, 3, edge_attributes={"time": times})
    hop: Any = graph.temporal_sample_neighbors(
        torch.tensor([0]), torch.tensor([3], dtype=torch.int32), torch.tensor([-1]), edge_timestamp_attr_name="time"
    )
    assert hop.original_edge_ids.tolist() == [1, 2]


def test_requests_are_equal_by_value() -> None:
    query = gf.TemporalQuery(edge_timestamp_attr_name="time", pre_time_window=3)
    fanouts: list[Any] = [[[2, 1], [3]], [torch.tensor([2, 1]), torch.tensor([3])], ((2, 1), (3,))]
    requests = {gf.SamplingRequest(own, True, temporal=replace(query)) for own in fanouts}
    assert [request.fanouts for request in requests] == [((2, 1), (3,))]
    assert len(requests | {gf.SamplingRequest(fanouts[0], True), gf.SamplingRequest([[2], [3]], True)}) == 3
