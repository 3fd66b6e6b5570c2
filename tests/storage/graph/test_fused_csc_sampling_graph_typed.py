"""One hop of a graph with types: weights, replacement and joint choices, as test_graph.py has them without types."""

from typing import Any, ClassVar

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same, digest

SIZES = {"user": 12, "item": 8}
EDGES = {
    "user:likes:item": pipelines.random_edges(12, 8, 90, 1),
    "user:knows:user": pipelines.random_edges(12, 12, 70, 2),
    "item:liked_by:user": pipelines.random_edges(8, 12, 80, 3),
}
SEEDS = {"item": torch.tensor([5, 0, 7]), "user": torch.arange(12)}
GENERATOR = torch.Generator().manual_seed(4)
WEIGHTS = {kind: torch.randint(0, 3, (ends.shape[1],), generator=GENERATOR) for kind, ends in EDGES.items()}
METHODS = ["sample_neighbors", "sample_layer_neighbors"]


def make_graph(dtype: torch.dtype = torch.float32) -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(EDGES, SIZES, edge_attributes={"w": {kind: own.to(dtype) for kind, own in WEIGHTS.items()}})


GRAPH = make_graph()


def sample(method: str, fanouts: list[int], graph: gf.FusedCSCSamplingGraph = GRAPH, **options: Any) -> Any:
    key: dict[str, Any] = {"key": 5} if method == "sample_neighbors" else {"random_seed": [5]}
    return getattr(graph, method)(SEEDS, torch.tensor(fanouts), **key, **options)


def in_order(counts: dict[str, int]) -> list[int]:
    """Return what each edge type has in the order of their numbers, in which fan-outs are given."""
    ids = GRAPH.edge_type_to_id
    assert ids is not None
    return [counts[kind] for kind in sorted(ids, key=ids.__getitem__)]


def eligible(kind: str, *, weighted: bool) -> torch.Tensor:
    """Return how many edges of a type each seed of its destination may choose from."""
    counted = EDGES[kind][1][WEIGHTS[kind] > 0] if weighted else EDGES[kind][1]
    destination = kind.split(":")[2]
    return torch.bincount(counted, minlength=SIZES[destination])[SEEDS[destination]]


def check_edges(hop: Any) -> None:
    """Each edge is the one of its id."""
    for kind, csc in hop.sampled_csc.items():
        sources, destinations = EDGES[kind][:, hop.original_edge_ids[kind]]
        assert_same(csc.indices, sources)
        assert_same(SEEDS[kind.split(":")[2]].repeat_interleave(csc.indptr.diff()), destinations)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_each_seed_has_as_many_edges_of_a_type_as_asked_for(method: str, weighted: bool, replace: bool) -> None:
    fanouts = {"user:likes:item": 3, "user:knows:user": 2, "item:liked_by:user": -1}
    hop = sample(method, in_order(fanouts), replace=replace, probs_name="w" if weighted else None)
    check_edges(hop)
    for kind, fanout in fanouts.items():
        there = eligible(kind, weighted=weighted)
        wanted = there if fanout < 0 else torch.where(there > 0, fanout, 0) if replace else there.clamp(max=fanout)
        assert_same(hop.sampled_csc[kind].indptr.diff(), wanted)
        if weighted:
            assert bool((WEIGHTS[kind][hop.original_edge_ids[kind]] > 0).all())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_one_number_is_for_the_edges_of_all_types_together(method: str, weighted: bool, replace: bool) -> None:
    hop = sample(method, [4], replace=replace, probs_name="w" if weighted else None)
    check_edges(hop)
    kinds = ["user:knows:user", "item:liked_by:user"]
    there = torch.stack([eligible(kind, weighted=weighted) for kind in kinds]).sum(0)
    found = torch.stack([hop.sampled_csc[kind].indptr.diff() for kind in kinds]).sum(0)
    assert_same(found, torch.where(there > 0, 4, 0) if replace else there.clamp(max=4))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.bfloat16, torch.float64])
def test_weights_may_have_any_dtype(method: str, dtype: torch.dtype) -> None:
    hop = sample(method, [-1], make_graph(dtype), probs_name="w")
    for kind in EDGES:
        assert_same(hop.sampled_csc[kind].indptr.diff(), eligible(kind, weighted=True))


@pytest.mark.parametrize("method", METHODS)
def test_it_can_be_waited_for(method: str) -> None:
    usual = sample(method, [2])
    assert_same(sample(method, [2], async_op=True).wait(), usual)
    assert_same(sample(method, [2], returning_indices_and_original_edge_ids_are_optional=True), usual)


def test_columns_of_all_edge_types_choose_the_same_neighbours() -> None:
    """Each item and each user has all users as sources, so they agree on those of smallest variate."""
    users = torch.arange(20)
    edges = {
        "user:likes:item": torch.stack([users.repeat(5), torch.arange(5).repeat_interleave(20)]),
        "user:knows:user": torch.stack([users.repeat(20), users.repeat_interleave(20)]),
    }
    graph = gf.from_coo(edges, {"user": 20, "item": 5})
    seeds = {"user": users, "item": torch.arange(5)}
    chosen = set()
    for number in range(10):
        hop: Any = graph.sample_layer_neighbors(seeds, torch.tensor([3, 3]), random_seed=[number])
        found = [set(part.tolist()) for csc in hop.sampled_csc.values() for part in csc.indices.split(3)]
        assert len(found) == 25
        assert all(own == found[0] and len(own) == 3 for own in found)
        chosen.add(frozenset(found[0]))
    assert len(chosen) > 5


def test_equal_seeds_give_equal_choices() -> None:
    first = sample("sample_layer_neighbors", [2])
    fanouts = torch.tensor([2])
    assert_same(GRAPH.sample_layer_neighbors(SEEDS, fanouts, random_seed=[9, 5], seed2_contribution=1.0), first)
    half = GRAPH.sample_layer_neighbors(SEEDS, fanouts, random_seed=[5, 9], seed2_contribution=0.5)
    assert len({digest(first), digest(half), digest(GRAPH.sample_layer_neighbors(SEEDS, fanouts))}) == 3


def test_negatives_of_an_edge_type_have_its_destinations() -> None:
    pairs = EDGES["user:likes:item"].T[:30]
    drawn = GRAPH.sample_negative_edges_uniform("user:likes:item", pairs, 4, key=1)
    assert_same(drawn[:30], pairs)
    assert_same(drawn[30:, 0], pairs[:, 0].repeat_interleave(4))
    assert sorted(set(drawn[30:, 1].tolist())) == list(range(8))
    together = GRAPH.sample_negative_edges_uniform(None, pairs, 40, key=1)
    assert sorted(set(together[30:, 1].tolist())) == list(range(20))


class Counted(gf.FusedCSCSamplingGraph):
    """Counts the calls of its own hops."""

    calls: ClassVar[list[str]] = []

    def sample_neighbors(self, *args: Any, **options: Any) -> Any:
        self.calls.append("uniform")
        return super().sample_neighbors(*args, **options)

    def sample_layer_neighbors(self, *args: Any, **options: Any) -> Any:
        self.calls.append("labor")
        return super().sample_layer_neighbors(*args, **options)


@pytest.mark.parametrize(("stage", "call"), [("sample_neighbor", "uniform"), ("sample_layer_neighbor", "labor")])
def test_samplers_call_the_hop_that_a_subclass_writes(stage: str, call: str) -> None:
    fields = ["csc_indptr", "indices", "node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id"]
    held = {name: getattr(GRAPH, name) for name in [*fields, "node_attributes", "edge_attributes"]}
    items = gf.HeteroItemSet({"user": gf.ItemSet(4, names="seeds")})
    Counted.calls.clear()
    own, plain = (
        digest(next(iter(getattr(gf.ItemSampler(items, batch_size=4), stage)(graph, fanouts=[1, 2]))))
        for graph in (Counted(**held), GRAPH)
    )
    assert Counted.calls == [call, call]
    assert own == plain


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_graph_without_edges_takes_an_empty_tensor_of_any_dtype(dtype: torch.dtype) -> None:
    none = torch.tensor([])
    types = (torch.tensor([0, 2, 3]), none, {"a": 0, "b": 1}, {"a:r:b": 0})
    made = gf.fused_csc_sampling_graph(torch.zeros(4, dtype=dtype), none, *types)
    assert made.num_edges == {"a:r:b": 0}
    assert made.num_nodes == {"a": 2, "b": 1}
    for edges in ((none, none), torch.tensor([[], []])):
        assert gf.from_coo({"a:r:b": edges}, {"a": 2, "b": 1}).num_edges == {"a:r:b": 0}
