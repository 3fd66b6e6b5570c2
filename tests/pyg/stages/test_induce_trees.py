from typing import Any

import pytest
import torch

from graphfeed import ItemSampler, ItemSet, SamplingGraph, from_coo
from graphfeed.pyg import InduceTrees

GRAPH = from_coo(([1, 2, 2, 0], [0, 0, 1, 2]), num_nodes=3)


class OneHopGraph(SamplingGraph):
    """A graph of a user's own, which samples one hop."""

    num_nodes, num_edges = GRAPH.num_nodes, GRAPH.num_edges

    def sample_neighbors(self, *args: Any, **kwargs: Any) -> Any:
        return GRAPH.sample_neighbors(*args, **kwargs)


@pytest.mark.parametrize("graph", [GRAPH, OneHopGraph()], ids=["in memory", "of a user's own"])
def test_an_edge_is_there_in_each_tree_that_has_both_of_its_ends(graph: SamplingGraph) -> None:
    pipe = ItemSampler(ItemSet([0, 1], names="seeds"), 2).sample_neighbor(graph, [-1], only_new=True, disjoint=True)
    (batch,) = InduceTrees(pipe, graph)
    output = batch.output
    assert output.node.tolist() == [0, 1, 2, 1, 2]
    assert output.batch.tolist() == [0, 0, 0, 1, 1]
    pairs = sorted(zip(output.edge.tolist(), output.row.tolist(), output.col.tolist(), strict=True))
    assert pairs == [(0, 1, 0), (1, 2, 0), (2, 2, 1), (2, 4, 3), (3, 0, 2)]


def test_a_root_without_neighbours_is_alone() -> None:
    graph = from_coo((torch.tensor([0]), torch.tensor([1])), num_nodes=2)
    pipe = ItemSampler(ItemSet([0], names="seeds"), 1).sample_neighbor(graph, [-1], only_new=True, disjoint=True)
    (batch,) = InduceTrees(pipe, graph)
    assert batch.output.node.tolist() == [0]
    assert batch.output.row.tolist() == []


def test_what_was_not_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="put a sampler before InduceTrees"):
        next(iter(InduceTrees(ItemSampler(ItemSet([0], names="seeds"), 1), GRAPH)))
