from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same, digest

GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50)
BATCH = gf.MiniBatch(seeds=torch.tensor([7, 3, 7]))


def stage(*, deduplicate: bool) -> Any:
    return gf.IterableSource([]).compact_per_layer(deduplicate)


def test_the_outermost_layer_gets_its_rows() -> None:
    hop = GRAPH.in_subgraph(torch.tensor([7, 3, 7]))
    BATCH.sampled_subgraphs = [hop]
    before = digest(BATCH)
    result = stage(deduplicate=True)(BATCH)
    assert result.sampled_subgraphs is not None
    (layer,) = result.sampled_subgraphs
    assert isinstance(layer.original_row_node_ids, torch.Tensor)
    assert isinstance(layer.sampled_csc, gf.CSCFormatBase)
    assert isinstance(hop.sampled_csc, gf.CSCFormatBase)
    assert_same(layer.original_row_node_ids[layer.sampled_csc.indices], hop.sampled_csc.indices)
    assert layer.original_row_node_ids[:3].tolist() == [7, 3, 7]
    assert result.input_nodes is layer.original_row_node_ids
    assert digest(BATCH) == before


def test_without_merging_each_edge_has_a_row() -> None:
    hop = GRAPH.in_subgraph(torch.tensor([7, 3, 7]))
    BATCH.sampled_subgraphs = [hop]
    result = stage(deduplicate=False)(BATCH)
    assert isinstance(hop.sampled_csc, gf.CSCFormatBase)
    assert_same(result.input_nodes, torch.cat([torch.tensor([7, 3, 7]), hop.sampled_csc.indices]))


@pytest.mark.parametrize("deduplicate", [True, False])
def test_with_types_each_type_gets_its_rows(deduplicate: bool) -> None:
    likes = "user:likes:item"
    graph = gf.from_coo({likes: pipelines.random_edges(20, 10, 100, 1)}, {"user": 20, "item": 10})
    seeds = {"item": torch.tensor([7, 3, 7])}
    hop = graph.in_subgraph(seeds)
    result = stage(deduplicate=deduplicate)(gf.MiniBatch(seeds=seeds, sampled_subgraphs=[hop]))
    rows: Any = result.input_nodes
    assert_same(rows["item"], seeds["item"])
    assert isinstance(hop.sampled_csc, dict)
    assert result.sampled_subgraphs is not None
    local: Any = result.sampled_subgraphs[0].sampled_csc
    sources = hop.sampled_csc[likes].indices
    assert_same(rows["user"][local[likes].indices], sources)
    assert_same(rows["user"], torch.tensor(list(dict.fromkeys(sources.tolist()))) if deduplicate else sources)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="has no sampled_subgraphs yet; put sample_per_layer before"):
        stage(deduplicate=True)(gf.MiniBatch(seeds=torch.arange(3)))
    (complete,) = gf.IterableSource([gf.MiniBatch(seeds=torch.arange(3))]).sample_neighbor(GRAPH, [2])
    with pytest.raises(ValueError, match="the outermost layer has its original_row_node_ids already"):
        stage(deduplicate=True)(complete)
    with pytest.raises(ValueError, match="cooperative must be False"):
        gf.IterableSource([]).compact_per_layer(deduplicate=True, cooperative=True)
