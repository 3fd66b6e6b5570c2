from collections import Counter
from typing import Any

import torch

import graphfeed as gf
from graphfeed.ops import cumulate_weights
from graphfeed.pyg import DrawEdgeEnds

# Edges 0 to 3 by column: two to node 0, one to 1, one to 3.
GRAPH = gf.from_coo(([1, 2, 2, 0], [0, 0, 1, 3]), num_nodes=4)


def nodes_of(count: int, sums: str | None = None) -> list[list[int]]:
    pipe = DrawEdgeEnds(gf.ItemSampler(gf.ItemSet(800, names="seeds"), 1), GRAPH, count, sums)
    batches: Any = list(pipe)
    assert all(batch.seeds is None for batch in batches)
    return [batch.input_nodes.tolist() for batch in batches]


def test_nodes_are_drawn_as_often_as_edges_lead_to_them() -> None:
    found = Counter(map(tuple, nodes_of(1)))
    assert set(found) == {(0,), (1,), (3,)}
    assert abs(found[(0,)] - 400) < 57
    assert abs(found[(1,)] - 200) < 49


def test_the_nodes_of_several_edges_are_sorted_and_there_once() -> None:
    assert {tuple(nodes) for nodes in nodes_of(9)} <= {(0, 1, 3), (0, 1), (0, 3), (1, 3), (0,), (1,), (3,)}


def test_with_weights_both_ends_are_there() -> None:
    GRAPH.add_edge_attribute("sums", cumulate_weights(torch.tensor([0, 4]), torch.tensor([0.0, 3.0, 0.0, 1.0])))
    found = Counter(map(tuple, nodes_of(1, "sums")))
    assert set(found) == {(0, 2), (0, 3)}
    assert abs(found[0, 2] - 600) < 49
