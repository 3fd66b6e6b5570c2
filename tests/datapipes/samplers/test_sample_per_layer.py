from itertools import product
from typing import Any

import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same, digest, digests

GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50, edge_attributes={"w": torch.rand(600)})
TYPED = gf.from_coo(
    {
        "user:likes:item": pipelines.random_edges(20, 10, 100, 1),
        "item:liked_by:user": pipelines.random_edges(10, 20, 100, 2),
    },
    {"user": 20, "item": 10},
)
ITEMS = gf.ItemSampler(gf.ItemSet(torch.arange(50), names="seeds"), batch_size=20, shuffle=True)


def two_layers(items: gf.Datapipe, graph: Any, fanouts: Any, *, deduplicate: bool = True) -> gf.Datapipe:
    pipe = items
    for fanout in reversed(fanouts):
        pipe = pipe.sample_per_layer(graph.sample_neighbors, fanout).compact_per_layer(deduplicate)
    return pipe


def test_layer_by_layer_is_all_layers_at_once() -> None:
    choices: list[tuple[gf.SamplingGraph, Any]] = [
        (GRAPH, torch.tensor([3, 9, 3])),
        (GRAPH, torch.tensor([[3, 9], [9, 1]])),
        (TYPED, {"item": torch.tensor([3, 1])}),
        (TYPED, {"user:likes:item": torch.tensor([[4, 2], [4, 3]])}),
    ]
    for (graph, seeds), deduplicate in product(choices, [True, False]):
        source = gf.IterableSource([gf.MiniBatch(seeds=seeds)])
        (expected,) = source.sample_neighbor(graph, [-1, -1], deduplicate=deduplicate)
        (batch,) = two_layers(source, graph, [-1, -1], deduplicate=deduplicate)
        assert_same(batch, expected)


def test_layers_draw_by_the_mini_batch_and_apart() -> None:
    pipe = two_layers(ITEMS, GRAPH, [2, 2])
    with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        assert digests(loader) == digests(pipe.with_seed(0))
    for batch in pipe:
        outer, inner = batch.sampled_subgraphs
        count = int(outer.sampled_csc.indptr[20])
        assert outer.original_edge_ids[:count].tolist() != inner.original_edge_ids.tolist()


def test_options_reach_the_graph() -> None:
    def listen(*given: Any) -> gf.SampledSubgraph:
        heard.append(given[1:])
        return GRAPH.sample_neighbors(*given)

    heard: list[Any] = []
    next(iter(ITEMS.sample_per_layer(listen, 3, replace=True)))
    next(iter(ITEMS.sample_per_layer(listen, 2, prob_name="w")))
    assert_same(heard, [(torch.tensor([3]), True, None), (torch.tensor([2]), False, "w")])


def test_a_stage_between_may_change_the_layer() -> None:
    """Here it drops edges, so that their sources are never input nodes."""

    def drop_all(minibatch: Any) -> gf.MiniBatch:
        (layer,) = minibatch.sampled_subgraphs
        csc = layer.sampled_csc
        layer.sampled_csc = gf.CSCFormatBase(torch.zeros_like(csc.indptr), csc.indices[:0])
        assert isinstance(minibatch, gf.MiniBatch)
        return minibatch

    pipe = ITEMS.sample_per_layer(GRAPH.sample_neighbors, 3).transform(drop_all).compact_per_layer(True)
    for batch in pipe:
        assert_same(batch.input_nodes, batch.seeds)


def test_it_goes_on_from_a_sampler_before() -> None:
    before = next(iter(ITEMS.sample_neighbor(GRAPH, [2])))
    batch = next(iter(two_layers(ITEMS.sample_neighbor(GRAPH, [2]), GRAPH, [2])))
    assert len(batch.sampled_subgraphs) == 2
    assert digest(batch.sampled_subgraphs[1]) == digest(before.sampled_subgraphs[0])
    assert_same(batch.sampled_subgraphs[0].original_column_node_ids, before.input_nodes)
