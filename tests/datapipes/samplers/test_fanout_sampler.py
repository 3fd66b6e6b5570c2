from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.samplers import fanout_sampler
from graphfeed.storage.graph.sampled_subgraph import ByType
from tests import pipelines
from tests.digests import assert_same

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
