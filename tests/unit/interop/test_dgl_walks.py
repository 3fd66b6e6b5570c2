"""DGL's functions that walk at random, on graphs of this package and on stand-ins of DGL's."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.interop import dgl as interop
from graphfeed.storage.graph import to_coo
from tests.kinds import golden_pipelines
from tests.kinds.refusals import check_refused
from tests.unit.interop.test_dgl import plain, typed

LIKES, LIKED = "user:likes:item", "item:liked_by:user"


@pytest.fixture(autouse=True)
def seeded() -> Any:
    gf.seed(5)
    yield
    gf.seed(None)


def test_walks_follow_the_edges_and_end_without_them() -> None:
    graph = golden_pipelines.untyped()
    ends, starts = to_coo(graph)[None], torch.arange(0, 500).repeat(2)
    traces, edges, types = interop.random_walk(
        graph, starts, length=6, prob="weight", restart_prob=torch.tensor([0, 0.5, 0, 0, 0, 0.1]), return_eids=True
    )
    went = edges >= 0
    assert torch.equal(ends.sources[edges[went]], traces[:, :-1][went])
    assert torch.equal(ends.destinations[edges[went]], traces[:, 1:][went])
    assert torch.equal(traces[:, 0], starts)
    assert types.tolist() == [0] * 7
    assert not torch.equal(traces[:500], traces[500:])
    again = interop.node2vec_random_walk(graph, starts, 0.5, 2.0, 4, return_eids=True)
    assert torch.equal(ends.destinations[again[1][:, 0]][again[1][:, 0] >= 0], again[0][:, 1][again[0][:, 1] >= 0])


def test_a_metapath_has_relations_or_full_names() -> None:
    graph, users = golden_pipelines.typed(), torch.arange(100)
    found = []
    for metapath in (["likes", "liked_by"], [LIKES, ("item", "liked_by", "user")]):
        gf.seed(6)
        found.append(interop.random_walk(graph, users, metapath=metapath, return_eids=True))
    assert torch.equal(found[0][0], found[1][0])
    traces, edges, types = found[0]
    assert types.tolist() == [0, 1, 0]
    ends, went = to_coo(graph)[LIKES], edges[:, 0] >= 0
    assert torch.equal(ends.sources[edges[went, 0]], traces[went, 0])
    assert torch.equal(ends.destinations[edges[went, 0]], traces[went, 1])


def test_graphs_of_dgl_are_converted() -> None:
    traces, edges, types = interop.random_walk(plain(), torch.tensor([3, 0]), length=2, return_eids=True)
    assert traces.tolist() == [[3, 0, 2], [0, 2, 0]]
    assert edges.tolist() == [[0, 3], [3, 1]]
    assert types.tolist() == [0, 0, 0]
    assert interop.node2vec_random_walk(plain(), torch.tensor([1]), 1.0, 4.0, 3).tolist() == [[1, 1, 1, 1]]
    traces, types = interop.random_walk(typed(), torch.tensor([0]), metapath=["follows", "likes"])
    assert (traces[0, :2].tolist(), types.tolist()) == ([0, 1], [1, 1, 0])


def test_visits_are_counted_with_ties_as_in_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seeds = golden_pipelines.typed(), torch.arange(40)
    sampler = interop.PinSAGESampler(graph, "user", "item", 3, 0.5, 10, 4)
    gf.seed(6)
    sources, destinations, counts = sampler.visits(seeds)
    gf.seed(6)
    walks = sampler.graph.sample_walks({"user": seeds}, sampler.request).nodes[:, 2::2].reshape(40, -1)
    for seed, visits in enumerate(walks.tolist()):
        wanted = sorted(Counter(node for node in visits if node >= 0).items(), key=lambda pair: (-pair[1], -pair[0]))[
            :4
        ]
        own = destinations == seed
        assert list(zip(sources[own].tolist(), counts[own].tolist(), strict=True)) == wanted

    def heterograph(edges: Any, sizes: Any) -> Any:
        return SimpleNamespace(edges=edges, sizes=sizes, edata={})

    monkeypatch.setattr(interop, "import_optional", lambda *given: SimpleNamespace(heterograph=heterograph))
    gf.seed(6)
    made = sampler(seeds)
    assert torch.equal(made.edges["user", "_E", "user"][0], sources)
    assert torch.equal(made.edata["weights"], counts)
    assert made.sizes == {"user": 500}


def test_what_is_wrong_is_named() -> None:
    graph, zero = golden_pipelines.typed(), torch.tensor([0])
    check_refused([
        (lambda: interop.random_walk(graph, zero), ValueError, "either metapath or length must be given"),
        (lambda: interop.random_walk(graph, zero, length=2), ValueError, "has 3 edge types; give metapath"),
        (lambda: interop.random_walk(graph, zero, metapath=["like"]), ValueError, "metapath has 'like', which is 0 of"),
        (lambda: interop.RandomWalkNeighborSampler(graph, 2, 0.5, 2, 2), ValueError, "has 3 edge types; give metapath"),
        (lambda: interop.RandomWalkNeighborSampler(graph, 2, 0.5, 2, 2, ["likes"]), ValueError, "etypes|lead back"),
        (lambda: interop.PinSAGESampler(graph, "item", "item", 2, 0.5, 2, 2), ValueError, "there are 0 edge types"),
    ])  # fmt: skip


def test_node2vec_takes_a_graph_with_one_type() -> None:
    edges, starts = (torch.tensor([0, 1, 1]), torch.tensor([1, 0, 2])), torch.zeros(50, dtype=torch.int64)
    graph = gf.from_coo({"n:e:n": edges}, {"n": 3})
    # The chance to go back is nearly 0.
    assert interop.node2vec_random_walk(graph, starts, 1e6, 1.0, 2)[:, 2].tolist() == [2] * 50
    with pytest.raises(ValueError, match="at least one step"):
        interop.random_walk(graph, starts, length=0)


def test_walks_see_attributes_that_were_replaced() -> None:
    weights, starts = torch.tensor([1.0, 0.0, 1.0]), torch.zeros(8, dtype=torch.int64)
    graph = gf.from_coo((torch.tensor([0, 0, 1]), torch.tensor([1, 2, 0])), 3, edge_attributes={"w": weights})
    before = interop.random_walk(graph, starts, length=1, prob="w")[0][:, 1]
    graph.edge_attributes = {"w": 1 - graph.edge_attributes["w"] + (graph.indices != 0)}
    after = interop.random_walk(graph, starts, length=1, prob="w")[0][:, 1]
    assert [before.tolist(), after.tolist()] == [[1] * 8, [2] * 8]


def test_no_seeds_have_no_neighbours() -> None:
    graph = gf.from_coo((torch.tensor([0, 1]), torch.tensor([1, 0])), 2)
    sampler = interop.RandomWalkNeighborSampler(graph, 2, 0.5, 3, 2)
    assert [len(part) for part in sampler.visits(torch.empty(0, dtype=torch.int64))] == [0, 0, 0]
