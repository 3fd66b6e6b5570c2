import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampling.negatives import sample_negative_pairs
from tests.digests import assert_same
from tests.pipelines import random_edges

KINDS = {"a:r:b": (0, 30, 20), "b:s:a": (1, 20, 30), "a:t:b": (2, 30, 20)}


def typed() -> gf.FusedCSCSamplingGraph:
    edges = {kind: random_edges(sizes[0], sizes[1], 300, seed) for kind, (seed, *sizes) in KINDS.items()}
    times = {"a": torch.arange(30), "b": torch.arange(20)}
    return gf.from_coo(edges, {"a": 30, "b": 20}, node_attributes={"time": times})


@pytest.mark.parametrize("kind", list(KINDS))
def test_strict_ones_are_no_edges_of_their_type(kind: str) -> None:
    graph = typed()
    seed, *sizes = KINDS[kind]
    edges = {tuple(pair) for pair in random_edges(sizes[0], sizes[1], 300, seed).T.tolist()}
    found = sample_negative_pairs(graph, kind, gf.NegativeQuery(strict=True), 3000, 7)
    assert {tuple(pair) for pair in found.tolist()}.isdisjoint(edges)
    anything = sample_negative_pairs(graph, kind, gf.NegativeQuery(), 3000, 7)
    assert {tuple(pair) for pair in anything.tolist()} & edges
    assert found.amax(0).tolist() <= [size - 1 for size in sizes]


def test_both_nodes_exist_at_the_time_of_the_pair() -> None:
    limits = torch.arange(15).repeat(50)
    found = sample_negative_pairs(typed(), "a:r:b", gf.NegativeQuery(time_name="time"), 750, 7, limits)
    assert (found <= limits[:, None]).all()
    assert (found == limits[:, None]).any(0).all()


def test_weights_of_another_number_of_nodes_are_refused() -> None:
    query = gf.NegativeQuery(destination_weights=gf.NodeWeights(torch.ones(30)))
    with pytest.raises(ValueError, match="must have 20 values, one for each node, but have 30"):
        sample_negative_pairs(typed(), "a:r:b", query, 5, 7)
    with pytest.raises(ValueError, match="must not all be 0"):
        gf.NodeWeights(torch.zeros(3))


def test_a_relation_that_is_not_in_the_graph_has_the_nodes_of_its_types() -> None:
    drawn = [sample_negative_pairs(typed(), kind, gf.NegativeQuery(), 50, 7) for kind in ("a:x:b", "a:r:b")]
    assert_same(*drawn)


def test_unknown_types_are_named() -> None:
    with pytest.raises(KeyError, match="edge_type is 'a:x:c', but the graph has the node types"):
        sample_negative_pairs(typed(), "a:x:c", gf.NegativeQuery(), 5, 7)
    with pytest.raises(KeyError, match="edge_type is 'a:x:b', but for strict=True the graph has"):
        sample_negative_pairs(typed(), "a:x:b", gf.NegativeQuery(strict=True), 5, 7)
    with pytest.raises(KeyError, match="the graph has no types"):
        sample_negative_pairs(gf.from_coo(([0], [1]), 2), "a:r:b", gf.NegativeQuery(), 5, 7)
