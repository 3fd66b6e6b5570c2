"""LABOR on graphs with types, and with replacement."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests import pipelines
from tests.digests import assert_same

EDGES = {
    "user:likes:item": pipelines.random_edges(60, 30, 900, 1),
    "item:liked_by:user": pipelines.random_edges(30, 60, 900, 2),
}
GRAPH = gf.from_coo(EDGES, {"user": 60, "item": 30})
PLAIN = gf.from_coo(EDGES["item:liked_by:user"], num_nodes=60)
ITEMS = gf.ItemSampler(
    gf.HeteroItemSet({"user": gf.ItemSet(60, names="seeds"), "item": gf.ItemSet(30, names="seeds")}),
    batch_size=20,
    shuffle=True,
)


def sample(seeds: Any, graph: gf.SamplingGraph = GRAPH, index: int = 0, **options: Any) -> Any:
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
@pytest.mark.parametrize("fanouts", [[3, 2], [[2, 3], [-1, 1]]], ids=str)
def test_layers_lie_on_each_other_and_have_the_edges_of_the_graph(fanouts: Any, deduplicate: bool) -> None:
    for batch in ITEMS.sample_layer_neighbor(GRAPH, fanouts, deduplicate=deduplicate):
        outer, inner = batch.sampled_subgraphs
        check_edges(inner, deduplicate)
        check_edges(outer, deduplicate)
        assert_same(outer.original_column_node_ids, inner.original_row_node_ids)
        assert_same(batch.input_nodes, outer.original_row_node_ids)


def test_without_merging_the_inner_layer_has_the_same_edges() -> None:
    seeds = {"user": torch.arange(20), "item": torch.arange(9)}
    apart, merged = (sample(seeds, fanouts=[2, 2], deduplicate=choice) for choice in (False, True))
    assert_same(apart.sampled_subgraphs[1].original_edge_ids, merged.sampled_subgraphs[1].original_edge_ids)


def test_mini_batches_that_depend_on_each_other_share_most_edges() -> None:
    seeds = {"user": torch.arange(60), "item": torch.arange(30)}
    edges = []
    for index in (0, 1, 7):
        (layer,) = sample(seeds, index=index, fanouts=[4], batch_dependency=8).sampled_subgraphs
        edges.append({(kind, edge) for kind, ids in layer.original_edge_ids.items() for edge in ids.tolist()})
    first, next_one, last = edges
    assert len(first & next_one) > 0.7 * len(first) > len(first & last) * 1.3


def test_layers_share_their_variates_where_asked() -> None:
    seeds = {"user": torch.arange(60), "item": torch.arange(30)}
    for dependent in (False, True):
        outer, inner = sample(seeds, fanouts=[4, 4], layer_dependency=dependent).sampled_subgraphs
        assert all(
            (outer.original_edge_ids[kind].tolist() == inner.original_edge_ids[kind].tolist()) is dependent
            for kind in EDGES
        )


def test_with_replacement_every_node_with_neighbours_gets_its_fanout() -> None:
    (layer,) = sample(torch.arange(60), PLAIN, fanouts=[40], replace=True).sampled_subgraphs
    degrees = torch.bincount(EDGES["item:liked_by:user"][1], minlength=60)
    assert_same(layer.sampled_csc.indptr.diff(), torch.where(degrees > 0, 40, 0))
    (layer,) = sample({"user": torch.arange(60)}, fanouts=[40], replace=True).sampled_subgraphs
    check_edges(layer)
    assert_same(layer.sampled_csc["item:liked_by:user"].indptr.diff(), torch.where(degrees > 0, 40, 0))
