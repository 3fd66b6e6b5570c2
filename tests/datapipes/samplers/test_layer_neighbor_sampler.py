"""Layer-neighbour sampling (LABOR), without types and with them."""

import pickle
from importlib import import_module
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.digests import assert_same, digests
from tests.tensors import degrees, layers_of, tensor

NUM_NODES, NUM_EDGES = 2000, 60_000


def power_law(seed: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph in which few nodes have many of the edges, at both ends; none has two from one neighbour."""
    generator = torch.Generator().manual_seed(seed)
    ends = (torch.rand(2, NUM_EDGES, generator=generator) ** 3 * NUM_NODES).long()
    ends = torch.tensor(sorted(set(zip(*ends.tolist(), strict=True)))).T
    weights = torch.rand(ends.shape[1], generator=generator)
    return gf.from_coo(ends, NUM_NODES, edge_attributes={"w": weights})


GRAPH = power_law(0)
ITEMS = gf.ItemSampler(gf.ItemSet(torch.arange(0, NUM_NODES, 2), names="seeds"), batch_size=100, shuffle=True)


def num_inputs(pipe: gf.Datapipe) -> int:
    return sum(len(tensor(batch.input_nodes)) for batch in pipe)


def shared_inputs(pipe: gf.Datapipe, apart: int) -> float:
    """Return which part of a mini-batch's chosen edges is chosen again in one so far apart, for the same seeds."""
    batches = [set(tensor(layers_of(batch)[0].original_edge_ids).tolist()) for batch in pipe]
    pairs = zip(batches, batches[apart:], strict=False)
    return sum(len(one & other) / len(one) for one, other in pairs) / (len(batches) - apart)


def test_each_node_has_as_many_neighbors_as_without() -> None:
    choices: list[dict[str, Any]] = [{}, {"prob_name": "w"}, {"batch_dependency": 5}, {"layer_dependency": True}]
    for options in choices:
        batch = next(iter(ITEMS.sample_layer_neighbor(GRAPH, [4, -1, 6], **options)))
        for layer, fanout in zip(layers_of(batch), [4, NUM_EDGES, 6], strict=True):
            available = GRAPH.csc_indptr.diff()[tensor(layer.original_column_node_ids)]
            assert_same(degrees(layer), available.clamp(max=fanout))


def test_it_takes_fewer_nodes() -> None:
    many = num_inputs(ITEMS.sample_neighbor(GRAPH, [5, 5]))
    fewer = num_inputs(ITEMS.sample_layer_neighbor(GRAPH, [5, 5]))
    fewest = num_inputs(ITEMS.sample_layer_neighbor(GRAPH, [5, 5], layer_dependency=True))
    assert fewest < fewer < 0.8 * many


def test_mini_batches_share_less_the_further_apart_they_are() -> None:
    seeds = torch.arange(100).repeat(24)  # the same in each mini-batch
    pipe = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=100).sample_layer_neighbor(
        GRAPH, [5], batch_dependency=12
    )
    shares = [shared_inputs(pipe, apart) for apart in (1, 3, 6, 12)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    independent = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=100).sample_layer_neighbor(GRAPH, [5])
    assert shares[-1] == pytest.approx(shared_inputs(independent, 1), abs=0.1)


def test_layers_share_their_variates_where_asked() -> None:
    items = gf.ItemSampler(gf.ItemSet(torch.arange(50), names="seeds"), batch_size=50)
    for dependent in (False, True):
        (batch,) = items.sample_layer_neighbor(GRAPH, [5, 5], layer_dependency=dependent)
        outer, inner = (tensor(layer.original_edge_ids).tolist() for layer in layers_of(batch))
        assert (outer[: len(inner)] == inner) is dependent


def test_without_merging_the_same_edges_have_a_row_each() -> None:
    for merged, apart in zip(
        ITEMS.sample_layer_neighbor(GRAPH, [3], batch_dependency=3),
        ITEMS.sample_layer_neighbor(GRAPH, [3], batch_dependency=3, deduplicate=False),
        strict=True,
    ):
        (one,), (other,) = layers_of(merged), layers_of(apart)
        assert_same(other.original_edge_ids, one.original_edge_ids)
        assert len(tensor(apart.input_nodes)) == 100 + len(tensor(other.original_edge_ids))


def test_an_index_of_large_columns_changes_nothing_and_travels_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = power_law(1)
    pipe = ITEMS.sample_layer_neighbor(graph, [3, 5])
    expected = digests(pipe)
    monkeypatch.setattr(import_module("graphfeed.ops.sampling.high_degree_index"), "MIN_DEGREE", 30)
    monkeypatch.setattr(import_module("graphfeed.ops.sampling.high_degree_index"), "MAX_SHARE", 2)
    fresh = power_law(1)
    copy = pickle.loads(pickle.dumps(ITEMS.sample_layer_neighbor(fresh, [3, 5])))
    made, its = fresh.high_degree_index(), copy.graph.high_degree_index()
    assert made is not None
    assert len(made.entries) > NUM_NODES
    assert_same(its, made)
    assert digests(copy) == expected
