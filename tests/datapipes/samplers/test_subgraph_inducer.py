import pytest
import torch

import graphfeed as gf
from tests.pipelines import random_edges

EDGES = random_edges(40, 40, 150, 4)


def test_all_edges_between_the_nodes_are_there() -> None:
    graph = gf.from_coo(EDGES, 40)
    pipe = gf.ItemSampler(gf.ItemSet(40, names="seeds"), 6).sample_neighbor(graph, [2]).induce_subgraph(graph)
    for batch in pipe:
        (hop,) = batch.sampled_subgraphs
        nodes = batch.input_nodes
        inside = torch.isin(EDGES, nodes).all(0).nonzero().squeeze(1)
        assert sorted(hop.original_edge_ids.tolist()) == inside.tolist()
        csc = hop.sampled_csc
        columns = torch.repeat_interleave(torch.arange(len(nodes)), csc.indptr.diff())
        assert torch.equal(torch.stack([nodes[csc.indices], nodes[columns]]), EDGES[:, hop.original_edge_ids])


def test_it_comes_behind_a_sampler() -> None:
    graph = gf.from_coo(EDGES, 40)
    pipe = gf.ItemSampler(gf.ItemSet(40, names="seeds"), 6)
    with pytest.raises(ValueError, match="put a sampler before induce_subgraph"):
        next(iter(pipe.induce_subgraph(graph)))
    with pytest.raises(TypeError, match="graph must be a SamplingGraph"):
        pipe.induce_subgraph(3)  # type: ignore[arg-type]
