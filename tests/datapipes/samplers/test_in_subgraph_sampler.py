import re
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same

GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50)
TYPED = gf.from_coo(
    {
        "user:likes:item": pipelines.random_edges(20, 10, 100, 1),
        "item:liked_by:user": pipelines.random_edges(10, 20, 100, 2),
    },
    {"user": 20, "item": 10},
)


def sample(graph: gf.SamplingGraph, seeds: Any, **fields: Any) -> gf.MiniBatch:
    (batch,) = gf.IterableSource([gf.MiniBatch(seeds=seeds, **fields)]).sample_in_subgraph(graph)
    assert isinstance(batch, gf.MiniBatch)
    return batch


def test_every_edge_into_a_seed_is_there_once_and_no_other() -> None:
    edges = pipelines.random_edges(50, 50, 600, 0)
    seeds = torch.tensor([7, 30, 8])
    batch = sample(GRAPH, seeds)
    assert batch.sampled_subgraphs is not None
    (layer,) = batch.sampled_subgraphs
    assert_same(layer.original_column_node_ids, seeds)
    assert isinstance(layer.original_edge_ids, torch.Tensor)
    wanted = torch.isin(edges[1], seeds).nonzero().flatten()
    assert_same(layer.original_edge_ids.sort().values, wanted)
    assert isinstance(layer.sampled_csc, gf.CSCFormatBase)
    assert_same(layer.sampled_csc.indptr.diff(), torch.bincount(edges[1], minlength=50)[seeds])
    assert isinstance(batch.input_nodes, torch.Tensor)
    assert_same(batch.input_nodes[layer.sampled_csc.indices], edges[0][layer.original_edge_ids])


def test_it_is_all_neighbours_of_one_layer() -> None:
    for graph, seeds in ((GRAPH, torch.arange(9)), (TYPED, {"item": torch.tensor([3, 1])})):
        batch = gf.MiniBatch(seeds=seeds, key=gf.Key(0, 0, 0))
        (expected,) = gf.IterableSource([batch]).sample_neighbor(graph, [-1])
        assert_same(sample(graph, seeds).sampled_subgraphs, expected.sampled_subgraphs)


def test_it_draws_nothing() -> None:
    """So it neither takes from torch's generator nor moves the draws of the stages after it."""
    before = torch.get_rng_state()
    sample(GRAPH, torch.arange(9))
    assert_same(torch.get_rng_state(), before)
    items = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20)
    assert items.sample_in_subgraph(GRAPH).sample_neighbor(GRAPH, [2]).number == 0


def test_seeds_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=re.escape("seeds must lie in 0 .. 49, but holds 50")):
        sample(GRAPH, torch.tensor([50]))
    with pytest.raises(KeyError, match="seeds have node type 'shop'"):
        sample(TYPED, {"shop": torch.tensor([0])})
    with pytest.raises(ValueError, match=r"seeds must have 1 dimension, but has shape \(2, 2\)"):
        GRAPH.in_subgraph(torch.zeros(2, 2, dtype=torch.int64))
