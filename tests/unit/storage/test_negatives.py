from collections.abc import Callable
from typing import Any

import torch

import graphfeed as gf
from graphfeed.storage.graph import negative_pairs_of
from tests.kinds.digests import assert_same
from tests.kinds.pipelines import random_edges
from tests.kinds.refusals import Refusal, check_refused

KINDS = {"a:r:b": (0, 30, 20), "b:s:a": (1, 20, 30), "a:t:b": (2, 30, 20)}


def typed() -> gf.FusedCSCSamplingGraph:
    edges = {kind: random_edges(sizes[0], sizes[1], 300, seed) for kind, (seed, *sizes) in KINDS.items()}
    times = {"a": torch.arange(30), "b": torch.arange(20)}
    return gf.from_coo(edges, {"a": 30, "b": 20}, node_attributes={"time": times})


def test_strict_ones_are_no_edges_of_their_type() -> None:
    for kind, (seed, *sizes) in KINDS.items():
        edges = {tuple(pair) for pair in random_edges(sizes[0], sizes[1], 300, seed).T.tolist()}
        found = negative_pairs_of(typed(), kind, gf.NegativeQuery(strict=True), 3000, 7)
        assert {tuple(pair) for pair in found.tolist()}.isdisjoint(edges), kind
        anything = negative_pairs_of(typed(), kind, gf.NegativeQuery(), 3000, 7)
        assert {tuple(pair) for pair in anything.tolist()} & edges, kind
        assert found.amax(0).tolist() <= [size - 1 for size in sizes], kind


def test_both_nodes_exist_at_the_time_of_the_pair() -> None:
    limits = torch.arange(15).repeat(50)
    found = negative_pairs_of(typed(), "a:r:b", gf.NegativeQuery(time_name="time"), 750, 7, limits)
    assert (found <= limits[:, None]).all()
    assert (found == limits[:, None]).any(0).all()


def test_a_relation_that_is_not_in_the_graph_has_the_nodes_of_its_types() -> None:
    drawn = [negative_pairs_of(typed(), kind, gf.NegativeQuery(), 50, 7) for kind in ("a:x:b", "a:r:b")]
    assert_same(*drawn)


def test_uniform_ones_have_the_destinations_of_their_type() -> None:
    pairs = random_edges(30, 20, 30, 5).T
    drawn = typed().sample_negative_edges_uniform("a:r:b", pairs, 4, key=1)
    assert_same(drawn[:30], pairs)
    assert_same(drawn[30:, 0], pairs[:, 0].repeat_interleave(4))
    assert sorted(set(drawn[30:, 1].tolist())) == list(range(20))
    together = typed().sample_negative_edges_uniform(None, pairs, 40, key=1)
    assert sorted(set(together[30:, 1].tolist())) == list(range(50))


def drawn_of(kind: str, query: gf.NegativeQuery, graph: Any = typed) -> Callable[[], object]:
    return lambda: negative_pairs_of(graph(), kind, query, 5, 7)


OF_30 = gf.NegativeQuery(destination_weights=gf.NodeWeights(torch.ones(30)))
STRICT, ANY = gf.NegativeQuery(strict=True), gf.NegativeQuery()
REFUSED: list[Refusal] = [
    (drawn_of("a:r:b", OF_30), ValueError, "must have 20 values, one for each node, but have 30"),
    (lambda: gf.NodeWeights(torch.zeros(3)), ValueError, "must not all be 0"),
    (drawn_of("a:x:c", ANY), KeyError, "edge_type is 'a:x:c', but the graph has the node types"),
    (drawn_of("a:x:b", STRICT), KeyError, "edge_type is 'a:x:b', but with strict=True it must be"),
    (drawn_of("a:r:b", ANY, lambda: gf.from_coo(([0], [1]), 2)), KeyError, "the graph has no types"),
]


def test_what_has_no_negatives() -> None:
    check_refused(REFUSED)
