"""`NeighborLoader` on data without types: with full fan-outs equal to the slow version, else a part of it."""

import pickle
from typing import Any

import pytest
import torch

from graphfeed.pyg import NeighborLoader, NumNeighbors
from tests.pyg.neighborhood import NUM_NODES, around, assert_is, assert_true, heterogeneous, homogeneous, values_of

SEEDS = torch.tensor([7, 3, 50, 12, 9, 31])


def first(data: Any, numbers: Any, **options: Any) -> Any:
    return next(iter(NeighborLoader(data, numbers, **{"input_nodes": SEEDS, "batch_size": 4, "seed": 0, **options})))


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("kind", ["", "user"])
def test_full_neighborhoods_equal_the_slow_version(kind: str, hops: int, disjoint: bool) -> None:
    data = heterogeneous() if kind else homogeneous()
    nodes = SEEDS % 40
    loader: Any = NeighborLoader(data, [-1] * hops, (kind, nodes) if kind else nodes, batch_size=4, disjoint=disjoint)
    for batch, seeds in zip(loader, nodes.split(4), strict=True):  # type: ignore[no-untyped-call]
        assert_is(batch, around(data, {kind: seeds.tolist()}, hops, disjoint=disjoint), disjoint=disjoint)
        assert_true(data, batch)
        assert (batch[kind] if kind else batch).batch_size == len(seeds)


def test_seeds_come_first_and_keep_their_order_and_doubles() -> None:
    data, seeds = homogeneous(), [5, 9, 5, 2]
    batch = first(data, [-1, -1], input_nodes=torch.tensor(seeds))
    assert batch.n_id[:4].tolist() == seeds
    assert_is(batch, around(data, {"": seeds}, 2))


def test_fan_outs_bound_the_in_edges_of_each_node() -> None:
    data = homogeneous()
    batch = first(data, [3, 2])
    inner, outer = batch.num_sampled_edges
    degrees = torch.bincount(data.edge_index[1], minlength=NUM_NODES)[batch.n_id]
    found = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    seeds, new = batch.num_sampled_nodes[:2]
    assert torch.equal(found[:seeds], degrees[:seeds].clamp(max=3))
    assert torch.equal(found[seeds : seeds + new], degrees[seeds : seeds + new].clamp(max=2))
    assert (inner, outer) == (int(found[:seeds].sum()), int(found[seeds:].sum()))
    assert len(set(batch.e_id.tolist())) == len(batch.e_id)
    assert_true(data, batch)


def test_each_node_is_sampled_once() -> None:
    data = homogeneous()
    batch = first(data, [2, 2, 2, 2])
    found = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    assert int(found.max()) <= 2


def test_a_hop_of_0_takes_none() -> None:
    assert first(homogeneous(), [0]).edge_index.shape == (2, 0)
    assert first(homogeneous(), [-1, 0]).num_sampled_edges[1] == 0


def test_numbers_may_be_an_object() -> None:
    data = homogeneous()
    assert_is(first(data, NumNeighbors([-1, -1])), around(data, {"": SEEDS[:4].tolist()}, 2))


def test_with_replacement_edges_come_up_again() -> None:
    batch = first(homogeneous(), [30], replace=True)
    assert torch.bincount(batch.edge_index[1], minlength=4)[:4].tolist() == [30] * 4
    assert len(set(batch.e_id.tolist())) < len(batch.e_id)
    assert_true(homogeneous(), batch)


def test_a_weight_of_0_is_never_drawn() -> None:
    data = homogeneous()
    for numbers in ([-1, -1], [4, 4], [1000]):
        for replace in (False, True):
            if replace and -1 in numbers:
                continue
            batch = first(data, numbers, weight_attr="weight", replace=replace)
            assert (batch.weight > 0).all()
    assert len(batch.weight) > 0


def test_weights_are_kept_to() -> None:
    data = homogeneous()
    data.edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])
    data.edge_attr, data.edge_time, data.weight = torch.arange(3.0)[:, None], torch.arange(3), torch.tensor([1, 2, 5])
    loader = NeighborLoader(data, [1], torch.zeros(400, dtype=torch.int64), weight_attr="weight", seed=0)
    counts = torch.bincount(torch.cat([batch.e_id for batch in loader]), minlength=3)
    expected = torch.tensor([1, 2, 5]) / 8 * 400
    assert float(((counts - expected) ** 2 / expected).sum()) < 14  # chi-square, 2 degrees of freedom, p = 0.001


def test_bidirectional_adds_the_reverse_of_each_edge() -> None:
    data = homogeneous()
    plain, both = first(data, [3, 2]), first(data, [3, 2], subgraph_type="bidirectional")
    assert torch.equal(plain.n_id, both.n_id)
    pairs = {tuple(pair) for pair in plain.edge_index.T.tolist()}
    assert [tuple(pair) for pair in both.edge_index.T.tolist()] == sorted(
        pairs | {pair[::-1] for pair in pairs}, key=lambda pair: pair[::-1]
    )
    assert "num_sampled_edges" not in both
    for (row, col), edge in zip(both.edge_index.T.tolist(), both.e_id.tolist(), strict=True):
        ends = data.edge_index[:, edge].tolist()
        own = both.n_id[[row, col]].tolist()
        assert own == ends if (row, col) in pairs else own == ends[::-1]


def test_induced_has_all_edges_between_the_nodes() -> None:
    data = homogeneous()
    batch = first(data, [3, 2], subgraph_type="induced")
    nodes = set(batch.n_id.tolist())
    inside = [edge for edge, pair in enumerate(data.edge_index.T.tolist()) if set(pair) <= nodes]
    assert sorted(batch.e_id.tolist()) == inside
    assert_true(data, batch)
    assert_same(batch, first(data, [3, 2], directed=False))


def test_edges_that_are_said_to_be_sorted_need_not_be() -> None:
    assert_same(first(homogeneous(), [3, 2]), first(homogeneous(), [3, 2], is_sorted=True))


def assert_same(one: Any, other: Any) -> None:
    assert values_of(one) == values_of(other)


@pytest.mark.parametrize("options", [{"disjoint": True}, {"time_attr": "time"}])
def test_induced_does_not_go_with_trees(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="subgraph_type='induced' has one node"):
        first(homogeneous(), [2], subgraph_type="induced", **options)


def test_unknown_names_are_refused() -> None:
    for options, text in (
        ({"subgraph_type": "all"}, "subgraph_type must be one of"),
        ({"temporal_strategy": "first"}, "temporal_strategy must be one of"),
        ({"weight_attr": "w"}, "data has no attribute 'w'"),
        ({"time_attr": "t"}, "time_attr is 't'"),
    ):
        with pytest.raises(ValueError, match=text):
            first(homogeneous(), [2], **options)
    with pytest.raises(TypeError, match="NeighborLoader has no argument 'batchsize'"):
        NeighborLoader(homogeneous(), [2], batchsize=3)


def test_transforms_are_called_before_and_after_fetching() -> None:
    def shorten(output: Any) -> Any:
        output.node, output.num_sampled_nodes = output.node[:4], None
        output.row = output.col = output.edge = output.row[:0]
        return output

    batch = first(
        homogeneous(), [2], transform_sampler_output=shorten, transform=lambda data: (data.x.shape[0], data.e_id)
    )
    assert batch[0] == 4
    assert batch[1].tolist() == []


def test_it_shows_its_pipeline_and_its_plan() -> None:
    loader = NeighborLoader(homogeneous(), [3, 2], num_workers=2)
    assert "only_new=True" in str(loader.pipeline)
    assert "FeatureFetcher" in loader.explain()
    assert len(pickle.dumps(loader.pipeline)) < 1 << 16


def test_a_sampler_serves_several_loaders() -> None:
    data = homogeneous()
    one = NeighborLoader(data, [3, 2], SEEDS, batch_size=3, seed=1)
    other = NeighborLoader(data, None, SEEDS, batch_size=3, seed=1, neighbor_sampler=one.node_sampler)
    assert [values_of(batch) for batch in one] == [values_of(batch) for batch in other]
    assert one.node_sampler is other.node_sampler


def test_input_time_needs_time_attr() -> None:
    with pytest.raises(ValueError, match="input_time needs time_attr"):
        NeighborLoader(homogeneous(), [2], SEEDS, torch.zeros(6, dtype=torch.int64))
