"""Neighbours hop by hop: independent draws for each node, shared variates (LABOR), or temporal sampling."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops import Key
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import assert_same, digest, digests
from tests.kinds.pipelines import random_edges
from tests.kinds.tensors import degrees, layers_of, tensor

HOMOGENEOUS = gf.from_coo(
    pipelines.random_edges(50, 50, 600, 0), 50, edge_attributes={"w": torch.rand(600), "mask": torch.rand(600) > 0.5}
)
LIKES, LIKED = "user:likes:item", "item:liked_by:user"
TYPED = gf.from_coo(
    {LIKES: pipelines.random_edges(20, 20, 200, 1), LIKED: pipelines.random_edges(20, 20, 200, 2)},
    {"user": 20, "item": 20},
)
FANOUTS = [torch.tensor([1, 2]), torch.tensor([3, 4])]


def sample(seeds: Any, graph: gf.SamplingGraph = HOMOGENEOUS, key: Key | None = None, **options: Any) -> Any:
    """Sample one mini-batch with only this stage."""
    options.setdefault("fanouts", [3, 2])
    stage: Any = gf.IterableSource([]).sample_neighbor(graph, **options)
    return stage(gf.MiniBatch(seeds=seeds, key=key or Key(0, 0, 0)))


def test_the_outermost_layer_comes_first() -> None:
    seeds = torch.arange(5)
    batch = sample(seeds, fanouts=[3, 2])
    outer, inner = layers_of(batch)
    assert_same(inner.original_column_node_ids, seeds)
    assert_same(outer.original_column_node_ids, inner.original_row_node_ids)
    assert batch.input_nodes is outer.original_row_node_ids
    assert degrees(inner).max() == 2
    assert degrees(outer).max() == 3


def test_without_a_key_it_draws_from_torch() -> None:
    stage: Any = gf.IterableSource([]).sample_neighbor(HOMOGENEOUS, [2])
    batch = gf.MiniBatch(seeds=torch.arange(20))
    torch.manual_seed(5)
    first = digest(stage(batch))
    assert first != digest(stage(batch))
    torch.manual_seed(5)
    assert first == digest(stage(batch))


def test_typed_seeds_are_completed_to_all_node_types() -> None:
    seeds = {"item": torch.tensor([3, 1])}
    batch = sample(seeds, TYPED, fanouts=[2, 2])
    assert batch.seeds is seeds
    none = torch.tensor([], dtype=torch.int64)
    assert_same(layers_of(batch)[1].original_column_node_ids, {"user": none, "item": torch.tensor([3, 1])})
    assert list(batch.input_nodes) == ["user", "item"]


def test_typed_hyperlinks_start_from_all_their_nodes() -> None:
    batch = sample({"user:item:user": torch.tensor([[4, 2, 9], [9, 3, 4]])}, TYPED, fanouts=[-1])
    columns = layers_of(batch)[0].original_column_node_ids
    assert_same(columns, {"user": torch.tensor([4, 9]), "item": torch.tensor([2, 3])})
    assert_same(batch.compacted_seeds, {"user:item:user": torch.tensor([[0, 0, 1], [1, 1, 0]])})


class Alike(gf.FanoutSampler):
    """Samples all mini-batches alike."""

    def sample_hops(self, seeds: Any) -> list[gf.SampledSubgraph]:
        return self.graph.sample_hops(seeds, self.request, range(len(self.fanouts)))


def test_fields_are_those_of_samplers_with_fanouts() -> None:
    pipe = Alike(gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20), HOMOGENEOUS, [2], True, "w")
    assert (pipe.replace, pipe.prob_name) == (True, "w")
    assert pipe.request.fanouts == ((2,),)
    batch = next(iter(pipe))
    (layer,) = batch.sampled_subgraphs
    assert layer.sampled_csc.indptr.diff().max() <= 2
    assert batch.input_nodes is layer.original_row_node_ids


BY_TYPE: list[Any] = [
    [[1, 2], [3, 4]],
    [{LIKES: 1, LIKED: 2}, {LIKED: 4, LIKES: 3}],
    [{("user", "likes", "item"): 1, ("item", "liked_by", "user"): 2}, [3, 4]],
    {LIKES: [1, 3], LIKED: [2, 4]},
    {("item", "liked_by", "user"): (2, 4), ("user", "likes", "item"): np.array([1, 3])},
    [np.array([1, 2]), torch.tensor([3, 4], dtype=torch.int32)],
    torch.tensor([[1, 2], [3, 4]]),
    np.array([[1, 2], [3, 4]]),
]
"""All of them mean the same."""


def test_fanouts_by_edge_type_are_lists_arrays_or_dicts() -> None:
    items = gf.ItemSampler(gf.HeteroItemSet({"user": gf.ItemSet(20, names="seeds")}), 20)
    expected = digests(items.sample_neighbor(TYPED, FANOUTS))
    for fanouts in BY_TYPE:
        pipe: Any = items.sample_neighbor(TYPED, fanouts)
        assert pipe.request.fanouts == ((1, 2), (3, 4))
        assert digests(pipe) == expected, fanouts
        for sampler in (gf.LayerNeighborSampler, Alike):
            assert len(list(sampler(items, TYPED, fanouts))) == 1
    plain: Any = gf.ItemSampler(gf.ItemSet(9, names="seeds"), 9)
    alike = [digests(plain.sample_neighbor(HOMOGENEOUS, given)) for given in ([2, 1], (torch.tensor([2]), [1]))]
    assert alike[0] == alike[1]


def test_one_hop_at_a_time_takes_a_dict_as_well_and_a_dict_follows_the_numbers_of_the_edge_types() -> None:
    pipe = gf.ItemSampler(gf.HeteroItemSet({"user": gf.ItemSet(20, names="seeds")}), 20)
    fanouts: list[Any] = [[1, 2], {LIKED: 2, ("user", "likes", "item"): 1}]
    one, other = (next(iter(pipe.sample_per_layer(TYPED.sample_neighbors, fanout))) for fanout in fanouts)
    assert_same(vars(one.sampled_subgraphs[0]), vars(other.sampled_subgraphs[0]))
    graph = gf.fused_csc_sampling_graph(**(TYPED.fields() | {"edge_type_to_id": {LIKED: 1, LIKES: 0}}))
    assert Alike(pipe, graph, [{LIKED: 2, LIKES: 1}]).request.fanouts == ((1, 2),)


NUM_NODES, NUM_EDGES = 2000, 60_000


def power_law(seed: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph in which few nodes have many of the edges, as source or destination, without parallel edges."""
    generator = torch.Generator().manual_seed(seed)
    ends = (torch.rand(2, NUM_EDGES, generator=generator) ** 3 * NUM_NODES).long()
    ends = torch.tensor(sorted(set(zip(*ends.tolist(), strict=True)))).T
    weights = torch.rand(ends.shape[1], generator=generator)
    return gf.from_coo(ends, NUM_NODES, edge_attributes={"w": weights})


GRAPH = power_law(0)
ITEMS = gf.ItemSampler(gf.ItemSet(torch.arange(0, NUM_NODES, 2), names="seeds"), batch_size=100, shuffle=True)


def num_inputs(pipe: gf.Datapipe) -> int:
    return sum(len(tensor(batch.input_nodes)) for batch in pipe)


def shared_inputs(pipe: gf.Datapipe, apart: int) -> float:
    """Return the share of a mini-batch's chosen edges that a later mini-batch chooses again, for equal seeds."""
    batches = [set(tensor(layers_of(batch)[0].original_edge_ids).tolist()) for batch in pipe]
    pairs = zip(batches, batches[apart:], strict=False)
    return sum(len(one & other) / len(one) for one, other in pairs) / (len(batches) - apart)


def test_each_node_has_as_many_neighbors_as_without() -> None:
    choices: list[dict[str, Any]] = [{}, {"prob_name": "w"}, {"batch_dependency": 5}, {"layer_dependency": True}]
    for options in choices:
        batch = next(iter(ITEMS.sample_layer_neighbor(GRAPH, [4, -1, 6], **options)))
        for layer, fanout in zip(layers_of(batch), [4, NUM_EDGES, 6], strict=True):
            available = GRAPH.csc_indptr.diff()[tensor(layer.original_column_node_ids)]
            assert_same(degrees(layer), available.clamp(max=fanout))


def test_it_takes_fewer_nodes() -> None:
    many = num_inputs(ITEMS.sample_neighbor(GRAPH, [5, 5]))
    fewer = num_inputs(ITEMS.sample_layer_neighbor(GRAPH, [5, 5]))
    fewest = num_inputs(ITEMS.sample_layer_neighbor(GRAPH, [5, 5], layer_dependency=True))
    assert fewest < fewer < 0.8 * many


def test_mini_batches_share_less_the_further_apart_they_are() -> None:
    seeds = torch.arange(100).repeat(24)  # the same in each mini-batch
    pipe = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=100).sample_layer_neighbor(
        GRAPH, [5], batch_dependency=12
    )
    shares = [shared_inputs(pipe, apart) for apart in (1, 3, 6, 12)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    independent = gf.ItemSampler(gf.ItemSet(seeds, names="seeds"), batch_size=100).sample_layer_neighbor(GRAPH, [5])
    assert shares[-1] == pytest.approx(shared_inputs(independent, 1), abs=0.1)


def test_without_merging_the_same_edges_have_a_row_each() -> None:
    for merged, apart in zip(
        ITEMS.sample_layer_neighbor(GRAPH, [3], batch_dependency=3),
        ITEMS.sample_layer_neighbor(GRAPH, [3], batch_dependency=3, deduplicate=False),
        strict=True,
    ):
        (one,), (other,) = layers_of(merged), layers_of(apart)
        assert_same(other.original_edge_ids, one.original_edge_ids)
        assert len(tensor(apart.input_nodes)) == 100 + len(tensor(other.original_edge_ids))


def test_an_index_of_large_columns_changes_nothing_and_travels_with_the_graph() -> None:
    graph = power_law(1)
    pipe = ITEMS.sample_layer_neighbor(graph, [3, 5])
    expected = digests(pipe)
    with limits(index_degree=30, index_share=2):
        fresh = power_law(1)
        copy = pickle.loads(pickle.dumps(ITEMS.sample_layer_neighbor(fresh, [3, 5])))
        made, its = fresh.high_degree_index(), copy.graph.high_degree_index()
    assert made is not None
    assert len(made.entries) > NUM_NODES
    assert_same(its, made)
    assert digests(copy) == expected


SIZE, MANY = 300, 6000
GENERATOR = torch.Generator().manual_seed(0)
EDGES = random_edges(SIZE, SIZE, MANY, 0)
TIMES = torch.randint(0, 1000, (MANY,), generator=GENERATOR)
BORN = torch.randint(0, 500, (SIZE,), generator=GENERATOR)
TIMED = gf.from_coo(EDGES, SIZE, node_attributes={"born": BORN}, edge_attributes={"time": TIMES, "w": TIMES / 1000})
SEEDS, MOMENTS = torch.arange(SIZE), torch.randint(0, 1200, (SIZE,), generator=GENERATOR)
TIMED_ITEMS = gf.ItemSampler(gf.ItemSet((SEEDS, MOMENTS), names=("seeds", "timestamp")), batch_size=40, shuffle=True)


def check_times(batch: gf.MiniBatch, seed_times: torch.Tensor, names: Any, window: int | None, hop_time: str) -> int:
    """Check ids, rows and times of all edges of a mini-batch; return how many there are."""
    times, count = seed_times, 0
    rows = batch.sampled_subgraphs[-1].original_column_node_ids
    for layer in reversed(batch.sampled_subgraphs):
        csc, edges = layer.sampled_csc, tensor(layer.original_edge_ids)
        columns = tensor(layer.original_column_node_ids)
        assert torch.equal(columns, tensor(rows))
        rows = torch.cat([columns, EDGES[0][edges]])
        assert torch.equal(tensor(layer.original_row_node_ids), rows)
        assert torch.equal(csc.indices, torch.arange(len(columns), len(rows)))
        places = torch.repeat_interleave(csc.indptr.diff())
        assert torch.equal(columns[places], EDGES[1][edges])
        for stamps in ([TIMES[edges]] if names[1] else []) + ([BORN[EDGES[0][edges]]] if names[0] else []):
            assert (stamps < times[places]).all()
            assert window is None or (stamps > times[places] - window).all()
        times = torch.cat([times, TIMES[edges] if hop_time == "edge" else times[places]])
        count += len(edges)
    assert torch.equal(tensor(batch.input_nodes), tensor(rows))
    return count


@given(
    st.sampled_from([("born", "time"), (None, "time"), ("born", None)]),
    st.sampled_from(["uniform", "latest"]),
    st.sampled_from([None, 300]),
    st.data(),
)
def test_time_is_never_violated(names: Any, strategy: Any, window: int | None, data: st.DataObject) -> None:
    hop_time: Any = data.draw(st.sampled_from(["seed", "edge"] if names[1] else ["seed"]))
    weights = "w" if strategy == "uniform" and data.draw(st.booleans()) else None
    fanouts = data.draw(st.lists(st.sampled_from([-1, 2, 5]), min_size=2, max_size=2))
    pipe = TIMED_ITEMS.temporal_sample_neighbor(
        TIMED, fanouts, False, weights, names[0], names[1], window, hop_time, strategy
    )  # fmt: skip
    batch = next(iter(pipe))
    assert check_times(batch, tensor(batch.timestamp), names, window, hop_time) > 0


@pytest.mark.parametrize("own", [False, True])
def test_ends_of_edges_are_looked_at_at_their_times(own: bool) -> None:
    pairs = EDGES.T[:60]
    moments = torch.stack([TIMES[:60], TIMES[:60] + 400], dim=1) if own else TIMES[:60]
    items = gf.ItemSampler(gf.ItemSet((pairs, moments), names=("seeds", "timestamp")), batch_size=20)
    for batch in items.temporal_sample_neighbor(TIMED, [3], edge_timestamp_attr_name="time"):
        layers = batch.sampled_subgraphs
        assert layers is not None
        columns, seeds = tensor(layers[0].original_column_node_ids), tensor(batch.seeds)
        assert torch.equal(columns[tensor(batch.compacted_seeds)], seeds)
        times = tensor(batch.timestamp)
        check_times(batch, times.reshape(-1) if own else times.repeat_interleave(2), (None, "time"), None, "seed")


def test_an_inclusive_window_as_large_as_can_be_takes_all_from_before() -> None:
    def sample(window: int | None) -> list[str]:
        options: dict[str, Any] = {"edge_timestamp_attr_name": "time", "pre_time_window": window, "inclusive": True}
        return digests(TIMED_ITEMS.temporal_sample_neighbor(TIMED, [3, 3], **options))

    expected = sample(None)
    for window in (2**63 - 3, 2**63 - 2, 2**63 - 1):
        assert sample(window) == expected, window


class Newest(gf.TemporalSampler):
    """A user-defined sampler."""

    @property
    def chosen_by(self) -> Any:
        return "latest"


def test_a_subclass_says_how_edges_are_chosen() -> None:
    named = TIMED_ITEMS.temporal_sample_neighbor(TIMED, [3, 2], edge_timestamp_attr_name="time", strategy="latest")
    assert digests(Newest(TIMED_ITEMS, TIMED, [3, 2], edge_timestamp_attr_name="time")) == digests(named)


def test_each_seed_may_have_a_window_of_its_own() -> None:
    stage: Any = TIMED_ITEMS.temporal_sample_neighbor(TIMED, [3, 2], edge_timestamp_attr_name="time")
    same: Any = TIMED_ITEMS.temporal_sample_neighbor(
        TIMED, [3, 2], edge_timestamp_attr_name="time", pre_time_window=300
    )
    torch.manual_seed(0)
    expected = same.sample_subgraphs(SEEDS, MOMENTS)
    torch.manual_seed(0)
    assert_same(stage.sample_subgraphs(SEEDS, MOMENTS, torch.full_like(SEEDS, 300)), expected)
