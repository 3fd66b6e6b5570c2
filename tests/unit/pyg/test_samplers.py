"""PyG samplers: ours in PyG's own loaders, and any in `NodeLoader`."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import (
    JoinedNeighborSampler,
    JoinedTemporalSampler,
    NegativeSampling,
    NeighborLoader,
    NeighborSampler,
    NodeLoader,
    ToSamplerOutput,
)
from graphfeed.pyg.data import graph_of_data, import_pyg
from tests.kinds.digests import assert_same
from tests.kinds.graph_kinds import OneHop
from tests.kinds.neighborhood import heterogeneous, homogeneous, values_of
from tests.kinds.stores import in_stores


class Itself:
    """Returns the seeds, with a self-loop at each that has the id 3 in the sampler's own order."""

    edge_permutation = torch.arange(200).flip(0)

    def sample_from_nodes(self, index: Any) -> Any:
        module, own = import_pyg("torch_geometric.sampler", "tests"), torch.arange(len(index.node))
        noise = torch.rand(1)
        output = module.SamplerOutput(index.node, own, own, torch.full_like(own, 3))
        output.metadata = (index.input_id, index.time)
        output.batch = noise
        return output


def test_a_sampler_of_ones_own_is_called_for_the_seeds() -> None:
    data = homogeneous()
    (batch,) = NodeLoader(data, Itself(), torch.tensor([4, 9]), batch_size=2)
    assert batch.n_id.tolist() == [4, 9]
    assert batch.edge_index.tolist() == [[0, 1], [0, 1]]
    assert batch.e_id.tolist() == [196, 196]
    assert torch.equal(batch.x, data.x[[4, 9]])
    assert torch.equal(batch.edge_attr, data.edge_attr[[196, 196]])
    assert (batch.batch_size, batch.input_id.tolist()) == (2, [0, 1])


class Star(Itself):
    """Returns an edge from the first seed to each seed, in rows of one tensor, of which the first has a stride of 0."""

    def sample_from_nodes(self, index: Any) -> Any:
        output = super().sample_from_nodes(index)
        both = torch.stack([output.row + 7, output.row])
        both[0, 0] = 0
        output.row, output.col = both[0, :1].expand(len(output.row)), both[1]
        return output


class Alone(Itself):
    """Returns the seeds without edges, and counts of all types of the graph."""

    def sample_from_nodes(self, index: Any) -> Any:
        module = import_pyg("torch_geometric.sampler", "tests")
        output = module.HeteroSamplerOutput({"user": index.node}, {}, {}, {})
        output.metadata = (index.input_id, index.time)
        output.num_sampled_nodes = {"user": [len(index.node)], "item": [0], "unknown": [0]}
        output.num_sampled_edges = {("user", "likes", "item"): [0]}
        return output


def test_its_counts_may_be_of_types_without_nodes_and_edges() -> None:
    (batch,) = NodeLoader(in_stores(heterogeneous(), "coo"), Alone(), ("user", torch.tensor([4, 9])), batch_size=2)
    assert (batch["user"].n_id.tolist(), batch["user"].num_sampled_nodes) == ([4, 9], [2])
    assert "unknown" not in batch.node_types


def test_its_edges_may_be_strided_rows_of_one_tensor() -> None:
    (batch,) = NodeLoader(homogeneous(), Star(), torch.tensor([4, 9, 2]), batch_size=3)
    assert batch.edge_index.tolist() == [[0, 0, 0], [0, 1, 2]]


def test_what_it_draws_depends_on_the_mini_batch_alone() -> None:
    data = homogeneous()
    found = [[values_of(batch) for batch in NodeLoader(data, Itself(), batch_size=9, seed=1)] for _ in range(2)]
    assert found[0] == found[1]
    assert found[0][0]["batch"] != found[0][1]["batch"]


def test_ids_of_seeds_may_be_given() -> None:
    data = homogeneous()
    loader = NodeLoader(data, NeighborSampler(data, [2]), torch.tensor([4, 9, 2]), input_id=torch.tensor([70, 71, 72]))
    assert [batch.input_id.tolist() for batch in loader] == [[70], [71], [72]]


def test_features_are_fetched_where_it_is_said() -> None:
    data = homogeneous()
    sampler = NeighborSampler(data, [2])
    for said in (True, False, None):
        plan = NodeLoader(data, sampler, num_workers=2, filter_per_worker=said).explain()
        (line,) = [line for line in plan.splitlines() if "FeatureFetcher(" in line]
        assert line.startswith("worker") is (said is not False)


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


def test_pygs_own_link_loader_takes_it() -> None:
    for mode in ["binary", "triplet"]:
        data = homogeneous()
        modules = [import_pyg(f"torch_geometric.{name}", "tests") for name in ("loader", "sampler")]
        sampler = NeighborSampler(data, [2, 2])
        loader = modules[0].LinkLoader(data, sampler, neg_sampling=modules[1].NegativeSampling(mode, 1), batch_size=4)
        batch = next(iter(loader))
        found = (
            batch.edge_label_index[:, :4] if mode == "binary" else torch.stack([batch.src_index, batch.dst_pos_index])
        )
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


def test_each_call_draws_anew_and_torchs_seed_repeats_it() -> None:
    for draw in [node_draws, link_draws]:
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


def test_a_graph_that_joins_no_hops_has_them_joined() -> None:
    for stage in [JoinedNeighborSampler, JoinedTemporalSampler]:
        for disjoint in [False, True]:
            graph = graph_of_data(heterogeneous(), "time").graph
            items = gf.ItemSet((torch.arange(20), torch.arange(20) * 3), names=("seeds", "timestamp"))
            pipe = gf.ItemSampler(gf.HeteroItemSet({"user": items}), 16)
            if stage is JoinedTemporalSampler:
                joined = stage(pipe, graph, [3, 4], node_timestamp_attr_name="time", disjoint=disjoint)
            else:
                joined = stage(pipe, graph, [3, 4], only_new=True, disjoint=disjoint)
            by_hop: Any = joined.changed(graph=ByHop(graph))
            for own in zip(ToSamplerOutput(joined, disjoint), ToSamplerOutput(by_hop, disjoint), strict=True):
                one, other = (vars(batch.output) for batch in own)  # type: ignore[attr-defined]
                assert_same(one, other)


class ByHop(OneHop):
    """Has no way to sample all hops at once."""

    def pick(self, nodes: Any, hop: Any) -> Any:
        return self.graph.pick(nodes, hop)
