"""Layer-neighbour sampling (LABOR), without types and with them."""

import pickle
from importlib import import_module
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests import pipelines
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


def means(pipe: gf.Datapipe, values: torch.Tensor, epochs: int) -> torch.Tensor:
    """Estimate each node's mean over its neighbours, once an epoch."""
    estimates = []
    for epoch in range(epochs):
        (batch,) = pipe.with_seed(1, epoch)
        (layer,) = layers_of(batch)
        assert isinstance(layer.sampled_csc, gf.CSCFormatBase)
        sources = tensor(layer.original_row_node_ids)[layer.sampled_csc.indices]
        columns = torch.repeat_interleave(degrees(layer))
        sums = torch.zeros(len(degrees(layer)), dtype=torch.float64)
        estimates.append(sums.index_add(0, columns, values[sources]) / degrees(layer))
    return torch.stack(estimates)


@pytest.mark.slow
@pytest.mark.thorough
def test_estimates_of_a_mean_are_as_good() -> None:
    degrees = GRAPH.csc_indptr.diff()
    seeds = torch.nonzero(degrees > 20).flatten()[:300]
    values = torch.rand(NUM_NODES, dtype=torch.float64)
    columns = torch.repeat_interleave(degrees)
    exact = torch.zeros(NUM_NODES, dtype=torch.float64).index_add(0, columns, values[GRAPH.indices])[seeds]
    exact /= degrees[seeds]
    items = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=len(seeds))
    errors = {}
    for name, pipe in {
        "alone": items.sample_neighbor(GRAPH, [5]),
        "together": items.sample_layer_neighbor(GRAPH, [5]),
    }.items():
        estimates = means(pipe, values, 400)
        errors[name] = float(((estimates - exact) ** 2).mean())
        assert float((estimates.mean(0) - exact).abs().mean()) < 0.02
    assert errors["together"] < 1.15 * errors["alone"]


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


def test_a_graph_with_types_has_fanouts_by_type() -> None:
    for batch in pipelines.layer_sampled_by_type():
        inner = layers_of(batch)[-1].sampled_csc
        assert isinstance(inner, dict)
        assert int(inner["item:liked_by:user"].indptr.diff().max()) <= 4


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


EDGES = {
    "user:likes:item": pipelines.random_edges(60, 30, 900, 1),
    "item:liked_by:user": pipelines.random_edges(30, 60, 900, 2),
}
TYPED = gf.from_coo(EDGES, {"user": 60, "item": 30})
PLAIN = gf.from_coo(EDGES["item:liked_by:user"], num_nodes=60)
TYPED_ITEMS = gf.ItemSampler(
    gf.HeteroItemSet({"user": gf.ItemSet(60, names="seeds"), "item": gf.ItemSet(30, names="seeds")}),
    batch_size=20,
    shuffle=True,
)


def sample_typed(seeds: Any, graph: gf.SamplingGraph = TYPED, index: int = 0, **options: Any) -> Any:
    stage: Any = gf.IterableSource([]).sample_layer_neighbor(graph, **options)
    return stage(gf.MiniBatch(seeds=seeds, key=Key(0, 0, index)))


def check_edges(layer: Any, deduplicate: bool = True) -> None:
    """Each edge joins the nodes that the edge of its id joins, and the rows begin with the columns."""
    for kind, csc in layer.sampled_csc.items():
        source, _, destination = kind.split(":")
        rows, columns = layer.original_row_node_ids[source], layer.original_column_node_ids[destination]
        sources, destinations = EDGES[kind][:, layer.original_edge_ids[kind]]
        assert_same(rows[csc.indices], sources)
        assert_same(columns.repeat_interleave(csc.indptr.diff()), destinations)
    for kind, rows in layer.original_row_node_ids.items():
        columns = layer.original_column_node_ids[kind]
        assert_same(rows[: len(columns)], columns)
        assert not deduplicate or len(set(rows.tolist())) == len(rows)


@pytest.mark.parametrize("deduplicate", [True, False])
def test_layers_lie_on_each_other_and_have_the_edges_of_the_graph(deduplicate: bool) -> None:
    for batch in TYPED_ITEMS.sample_layer_neighbor(TYPED, [[2, 3], [-1, 1]], deduplicate=deduplicate):
        outer, inner = batch.sampled_subgraphs
        check_edges(inner, deduplicate)
        check_edges(outer, deduplicate)
        assert_same(outer.original_column_node_ids, inner.original_row_node_ids)
        assert_same(batch.input_nodes, outer.original_row_node_ids)


def test_mini_batches_that_depend_on_each_other_share_most_edges() -> None:
    seeds = {"user": torch.arange(60), "item": torch.arange(30)}
    edges = []
    for index in (0, 1, 7):
        (layer,) = sample_typed(seeds, index=index, fanouts=[4], batch_dependency=8).sampled_subgraphs
        edges.append({(kind, edge) for kind, ids in layer.original_edge_ids.items() for edge in ids.tolist()})
    first, next_one, last = edges
    assert len(first & next_one) > 0.7 * len(first) > len(first & last) * 1.3


def test_layers_of_types_share_their_variates_where_asked() -> None:
    seeds = {"user": torch.arange(60), "item": torch.arange(30)}
    for dependent in (False, True):
        outer, inner = sample_typed(seeds, fanouts=[4, 4], layer_dependency=dependent).sampled_subgraphs
        assert all(
            (outer.original_edge_ids[kind].tolist() == inner.original_edge_ids[kind].tolist()) is dependent
            for kind in EDGES
        )


def test_with_replacement_every_node_with_neighbours_gets_its_fanout() -> None:
    (layer,) = sample_typed(torch.arange(60), PLAIN, fanouts=[40], replace=True).sampled_subgraphs
    degrees = torch.bincount(EDGES["item:liked_by:user"][1], minlength=60)
    assert_same(layer.sampled_csc.indptr.diff(), torch.where(degrees > 0, 40, 0))
    (layer,) = sample_typed({"user": torch.arange(60)}, fanouts=[40], replace=True).sampled_subgraphs
    check_edges(layer)
    assert_same(layer.sampled_csc["item:liked_by:user"].indptr.diff(), torch.where(degrees > 0, 40, 0))
