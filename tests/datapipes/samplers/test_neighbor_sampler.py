import pickle
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.datapipes.samplers import fanout_sampler
from graphfeed.ops import Key
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling_graph import SamplingGraph
from tests import pipelines
from tests.digests import assert_same, digest, digests
from tests.tensors import degrees, layers_of

HOMOGENEOUS = gf.from_coo(
    pipelines.random_edges(50, 50, 600, 0), 50, edge_attributes={"w": torch.rand(600), "mask": torch.rand(600) > 0.5}
)
LIKES, LIKED = "user:likes:item", "item:liked_by:user"
TYPED = gf.from_coo(
    {LIKES: pipelines.random_edges(20, 20, 200, 1), LIKED: pipelines.random_edges(20, 20, 200, 2)},
    {"user": 20, "item": 20},
)
FANOUTS = [torch.tensor([1, 2]), torch.tensor([3, 4])]
EMPTY = gf.IterableSource([])


def sample(seeds: Any, graph: SamplingGraph = HOMOGENEOUS, key: Key | None = None, **options: Any) -> Any:
    """Sample one mini-batch by the stage alone."""
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


def test_a_node_that_is_a_seed_twice_is_sampled_alike() -> None:
    (layer,) = layers_of(sample(torch.tensor([7, 3, 7]), fanouts=[4]))
    assert isinstance(layer.sampled_csc, gf.CSCFormatBase)
    assert isinstance(layer.original_edge_ids, torch.Tensor)
    first, second, third, end = layer.sampled_csc.indptr.tolist()
    assert_same(layer.original_edge_ids[first:second], layer.original_edge_ids[third:end])
    assert isinstance(layer.original_row_node_ids, torch.Tensor)
    assert layer.original_row_node_ids[:3].tolist() == [7, 3, 7]


def test_typed_seeds_are_completed_to_all_node_types() -> None:
    seeds = {"item": torch.tensor([3, 1])}
    batch = sample(seeds, TYPED, fanouts=[2, 2])
    assert batch.seeds is seeds
    none = torch.tensor([], dtype=torch.int64)
    assert_same(layers_of(batch)[1].original_column_node_ids, {"user": none, "item": torch.tensor([3, 1])})
    assert isinstance(batch.input_nodes, dict)
    assert list(batch.input_nodes) == ["user", "item"]


def test_typed_hyperlinks_start_from_all_their_nodes() -> None:
    batch = sample({"user:item:user": torch.tensor([[4, 2, 9], [9, 3, 4]])}, TYPED, fanouts=[-1])
    columns = layers_of(batch)[0].original_column_node_ids
    assert_same(columns, {"user": torch.tensor([4, 9]), "item": torch.tensor([2, 3])})
    assert_same(batch.compacted_seeds, {"user:item:user": torch.tensor([[0, 0, 1], [1, 1, 0]])})


def test_fanouts_may_be_numbers_lists_or_tensors() -> None:
    expected = digest(sample(torch.arange(9), fanouts=[2, 1]))
    for fanouts in ([torch.tensor([2]), torch.tensor([1])], [[2], 1], (2, 1)):
        assert digest(sample(torch.arange(9), fanouts=fanouts)) == expected, fanouts


def test_fanouts_may_be_given_for_each_edge_type() -> None:
    batch = sample({"user": torch.arange(20), "item": torch.arange(10)}, TYPED, fanouts=[[0, 2]])
    csc = layers_of(batch)[0].sampled_csc
    assert isinstance(csc, dict)
    assert len(csc["user:likes:item"].indices) == 0
    assert csc["item:liked_by:user"].indptr.diff().max() == 2


@pytest.mark.parametrize(
    ("graph", "seeds"), [(HOMOGENEOUS, torch.tensor([7, 3, 7])), (TYPED, {"user": torch.tensor([2, 5])})]
)
def test_without_merging_each_edge_has_a_row_of_its_own(graph: SamplingGraph, seeds: Any) -> None:
    """The innermost layer has the same edges as with merging."""
    apart, merged = (layers_of(sample(seeds, graph, fanouts=[2, 3], deduplicate=choice)) for choice in (False, True))
    assert_same(apart[1].original_edge_ids, merged[1].original_edge_ids)
    assert_same(apart[0].original_column_node_ids, apart[1].original_row_node_ids)
    for layer in apart:
        parts: tuple[Any, ...] = (layer.original_row_node_ids, layer.original_column_node_ids, layer.sampled_csc)
        rows, columns, cscs = (value if isinstance(value, dict) else {"_": value} for value in parts)
        places: dict[str, list[int]] = {kind: [] for kind in rows}
        for edge_type, csc in cscs.items():
            places[edge_type.split(":")[0]] += csc.indices.tolist()
        for kind, ids in rows.items():
            assert_same(ids[: len(columns[kind])], columns[kind])
            assert places[kind] == list(range(len(columns[kind]), len(ids)))


def test_it_pickles_with_the_weights_running_sums() -> None:
    graph = gf.from_coo(pipelines.random_edges(50, 50, 9000, 3), 50, edge_attributes={"w": torch.rand(9000)})
    stage = gf.ItemSampler(gf.ItemSet(50, names="seeds"), 10).sample_neighbor(graph, [2], prob_name="w")
    packed = pickle.dumps(stage)
    assert len(packed) < 1 << 16
    again = pickle.loads(packed)
    expected = digests(stage)
    with patch.object(ops, "cumulate_weights", side_effect=AssertionError("made again")):
        assert digests(again) == expected


class Alike(gf.FanoutSampler):
    """Samples each mini-batch alike."""

    def sample_hops(self, seeds: ByType) -> list[gf.SampledSubgraph]:
        return self.graph.sample_hops(seeds, self.request, range(len(self.fanouts)))


def test_fields_are_those_of_samplers_with_fanouts() -> None:
    pipe = Alike(gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20), HOMOGENEOUS, [2], True, "w")
    assert (pipe.replace, pipe.prob_name) == (True, "w")
    assert_same(pipe.request.fanouts, [torch.tensor([2])])
    batch = next(iter(pipe))
    (layer,) = batch.sampled_subgraphs
    assert layer.sampled_csc.indptr.diff().max() <= 2
    assert batch.input_nodes is layer.original_row_node_ids


def test_several_ranks_cooperate_only_in_a_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    items = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20)
    for kind in (gf.NeighborSampler, gf.LayerNeighborSampler):
        pipe: Any = kind(items, HOMOGENEOUS, [2, 3], cooperative=True)
        alone, plain = next(iter(pipe)), next(iter(pipe.changed(cooperative=False)))
        assert_same(alone, plain)
        with monkeypatch.context() as patched:
            patched.setattr(fanout_sampler, "find_rank", lambda: (0, 2))
            with pytest.raises(RuntimeError, match="has cooperative=True, but ranks work together only in a"):
                next(iter(pipe))


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
        assert_same(pipe.request.fanouts, FANOUTS)
        assert digests(pipe) == expected, fanouts
        for sampler in (gf.LayerNeighborSampler, Alike):
            assert len(list(sampler(items, TYPED, fanouts))) == 1


def test_one_hop_at_a_time_takes_a_dict_as_well() -> None:
    pipe = gf.ItemSampler(gf.HeteroItemSet({"user": gf.ItemSet(20, names="seeds")}), 20)
    fanouts: list[Any] = [[1, 2], {LIKED: 2, ("user", "likes", "item"): 1}]
    one, other = (next(iter(pipe.sample_per_layer(TYPED.sample_neighbors, fanout))) for fanout in fanouts)
    assert_same(vars(one.sampled_subgraphs[0]), vars(other.sampled_subgraphs[0]))


def test_a_dict_follows_the_numbers_of_the_edge_types_and_not_their_order() -> None:
    fields = TYPED.fields()
    fields["edge_type_to_id"] = {LIKED: 1, LIKES: 0}
    graph = gf.fused_csc_sampling_graph(**fields)
    assert_same(Alike(EMPTY, graph, [{LIKED: 2, LIKES: 1}]).request.fanouts, [torch.tensor([1, 2])])


def test_a_graph_takes_fanouts_as_lists_and_arrays() -> None:
    seeds: Any = {"user": torch.arange(9), "item": torch.arange(9)}
    choices: list[Any] = [[2], np.array([2]), [1, 3]]
    for fanouts in choices:
        expected = TYPED.sample_neighbors(seeds, torch.tensor(fanouts), key=1)
        assert_same(vars(TYPED.sample_neighbors(seeds, fanouts, key=1)), vars(expected))
