import pickle
import re
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
TYPED = gf.from_coo(
    {
        "user:likes:item": pipelines.random_edges(20, 10, 100, 1),
        "item:liked_by:user": pipelines.random_edges(10, 20, 100, 2),
    },
    {"user": 20, "item": 10},
)


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


def test_draws_follow_the_key() -> None:
    seeds = torch.arange(20)
    same = digest(sample(seeds).sampled_subgraphs)
    assert same == digest(sample(seeds).sampled_subgraphs)
    others = [Key(1, 0, 0), Key(0, 1, 0), Key(0, 0, 1)]
    assert len({same, *(digest(sample(seeds, key=key).sampled_subgraphs) for key in others)}) == 4


def test_two_samplers_in_a_chain_draw_apart() -> None:
    first = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=50).sample_neighbor(HOMOGENEOUS, [2])
    (one,), (two,) = list(first), list(first.transform().sample_neighbor(HOMOGENEOUS, [2]))
    assert digest(one.sampled_subgraphs) != digest(two.sampled_subgraphs)


def test_a_stage_before_that_does_not_draw_changes_no_bit() -> None:
    items = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20)
    plain = items.sample_neighbor(HOMOGENEOUS, [2])
    assert digests(items.transform().sample_neighbor(HOMOGENEOUS, [2]).transform()) == digests(plain)


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


def test_edge_seeds_with_another_type_before() -> None:
    """Where any of the types has node seeds, all are taken as they are."""
    with pytest.raises(KeyError, match="seeds have node type 'user:likes:item', but the graph has"):
        sample({"user": torch.tensor([4]), "user:likes:item": torch.tensor([4])}, TYPED)


@pytest.mark.parametrize("fanouts", [[2, 1], [torch.tensor([2]), torch.tensor([1])], [[2], 1], (2, 1)], ids=str)
def test_fanouts_may_be_numbers_lists_or_tensors(fanouts: Any) -> None:
    assert digest(sample(torch.arange(9), fanouts=fanouts)) == digest(sample(torch.arange(9), fanouts=[2, 1]))


def test_fanouts_may_be_given_for_each_edge_type() -> None:
    batch = sample({"user": torch.arange(20), "item": torch.arange(10)}, TYPED, fanouts=[[0, 2]])
    csc = layers_of(batch)[0].sampled_csc
    assert isinstance(csc, dict)
    assert len(csc["user:likes:item"].indices) == 0
    assert csc["item:liked_by:user"].indptr.diff().max() == 2


@pytest.mark.parametrize("name", ["w", "mask"])
def test_weights_are_found_by_name(name: str) -> None:
    batch = sample(torch.arange(50), fanouts=[-1], prob_name=name)
    ids = layers_of(batch)[0].original_edge_ids
    assert isinstance(ids, torch.Tensor)
    kept = HOMOGENEOUS.edge_attribute("_ORIGINAL_EDGE_ID")[HOMOGENEOUS.edge_attribute(name) > 0]
    assert sorted(ids.tolist()) == sorted(kept.tolist())


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


def test_with_replacement_every_node_with_neighbours_gets_its_fanout() -> None:
    (layer,) = layers_of(sample(torch.arange(50), fanouts=[40], replace=True))
    assert set(degrees(layer).tolist()) <= {0, 40}


@pytest.mark.parametrize(
    ("error", "graph", "fanouts", "message"),
    [
        (ValueError, HOMOGENEOUS, [], "fanouts must hold one number per hop, as in [10, 10], but is []"),
        (ValueError, HOMOGENEOUS, 5, "fanouts must hold one number per hop, as in [10, 10], but is 5"),
        (ValueError, HOMOGENEOUS, "55", "fanouts must hold one number per hop, as in [10, 10], but is '55'"),
        (TypeError, HOMOGENEOUS, [5, 2.5], "fanouts[1] must be whole numbers, but is 2.5"),
        (TypeError, HOMOGENEOUS, [True], "fanouts[0] must be whole numbers, but is True"),
        (ValueError, HOMOGENEOUS, [5, -2], "fanouts[1] must be -1 (all neighbours) or more, but is -2"),
        (
            ValueError,
            HOMOGENEOUS,
            [[5, 5]],
            "fanouts[0] has 2 numbers; give one fan-out for all edge types: the graph has one",
        ),
        (
            ValueError,
            TYPED,
            [5, [1, 2, 3]],
            "fanouts[1] has 3 numbers; give one fan-out for all edge types, or 2: one per",
        ),
        (ValueError, TYPED, [[]], "fanouts[0] has 0 numbers; give one fan-out for all edge types"),
    ],
)
def test_fanouts_that_do_not_fit_are_named_when_the_pipeline_is_written(
    error: type[Exception], graph: SamplingGraph, fanouts: Any, message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        gf.IterableSource([]).sample_neighbor(graph, fanouts)


def test_what_is_no_graph_is_named_when_the_pipeline_is_written() -> None:
    items: Any = gf.ItemSet(3)
    with pytest.raises(TypeError, match=r"graph must be a SamplingGraph, but is a ItemSet; make one with from_coo"):
        gf.IterableSource([]).sample_neighbor(items, [1])


@pytest.mark.parametrize(
    ("error", "graph", "seeds", "message"),
    [
        (ValueError, HOMOGENEOUS, None, "the mini-batch has no seeds; name them in the item set: names='seeds'"),
        (ValueError, HOMOGENEOUS, torch.tensor([50]), "seeds must lie in 0 .. 49, but holds 50"),
        (ValueError, HOMOGENEOUS, torch.tensor([-1]), "seeds must lie in 0 .. 49, but holds -1"),
        (TypeError, HOMOGENEOUS, torch.tensor([0.0]), "seeds must be torch.int32 or torch.int64, but is torch.float32"),
        (
            KeyError,
            TYPED,
            {"shop": torch.tensor([0])},
            "seeds have node type 'shop', but the graph has ['user', 'item']",
        ),
        (ValueError, TYPED, {"a:b": torch.zeros(1, 3).long()}, "seeds of type 'a:b' have 3 columns; name an edge"),
    ],
)
def test_seeds_that_do_not_fit_are_named_with_the_stage(
    error: type[Exception], graph: SamplingGraph, seeds: Any, message: str
) -> None:
    pipe = gf.IterableSource([gf.MiniBatch(seeds=seeds)]).sample_neighbor(graph, [1])
    with pytest.raises(error, match=re.escape(message)) as caught:
        list(pipe)
    assert caught.value.__notes__ == ["in NeighborSampler, stage 2, mini-batch 0 of epoch 0, in the main thread"]


def test_it_pickles_with_the_weights_running_sums() -> None:
    graph = gf.from_coo(pipelines.random_edges(50, 50, 9000, 3), 50, edge_attributes={"w": torch.rand(9000)})
    stage = gf.ItemSampler(gf.ItemSet(50, names="seeds"), 10).sample_neighbor(graph, [2], prob_name="w")
    packed = pickle.dumps(stage)
    assert len(packed) < 1 << 16
    again = pickle.loads(packed)
    expected = digests(stage)
    with patch.object(ops, "cumulate_weights", side_effect=AssertionError("made again")):
        assert digests(again) == expected


def test_with_types_and_replacement_every_node_with_neighbours_gets_its_fanout() -> None:
    seeds = {"user": torch.arange(20), "item": torch.arange(10)}
    (layer,) = layers_of(sample(seeds, TYPED, fanouts=[[40, 30]], replace=True))
    assert isinstance(layer.sampled_csc, dict)
    counts = [set(csc.indptr.diff().tolist()) for csc in layer.sampled_csc.values()]
    assert sorted(map(max, counts)) == [30, 40]
    assert all(own <= {0, max(own)} for own in counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_with_types_weights_are_found_by_name(dtype: torch.dtype) -> None:
    edges = {kind: pipelines.random_edges(20, 20, 100, place) for place, kind in enumerate(["a:x:b", "b:y:a"])}
    weights = {kind: (torch.arange(100) % 3 > 0).to(dtype) for kind in edges}
    graph = gf.from_coo(edges, {"a": 20, "b": 20}, edge_attributes={"w": weights})
    batch = sample({"a": torch.arange(20), "b": torch.arange(20)}, graph, fanouts=[-1], prob_name="w")
    ids = layers_of(batch)[0].original_edge_ids
    assert isinstance(ids, dict)
    assert {kind: sorted(own.tolist()) for kind, own in ids.items()} == {
        kind: own.nonzero().flatten().tolist() for kind, own in weights.items()
    }


GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50, edge_attributes={"w": torch.rand(600)})
EMPTY = gf.IterableSource([])


class Alike(gf.FanoutSampler):
    """Samples each mini-batch alike."""

    def sample_hops(self, seeds: ByType) -> list[gf.SampledSubgraph]:
        return self.graph.sample_hops(seeds, self.request, range(len(self.fanouts)))


def test_fields_are_those_of_samplers_with_fanouts() -> None:
    pipe = Alike(gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20), GRAPH, [2], True, "w")
    assert (pipe.replace, pipe.prob_name) == (True, "w")
    assert_same(pipe.request.fanouts, [torch.tensor([2])])
    batch = next(iter(pipe))
    (layer,) = batch.sampled_subgraphs
    assert layer.sampled_csc.indptr.diff().max() <= 2
    assert batch.input_nodes is layer.original_row_node_ids
    with pytest.raises(NotImplementedError, match="FanoutSampler must write sample_hops"):
        next(iter(gf.FanoutSampler(pipe, GRAPH, [2])))


def test_weights_and_graph_are_checked_too() -> None:
    with pytest.raises(KeyError, match="Edge attribute x does not exist"):
        Alike(EMPTY, GRAPH, [1], prob_name="x")
    items: Any = gf.ItemSet(3)
    with pytest.raises(TypeError, match="graph must be a SamplingGraph, but is a ItemSet"):
        Alike(EMPTY, items, [1])


@pytest.mark.parametrize("kind", [gf.NeighborSampler, gf.LayerNeighborSampler])
def test_options_of_samplers_on_gpus(kind: Any) -> None:
    """What changes only the speed is taken and has no effect; so does cooperation of a single rank."""
    items = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20)
    faster = kind(
        items,
        GRAPH,
        [2, 3],
        overlap_fetch=True,
        num_gpu_cached_edges=9,
        gpu_cache_threshold=2,
        asynchronous=True,
        cooperative=True,
    )
    for one, other in zip(kind(items, GRAPH, [2, 3]), faster, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("kind", [gf.NeighborSampler, gf.LayerNeighborSampler])
def test_several_ranks_cooperate_only_in_a_loader(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout_sampler, "find_rank", lambda: (0, 2))
    items = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20)
    with pytest.raises(RuntimeError, match="has cooperative=True, but ranks work together only in a DataLoader"):
        next(iter(kind(items, GRAPH, [2, 3], cooperative=True)))


@pytest.mark.parametrize("option", ["only_new", "disjoint"])
def test_cooperation_goes_with_nodes_in_common_alone(option: str) -> None:
    with pytest.raises(ValueError, match=f"cooperative and {option} are both True"):
        gf.NeighborSampler(EMPTY, GRAPH, [2], cooperative=True, **{option: True})  # type: ignore[arg-type]


LIKES, LIKED = "user:likes:item", "item:liked_by:user"
TYPED = gf.from_coo(
    {LIKES: pipelines.random_edges(20, 20, 200, 1), LIKED: pipelines.random_edges(20, 20, 200, 2)},
    {"user": 20, "item": 20},
)
FANOUTS = [torch.tensor([1, 2]), torch.tensor([3, 4])]


@pytest.mark.parametrize(
    "fanouts",
    [
        [[1, 2], [3, 4]],
        [{LIKES: 1, LIKED: 2}, {LIKED: 4, LIKES: 3}],
        [{("user", "likes", "item"): 1, ("item", "liked_by", "user"): 2}, [3, 4]],
        {LIKES: [1, 3], LIKED: [2, 4]},
        {("item", "liked_by", "user"): (2, 4), ("user", "likes", "item"): np.array([1, 3])},
        [np.array([1, 2]), torch.tensor([3, 4], dtype=torch.int32)],
        torch.tensor([[1, 2], [3, 4]]),
        np.array([[1, 2], [3, 4]]),
    ],
    ids=str,
)
def test_fanouts_by_edge_type_are_lists_arrays_or_dicts(fanouts: Any) -> None:
    items = gf.HeteroItemSet({"user": gf.ItemSet(20, names="seeds")})
    expected = gf.ItemSampler(items, 20).sample_neighbor(TYPED, FANOUTS)
    pipe: Any = gf.ItemSampler(items, 20).sample_neighbor(TYPED, fanouts)
    assert_same(pipe.request.fanouts, FANOUTS)
    for one, other in zip(expected, pipe, strict=True):
        assert_same(one, other)
    for sampler in (gf.LayerNeighborSampler, Alike):
        assert len(list(sampler(gf.ItemSampler(items, 20), TYPED, fanouts))) == 1


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


@pytest.mark.parametrize(
    ("fanouts", "message"),
    [
        (
            [{LIKES: 1}],
            r"fanouts\[0\] must have a number for each edge type .*, but has \['user:likes:item'\]; 0 t",
        ),
        ([2, {LIKES: 1, "a:b:c": 2}], r"fanouts\[1\] must have a number for each edge type of the graph, which has"),
        ({LIKES: [1], LIKED: [1, 2]}, r"fanouts must have as many hops for each edge type, but has \{'user:likes:item"),
        (
            {LIKES: 1, LIKED: 1},
            r"fanouts\['user:likes:item'\] must hold one number per hop, as in \[10, 10\], but",
        ),
        ({}, r"fanouts must hold one number per hop, as in \[10, 10\], but is \{\}"),
        ([{LIKES: 1, LIKED: -2}], r"fanouts\[0\] must be -1 \(all neighbours\) or more"),
        ([{LIKES: 1, LIKED: 1.5}], r"fanouts\[0\] must be whole numbers, but is \{"),
        ([{LIKES: 1, LIKED: None}], r"fanouts\[0\] must be a torch.Tensor, .*, but is \[1, None\]"),
        ([{LIKES: 1, ("item", "user"): 1}], "must have three parts"),
        ([torch.zeros(10**6)], r"fanouts\[0\] must be whole numbers, but is a Tensor of shape \(1000000,\)"),
    ],
)
def test_wrong_fanouts_by_type_are_named(fanouts: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        Alike(EMPTY, TYPED, fanouts)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("fanouts", [[2], np.array([2]), [1, 3]], ids=str)
def test_a_graph_takes_fanouts_as_lists_and_arrays(fanouts: Any) -> None:
    seeds: Any = {"user": torch.arange(9), "item": torch.arange(9)}
    expected = TYPED.sample_neighbors(seeds, torch.tensor(fanouts), key=1)
    assert_same(vars(TYPED.sample_neighbors(seeds, fanouts, key=1)), vars(expected))
