"""The sampler behind PyG's interface, also in PyG's own loaders."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphfeed.pyg import NegativeSampling, NeighborLoader, NeighborSampler
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import around, assert_is, assert_true, heterogeneous, homogeneous


def test_it_is_a_sampler_of_pygs_kind() -> None:
    assert issubclass(NeighborSampler, import_pyg("torch_geometric.sampler", "tests").BaseSampler)


@pytest.mark.parametrize("disjoint", [False, True])
def test_pygs_own_node_loader_takes_it(disjoint: bool) -> None:
    data = homogeneous()
    theirs = import_pyg("torch_geometric.loader", "tests").NodeLoader
    sampler = NeighborSampler(data, [-1, -1], disjoint=disjoint)
    seeds = torch.tensor([5, 2, 9])
    (batch,) = theirs(data, sampler, seeds, batch_size=3)
    assert_is(batch, around(data, {"": seeds.tolist()}, 2, disjoint=disjoint), disjoint=disjoint)
    assert_true(data, batch)


def test_pygs_own_loader_and_ours_give_the_same_with_full_fan_outs() -> None:
    data = heterogeneous()
    theirs = import_pyg("torch_geometric.loader", "tests").NodeLoader
    sampler = NeighborSampler(data, [-1, -1])
    seeds = ("user", torch.arange(7))
    (one,) = theirs(data, sampler, seeds, batch_size=7)
    (other,) = NeighborLoader(data, [-1, -1], seeds, batch_size=7)
    one, other = one.to_dict(), other.to_dict()
    assert one.keys() == other.keys()
    for kind, own in one.items():
        assert own.keys() == other[kind].keys()
        for name, value in own.items():
            same = (
                torch.equal(value, other[kind][name]) if isinstance(value, torch.Tensor) else value == other[kind][name]
            )
            assert same, (kind, name)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_pygs_own_link_loader_takes_it(mode: str) -> None:
    data = homogeneous()
    modules = [import_pyg(f"torch_geometric.{name}", "tests") for name in ("loader", "sampler")]
    sampler = NeighborSampler(data, [2, 2])
    loader = modules[0].LinkLoader(data, sampler, neg_sampling=modules[1].NegativeSampling(mode, 1), batch_size=4)
    batch = next(iter(loader))
    found = batch.edge_label_index[:, :4] if mode == "binary" else torch.stack([batch.src_index, batch.dst_pos_index])
    assert torch.equal(batch.n_id[found], data.edge_index[:, :4])


def node_draws(sampler: NeighborSampler) -> list[int]:
    found: list[int] = sampler.sample_from_nodes(inputs(torch.arange(20))).edge.tolist()
    return found


def link_draws(sampler: NeighborSampler) -> list[int]:
    ends = torch.arange(20)
    given = import_pyg("torch_geometric.sampler", "tests").EdgeSamplerInput(None, ends, ends + 20)
    output = sampler.sample_from_edges(given, NegativeSampling("binary", 3))
    found: list[int] = output.node[output.metadata[1]].flatten().tolist()
    return found


@pytest.mark.parametrize("draw", [node_draws, link_draws])
def test_each_call_draws_anew_and_torchs_seed_repeats_it(draw: Callable[[NeighborSampler], list[int]]) -> None:
    sampler = NeighborSampler(homogeneous(), [2, 2])
    torch.manual_seed(3)
    first, second = draw(sampler), draw(sampler)
    assert first != second
    torch.manual_seed(3)
    assert [draw(sampler), draw(sampler)] == [first, second]


def test_pygs_own_loader_draws_anew_in_each_epoch() -> None:
    loader = import_pyg("torch_geometric.loader", "tests").NodeLoader(
        homogeneous(), NeighborSampler(homogeneous(), [2, 2]), torch.arange(20), batch_size=10
    )
    first, second = ([batch.e_id.tolist() for batch in loader] for _ in range(2))
    assert first != second


@pytest.mark.slow
def test_workers_of_pygs_own_loader_make_every_mini_batch() -> None:
    data = homogeneous()
    theirs = import_pyg("torch_geometric.loader", "tests").NodeLoader
    loader = theirs(data, NeighborSampler(data, [2, 2]), torch.arange(12), batch_size=3, num_workers=2)
    torch.manual_seed(3)
    first, second = ([batch.to_dict() for batch in loader] for _ in range(2))
    assert [batch["input_id"].tolist() for batch in first] == torch.arange(12).reshape(4, 3).tolist()
    assert [batch["e_id"].tolist() for batch in first] != [batch["e_id"].tolist() for batch in second]
    torch.manual_seed(3)
    assert [batch.e_id.tolist() for batch in loader] == [batch["e_id"].tolist() for batch in first]


def test_without_a_loader_seeds_have_their_own_times() -> None:
    data = homogeneous()
    given = import_pyg("torch_geometric.sampler", "tests").NodeSamplerInput(None, torch.arange(9))
    output = NeighborSampler(data, [-1, -1], time_attr="time").sample_from_nodes(given)
    assert (data.time[output.node] <= data.time[output.node[:9]][output.batch]).all()


def test_backward_samples_successors() -> None:
    data = homogeneous()
    output = NeighborSampler(data, [-1], sample_direction="backward").sample_from_nodes(inputs(torch.tensor([3])))
    assert sorted(output.edge.tolist()) == (data.edge_index[0] == 3).nonzero().squeeze(1).tolist()
    assert torch.equal(torch.stack([output.node[output.row], output.node[output.col]]), data.edge_index[:, output.edge])
    typed = heterogeneous()
    sampler = NeighborSampler(typed, [-1], sample_direction="backward")
    output = sampler.sample_from_nodes(inputs(torch.tensor([3]), "user"))
    kind = ("user", "likes", "item")
    assert sorted(output.edge[kind].tolist()) == (typed[kind].edge_index[0] == 3).nonzero().squeeze(1).tolist()
    with pytest.raises(ValueError, match="sample_direction must be 'forward' or 'backward'"):
        NeighborSampler(data, [1], sample_direction="up")


def inputs(nodes: torch.Tensor, kind: str | None = None) -> Any:
    return import_pyg("torch_geometric.sampler", "tests").NodeSamplerInput(None, nodes, None, kind)


def test_negatives_may_be_strict() -> None:
    data = homogeneous()
    given = import_pyg("torch_geometric.sampler", "tests").EdgeSamplerInput(None, *data.edge_index)
    output = NeighborSampler(data, [1]).sample_from_edges(given, NegativeSampling("triplet", 5, strict=True))
    _, sources, _, wrong, _ = output.metadata
    true = {tuple(pair) for pair in data.edge_index.T.tolist()}
    ends = output.node[wrong]
    assert not any((int(a), int(b)) in true for a, row in zip(output.node[sources], ends, strict=True) for b in row)


@pytest.mark.parametrize(
    "options", [{"sizes": [2]}, {"sizes": [2], "node_idx": torch.arange(3)}, {"num_neighbors": [2]}]
)
def test_the_arguments_of_pygs_former_loader_lead_to_neighbor_loader(options: Any) -> None:
    kind: Any = NeighborSampler
    with pytest.raises(TypeError, match=r"use NeighborLoader\(data, num_neighbors=...\)"):
        kind(homogeneous().edge_index, **options)
    with pytest.raises(TypeError, match="use NeighborLoader"):
        kind(edge_index=homogeneous().edge_index, **options)
