"""Seeds of any integer type, and in any form, sample what the same ids of the graph's type sample."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.array_likes import AS
from tests.digests import assert_same, digest

EDGES = torch.tensor([[1, 2, 3, 4, 0, 1], [0, 0, 1, 3, 2, 4]])
TIMES = {"time": torch.tensor([1, 2, 3, 4, 5, 6])}
IDS = torch.tensor([3, 0, 1])
DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint32]

each_kind = pytest.mark.parametrize("convert", AS.values(), ids=AS.keys())
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_graph = pytest.mark.parametrize("of_graph", [torch.int32, torch.int64], ids=str)


def graph_of(dtype: torch.dtype) -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(EDGES.to(dtype), 5, edge_attributes=TIMES)


def hop(graph: gf.FusedCSCSamplingGraph, method: str, seeds: Any) -> gf.SampledSubgraph:
    if method == "in_subgraph":
        return graph.in_subgraph(seeds)
    if method == "temporal_sample_neighbors":
        times = torch.tensor([4, 5, 6])
        return graph.temporal_sample_neighbors(seeds, times, torch.tensor([1]), edge_timestamp_attr_name="time", key=5)
    draws: dict[str, Any] = {"key": 5} if method == "sample_neighbors" else {"random_seed": [5]}
    return getattr(graph, method)(seeds, torch.tensor([1]), **draws)  # type: ignore[no-any-return]


METHODS = ["sample_neighbors", "sample_layer_neighbors", "temporal_sample_neighbors", "in_subgraph"]


@each_graph
@each_dtype
@pytest.mark.parametrize("method", METHODS)
def test_seeds_of_another_integer_type_are_converted(of_graph: torch.dtype, dtype: torch.dtype, method: str) -> None:
    graph = graph_of(of_graph)
    assert_same(vars(hop(graph, method, IDS.to(dtype))), vars(hop(graph, method, IDS.to(of_graph))))


@each_kind
@pytest.mark.parametrize("method", METHODS)
def test_seeds_may_be_array_likes(convert: Callable[[torch.Tensor], Any], method: str) -> None:
    graph = graph_of(torch.int64)
    assert_same(vars(hop(graph, method, convert(IDS))), vars(hop(graph, method, IDS)))


@each_kind
def test_typed_seeds_may_be_array_likes_of_other_types(convert: Callable[[torch.Tensor], Any]) -> None:
    graph = gf.from_coo({"a:b:a": EDGES, "a:c:d": EDGES}, {"a": 5, "d": 5})
    expected = graph.sample_neighbors({"a": IDS, "d": IDS}, torch.tensor([1]), key=5)
    seeds = {"a": convert(IDS), "d": IDS.int()}
    assert_same(vars(graph.sample_neighbors(seeds, torch.tensor([1]), key=5)), vars(expected))


@pytest.mark.parametrize("wrong", [5, -1, 2**32, 2**32 + 3])
def test_a_seed_is_checked_before_it_is_converted(wrong: int) -> None:
    for seeds in (torch.tensor([0, wrong]), [0, wrong]):
        with pytest.raises(ValueError, match=rf"seeds must lie in 0 .. 4, but holds {wrong}"):
            graph_of(torch.int32).sample_neighbors(seeds, torch.tensor([1]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"seeds of type 'a' must lie in 0 .. 4, but holds {wrong}"):
        gf.from_coo({"a:b:a": EDGES.int()}, {"a": 5}).sample_neighbors({"a": torch.tensor([wrong])}, torch.tensor([1]))


PIPES: dict[str, Callable[[gf.Datapipe, gf.FusedCSCSamplingGraph], gf.Datapipe]] = {
    "neighbors": lambda pipe, graph: pipe.sample_neighbor(graph, fanouts=[1, 2]),
    "layer neighbors": lambda pipe, graph: pipe.sample_layer_neighbor(graph, fanouts=[1, 2]),
    "in-edges": lambda pipe, graph: pipe.sample_in_subgraph(graph),
    "links": lambda pipe, graph: (
        pipe.sample_uniform_negative(graph, 2).sample_neighbor(graph, fanouts=[2]).exclude_seed_edges()
    ),
}


@each_graph
@each_dtype
@pytest.mark.parametrize("name", PIPES)
def test_a_pipeline_takes_seeds_of_any_integer_type(of_graph: torch.dtype, dtype: torch.dtype, name: str) -> None:
    seeds = EDGES.T[:4].contiguous() if name == "links" else IDS

    def hops(given: torch.dtype) -> list[str]:
        items = gf.ItemSet(seeds.to(given), names="seeds")
        pipe = PIPES[name](gf.ItemSampler(items, batch_size=2, shuffle=True), graph_of(of_graph))
        return [digest([vars(hop) for hop in batch.sampled_subgraphs]) for batch in pipe]

    assert hops(dtype) == hops(of_graph)


@each_kind
def test_a_minibatcher_may_give_seeds_as_array_likes(convert: Callable[[torch.Tensor], Any]) -> None:
    def own(rows: torch.Tensor, names: Any) -> gf.MiniBatch:
        return gf.MiniBatch(seeds=convert(rows))

    def sampled(items: gf.Datapipe) -> gf.Datapipe:
        graph = graph_of(torch.int64)
        return items.sample_uniform_negative(graph, 1).sample_neighbor(graph, fanouts=[1])

    pairs = gf.ItemSet(EDGES.T.contiguous(), names="seeds")
    pipes = sampled(gf.ItemSampler(pairs, 2, own)), sampled(gf.ItemSampler(pairs, 2))
    for one, other in zip(*pipes, strict=True):
        assert_same(one.input_nodes, other.input_nodes)
        assert_same(one.seeds, other.seeds)
