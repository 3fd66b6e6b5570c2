"""User-defined samplers, and samplers of all edges: of the seeds, or among the sampled nodes."""

from itertools import product
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests.kinds import pipelines
from tests.kinds.digests import assert_same, digest, digests
from tests.kinds.pipelines import random_edges

GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50)
NO_CSC = gf.CSCFormatBase(torch.tensor([0]), torch.tensor([], dtype=torch.int64))
Hook = tuple[Any, list[gf.SampledSubgraph]]


class TwoHops(gf.SubgraphSampler):
    """In the style of users: an `__init__`, and a hook of two arguments that calls the graph without a key."""

    def __init__(self, datapipe: gf.Datapipe, graph: gf.FusedCSCSamplingGraph, fanouts: list[int]) -> None:
        super().__init__(datapipe)
        self.graph = graph
        self.fanouts = fanouts

    def sample_subgraphs(self, seeds: Any, seeds_timestamp: Any) -> Hook:  # type: ignore[override]
        layers: list[gf.SampledSubgraph] = []
        for fanout in reversed(self.fanouts):
            hop: Any = self.graph.sample_neighbors(seeds, torch.tensor([fanout]))
            rows, csc, _ = gf.unique_and_compact_csc_formats(hop.sampled_csc, seeds)
            layers.insert(0, gf.SampledSubgraph(csc, seeds, rows, hop.original_edge_ids))
            seeds = rows
        return seeds, layers


class Listening(gf.SubgraphSampler):
    """Keeps the arguments of its hook."""

    heard: list[Any]

    def sample_subgraphs(self, seeds: Any, seeds_timestamp: Any = None, seeds_pre_time_window: Any = None) -> Hook:
        self.heard.append((seeds, seeds_timestamp))
        return seeds, [gf.SampledSubgraph(NO_CSC, seeds, seeds)]


def heard_of(**fields: Any) -> tuple[Any, gf.MiniBatch]:
    """Return the arguments of a hook for a mini-batch, and the result."""
    heard: list[Any] = []
    (batch,) = Listening(gf.IterableSource([gf.MiniBatch(**fields)]), heard)
    return heard[0], batch


def sampled(batch: Any) -> str:
    return digest((batch.sampled_subgraphs, batch.input_nodes))


def two_hops(batch_size: int = 10) -> TwoHops:
    items = gf.ItemSampler(gf.ItemSet(torch.arange(50), names="seeds"), batch_size=batch_size, shuffle=True)
    return TwoHops(items, GRAPH, [3, 2])


def test_a_graph_that_a_hook_samples_from_draws_by_the_mini_batch() -> None:
    pipe = two_hops()
    batches = list(pipe)
    for batch in reversed(batches):
        again = pipe(gf.MiniBatch(seeds=batch.seeds, key=batch.key))
        assert sampled(again) == sampled(batch)
    with gf.DataLoader(pipe, num_workers=3, seed=0) as loader:
        assert digests(loader) == digests(pipe.with_seed(0))


def test_without_a_key_the_package_seed_decides() -> None:
    pipe = two_hops()
    gf.seed(3)
    first = sampled(pipe(gf.MiniBatch(seeds=torch.arange(9))))
    assert first != sampled(pipe(gf.MiniBatch(seeds=torch.arange(9))))
    gf.seed(3)
    assert first == sampled(pipe(gf.MiniBatch(seeds=torch.arange(9))))
    gf.seed(None)


def test_edge_seeds_come_as_nodes() -> None:
    pairs = torch.tensor([[4, 9], [9, 1]])
    (nodes, times), batch = heard_of(seeds=pairs)
    assert_same(nodes, torch.tensor([4, 9, 1]))
    assert times is None
    assert_same(batch.compacted_seeds, torch.tensor([[0, 1], [1, 2]]))
    assert batch.seeds is pairs


def test_timed_seeds_come_with_their_times_and_unmerged() -> None:
    (nodes, times), batch = heard_of(seeds=torch.tensor([[4, 9], [9, 1]]), timestamp=torch.tensor([100, 200]))
    assert_same(nodes, torch.tensor([4, 9, 9, 1]))
    assert_same(times, torch.tensor([100, 100, 200, 200]))
    assert_same(batch.compacted_seeds, torch.tensor([[0, 1], [2, 3]]))


def test_a_sampler_of_ones_own_samples_a_graph_with_types() -> None:
    """Its row ids have a type that is the source of no edge type, which must not be lost."""
    graph = gf.from_coo({"user:likes:item": pipelines.random_edges(20, 10, 100, 1)}, {"user": 20, "item": 10})
    items = gf.ItemSampler(gf.HeteroItemSet({"item": gf.ItemSet(10, names="seeds")}), batch_size=4)
    for batch in TwoHops(items, graph, [2, 3]):
        outer, inner = batch.sampled_subgraphs
        assert_same(inner.original_column_node_ids, batch.seeds)
        assert_same(outer.original_column_node_ids, inner.original_row_node_ids)
        assert_same(batch.input_nodes["item"], batch.seeds["item"])
        assert len(batch.input_nodes["user"])


class TakesTheKey(gf.SubgraphSampler):
    """Draws one number with the key passed to its hook."""

    def sample_subgraphs(self, seeds: Any, *times: Any, key: Key | None = None) -> Hook:
        assert key is not None
        return torch.tensor([key.at(self.number) >> 1]), [gf.SampledSubgraph(NO_CSC, seeds, seeds)]


def test_a_hook_that_asks_for_the_key_gets_that_of_the_mini_batch() -> None:
    pipe = TakesTheKey(gf.ItemSampler(gf.ItemSet(3, names="seeds"), 1))
    drawn = [batch.input_nodes.item() for batch in pipe]
    assert drawn == [Key(0, 0, index).at(0) >> 1 for index in range(3)]
    with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        assert [batch.input_nodes.item() for batch in loader] == drawn
    gf.seed(3)
    by_hand = [pipe(gf.MiniBatch(seeds=torch.arange(2))).input_nodes.item() for _ in range(2)]
    assert by_hand[0] != by_hand[1]
    gf.seed(None)


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


def test_it_is_all_neighbours_of_one_layer() -> None:
    for graph, seeds in ((GRAPH, torch.arange(9)), (TYPED, {"item": torch.tensor([3, 1])})):
        batch = gf.MiniBatch(seeds=seeds, key=gf.Key(0, 0, 0))
        (expected,) = gf.IterableSource([batch]).sample_neighbor(graph, [-1])
        assert_same(sample(graph, seeds).sampled_subgraphs, expected.sampled_subgraphs)


LINKS = random_edges(40, 40, 150, 4)


def test_all_edges_between_the_nodes_are_there() -> None:
    graph = gf.from_coo(LINKS, 40)
    pipe = gf.ItemSampler(gf.ItemSet(40, names="seeds"), 6).sample_neighbor(graph, [2]).induce_subgraph(graph)
    for batch in pipe:
        (hop,) = batch.sampled_subgraphs
        nodes = batch.input_nodes
        inside = torch.isin(LINKS, nodes).all(0).nonzero().squeeze(1)
        assert sorted(hop.original_edge_ids.tolist()) == inside.tolist()
        csc = hop.sampled_csc
        columns = torch.repeat_interleave(torch.arange(len(nodes)), csc.indptr.diff())
        assert torch.equal(torch.stack([nodes[csc.indices], nodes[columns]]), LINKS[:, hop.original_edge_ids])


SIZES = {"a": 200, "b": 120, "c": 40}
KINDS = ["b:to:a", "c:to:a", "a:to:b", "a:to:a", "b:to:c"]


EDGES = {kind: random_edges(SIZES[kind[0]], SIZES[kind[-1]], 700, seed) for seed, kind in enumerate(KINDS)}


def make_graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(EDGES, SIZES)


def make_pipe(graph: gf.FusedCSCSamplingGraph, num_samples: Any) -> gf.Datapipe:
    seeds = gf.HeteroItemSet({"a": gf.ItemSet(torch.arange(200), names="seeds")})
    return gf.ItemSampler(seeds, batch_size=50, shuffle=True).sample_by_budget(graph, num_samples)


def test_a_mini_batch_has_so_many_nodes_of_each_type_and_all_edges_among_them() -> None:
    graph = make_graph()
    minibatch: Any
    for minibatch in make_pipe(graph, {"a": [10, 20], "b": [7], "c": [5, 3]}):
        nodes = minibatch.input_nodes
        assert {kind: len(ids) for kind, ids in nodes.items()} == {"a": 80, "b": 7, "c": 8}
        assert nodes["a"][:50].tolist() == minibatch.seeds["a"].tolist()
        (hop,) = minibatch.sampled_subgraphs
        for kind in KINDS:
            assert len(nodes[kind[0]].unique()) == len(nodes[kind[0]])
            sources, ends = EDGES[kind]
            inside = torch.isin(sources, nodes[kind[0]]) & torch.isin(ends, nodes[kind[-1]])
            assert hop.original_edge_ids[kind].sort().values.tolist() == inside.nonzero().squeeze(1).tolist()


def test_of_many_neighbours_fifty_have_points() -> None:
    graph = gf.from_coo({"b:to:a": (torch.arange(500), torch.zeros(500, dtype=torch.int64))}, {"a": 1, "b": 500})
    seeds = gf.HeteroItemSet({"a": gf.ItemSet(1, names="seeds")})
    for seed in range(5):
        (minibatch,) = gf.ItemSampler(seeds, 1).sample_by_budget(graph, {"a": [0], "b": [500]}).with_seed(seed)
        assert len(minibatch.input_nodes["b"].unique()) == 50


RANDOM = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50, edge_attributes={"w": torch.rand(600)})
SHOPS = gf.from_coo(
    {
        "user:likes:item": pipelines.random_edges(20, 10, 100, 1),
        "item:liked_by:user": pipelines.random_edges(10, 20, 100, 2),
    },
    {"user": 20, "item": 10},
)
ITEMS = gf.ItemSampler(gf.ItemSet(torch.arange(50), names="seeds"), batch_size=20, shuffle=True)


def two_layers(items: gf.Datapipe, graph: Any, fanouts: Any, *, deduplicate: bool = True) -> gf.Datapipe:
    pipe = items
    for fanout in reversed(fanouts):
        pipe = pipe.sample_per_layer(graph.sample_neighbors, fanout).compact_per_layer(deduplicate)
    return pipe


def test_layer_by_layer_is_all_layers_at_once() -> None:
    choices: list[tuple[gf.SamplingGraph, Any]] = [
        (RANDOM, torch.tensor([3, 9, 3])),
        (RANDOM, torch.tensor([[3, 9], [9, 1]])),
        (SHOPS, {"item": torch.tensor([3, 1])}),
        (SHOPS, {"user:likes:item": torch.tensor([[4, 2], [4, 3]])}),
    ]
    for (graph, seeds), deduplicate in product(choices, [True, False]):
        source = gf.IterableSource([gf.MiniBatch(seeds=seeds)])
        (expected,) = source.sample_neighbor(graph, [-1, -1], deduplicate=deduplicate)
        (batch,) = two_layers(source, graph, [-1, -1], deduplicate=deduplicate)
        assert_same(batch, expected)


def test_layers_draw_by_the_mini_batch_and_apart() -> None:
    pipe = two_layers(ITEMS, RANDOM, [2, 2])
    with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        assert digests(loader) == digests(pipe.with_seed(0))
    for batch in pipe:
        outer, inner = batch.sampled_subgraphs
        count = int(outer.sampled_csc.indptr[20])
        assert outer.original_edge_ids[:count].tolist() != inner.original_edge_ids.tolist()


def test_options_reach_the_graph() -> None:
    def listen(*given: Any) -> gf.SampledSubgraph:
        heard.append(given[1:])
        return RANDOM.sample_neighbors(*given)

    heard: list[Any] = []
    next(iter(ITEMS.sample_per_layer(listen, 3, replace=True)))
    next(iter(ITEMS.sample_per_layer(listen, 2, prob_name="w")))
    assert_same(heard, [(torch.tensor([3]), True, None), (torch.tensor([2]), False, "w")])


def test_a_stage_between_may_change_the_layer() -> None:
    """This stage drops edges, so that their sources are never input nodes."""

    def drop_all(minibatch: Any) -> gf.MiniBatch:
        (layer,) = minibatch.sampled_subgraphs
        csc = layer.sampled_csc
        layer.sampled_csc = gf.CSCFormatBase(torch.zeros_like(csc.indptr), csc.indices[:0])
        assert isinstance(minibatch, gf.MiniBatch)
        return minibatch

    pipe = ITEMS.sample_per_layer(RANDOM.sample_neighbors, 3).transform(drop_all).compact_per_layer(True)
    for batch in pipe:
        assert_same(batch.input_nodes, batch.seeds)


def test_it_goes_on_from_a_sampler_before() -> None:
    before = next(iter(ITEMS.sample_neighbor(RANDOM, [2])))
    batch = next(iter(two_layers(ITEMS.sample_neighbor(RANDOM, [2]), RANDOM, [2])))
    assert len(batch.sampled_subgraphs) == 2
    assert digest(batch.sampled_subgraphs[1]) == digest(before.sampled_subgraphs[0])
    assert_same(batch.sampled_subgraphs[0].original_column_node_ids, before.input_nodes)


def test_all_in_edges_may_be_those_of_a_mask_or_of_a_weight() -> None:
    ends = random_edges(50, 50, 600, 0)
    mask, weights = torch.arange(600) % 3 > 0, (torch.arange(600) % 5).float()
    graph = gf.from_coo(ends, 50, edge_attributes={"mask": mask, "w": weights})
    seeds = torch.arange(0, 50, 7)
    for name, kept in (("mask", mask), ("w", weights > 0)):
        items = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=50)
        (hop,) = next(iter(items.sample_in_subgraph(graph, prob_name=name))).sampled_subgraphs
        expected = (torch.isin(ends[1], seeds) & kept).nonzero().squeeze(1)
        assert torch.equal(hop.original_edge_ids.sort().values, expected)


def test_a_list_holds_for_each_type() -> None:
    graph = make_graph()
    by_type = [batch.input_nodes for batch in make_pipe(graph, {kind: [4, 4] for kind in SIZES})]
    alike = [batch.input_nodes for batch in make_pipe(graph, [4, 4])]
    assert str(by_type) == str(alike)


class OneValue(gf.SubgraphSampler):
    """Forgets the input nodes."""

    def sample_subgraphs(self, seeds: Any, seeds_timestamp: Any = None) -> Any:  # type: ignore[override]
        del seeds, seeds_timestamp
        return [1]


def test_a_sampler_that_returns_one_value_is_told_what_to_return() -> None:
    pipe = OneValue(gf.ItemSampler(gf.ItemSet(2, names="seeds"), batch_size=2))
    with pytest.raises(TypeError, match=r"sample_subgraphs of OneValue must return the input nodes and a list of"):
        next(iter(pipe))
