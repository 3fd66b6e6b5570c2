from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage import CSCFormatBase, FusedCSCSamplingGraph, SampledSubgraph, SamplingGraph
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling.compaction import compact_hop
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests.digests import assert_same
from tests.pipelines import random_edges
from tests.storage.graph.test_graph_protocol import DictGraph

NEIGHBORS = {0: [5, 3, 2], 1: [5, 0], 2: [], 3: [0, 1, 2, 3, 4], 4: [], 5: [1]}
LISTS = {node: [(neighbor, neighbor) for neighbor in row] for node, row in NEIGHBORS.items()}


class TypedDictGraph(DictGraph):
    """A graph of a user's own with two node types; users have neighbours among items."""

    def __init__(self) -> None:
        super().__init__(LISTS)
        self.num_nodes = {"user": 4, "item": 6}  # type: ignore[assignment]

    def sample_neighbors(self, seeds: ByType, *args: Any, **options: Any) -> SampledSubgraph:
        assert isinstance(seeds, dict)
        seeds = {"user": seeds["user"], "item": seeds.get("item", torch.tensor([], dtype=torch.int64))}
        hop = super().sample_neighbors(seeds["user"], *args, **options)
        return SampledSubgraph({"item:bought_by:user": hop.sampled_csc}, seeds)


def make_fused(**attributes: torch.Tensor) -> FusedCSCSamplingGraph:
    return gf.from_coo(random_edges(400, 400, 5000, 0), 400, edge_attributes=attributes)


def test_one_hop_is_enough_for_all() -> None:
    inner, outer = torch.tensor([2]), torch.tensor([9])
    layers = DictGraph(LISTS).sample_hops(torch.tensor([1, 4, 1]), SamplingRequest([outer, inner]), [7, 8])
    assert len(layers) == 2
    # The seeds' own hop takes both neighbours of node 1; the doubled seed is drawn alike and keeps its places.
    rows = layers[1].original_row_node_ids
    assert isinstance(rows, torch.Tensor)
    assert rows[:3].tolist() == [1, 4, 1]
    assert sorted(rows[3:].tolist()) == [0, 5]
    assert layers[0].original_column_node_ids is rows
    assert isinstance(layers[0].sampled_csc, CSCFormatBase)
    assert layers[0].sampled_csc.indptr.diff().tolist() == [len(NEIGHBORS[node]) for node in rows.tolist()]


def test_a_typed_graph_of_ones_own_has_all_node_types() -> None:
    request = SamplingRequest([torch.tensor([9])] * 2)
    layers = TypedDictGraph().sample_hops({"user": torch.tensor([1, 0])}, request, [1, 2])
    for layer in layers:
        assert isinstance(layer.original_row_node_ids, dict)
        assert list(layer.original_row_node_ids) == ["user", "item"]
        assert layer.original_row_node_ids["user"].tolist() == [1, 0]
        assert sorted(layer.original_row_node_ids["item"].tolist()) == [0, 2, 3, 5]


def test_rows_are_seeds_verbatim_then_new_nodes_by_first_appearance() -> None:
    seeds = torch.tensor([7, 3, 7])
    hop = SampledSubgraph(CSCFormatBase(torch.tensor([0, 3, 4, 5]), torch.tensor([9, 3, 8, 7, 9])), seeds, None, seeds)
    result = compact_hop(hop, deduplicate=True, num_nodes=10)
    assert_same(result.original_row_node_ids, torch.tensor([7, 3, 7, 9, 8]))
    assert_same(result.sampled_csc, CSCFormatBase(torch.tensor([0, 3, 4, 5]), torch.tensor([3, 1, 4, 0, 3])))
    assert result.original_column_node_ids is seeds
    assert result.original_edge_ids is seeds


def test_typed_rows_are_found_edge_type_by_edge_type() -> None:
    none = torch.tensor([], dtype=torch.int64)
    seeds = {"user": torch.tensor([2, 0, 2]), "item": none, "shop": none}
    cscs = {
        "user:knows:user": CSCFormatBase(torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0])),
        "item:bought_by:user": CSCFormatBase(torch.tensor([0, 2, 2, 3]), torch.tensor([4, 3, 4])),
        "user:sells:item": CSCFormatBase(torch.tensor([0]), none),
    }
    hop = SampledSubgraph(cscs, seeds)
    result = compact_hop(hop, deduplicate=True, num_nodes={"user": 3, "item": 5, "shop": 1})
    assert_same(
        result.original_row_node_ids, {"user": torch.tensor([2, 0, 2, 1]), "item": torch.tensor([4, 3]), "shop": none}
    )
    assert isinstance(result.sampled_csc, dict)
    assert_same([csc.indices.tolist() for csc in result.sampled_csc.values()], [[3, 1], [0, 1, 0], []])
    assert list(result.sampled_csc) == list(cscs)


@pytest.mark.parametrize("fanouts", [[3, 2], [-1, 4, 1], [0, 2], [60, 1]], ids=str)
@pytest.mark.parametrize("replace", [False, True], ids=["without replacement", "with replacement"])
@pytest.mark.parametrize("probs_name", [None, "weight", "mask"])
def test_all_hops_at_once_equal_hop_after_hop(fanouts: list[int], replace: bool, probs_name: str | None) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(5000, generator=generator)
    graph = make_fused(weight=weight, mask=weight > 0.5)
    seeds = torch.randint(0, 400, (50,), generator=generator)
    request = SamplingRequest([torch.tensor([fanout]) for fanout in fanouts], replace, probs_name)
    keys = list(range(10, 10 + len(fanouts)))
    fused = graph.sample_hops(seeds, request, keys)
    assert_same(fused, SamplingGraph.sample_hops(graph, seeds, request, keys))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_all_hops_at_once_equal_hop_after_hop_for_any_ids(dtype: torch.dtype) -> None:
    edges = random_edges(400, 400, 5000, 2).to(dtype)
    made = gf.from_coo(edges, 400)
    graph = gf.fused_csc_sampling_graph(made.csc_indptr.to(dtype), made.indices)  # without edge ids of its own
    seeds = torch.arange(0, 400, 9, dtype=dtype)
    arguments = (seeds, SamplingRequest([torch.tensor([3]), torch.tensor([5])]), [1, 2])
    assert_same(graph.sample_hops(*arguments), SamplingGraph.sample_hops(graph, *arguments))


def test_the_interface_alone_is_no_graph() -> None:
    with pytest.raises(TypeError, match="abstract"):
        SamplingGraph()  # type: ignore[abstract]


class OneHop(gf.SamplingGraph):
    """Samples one hop as a graph in memory does, and nothing else."""

    num_nodes = num_edges = 0

    def __init__(self, whole: gf.FusedCSCSamplingGraph) -> None:
        self.whole, self.num_nodes, self.num_edges = whole, whole.total_num_nodes, whole.total_num_edges

    def sample_neighbors(self, *args: Any, **kwargs: Any) -> gf.SampledSubgraph:
        hop: gf.SampledSubgraph = self.whole.sample_neighbors(*args, **kwargs)
        return hop


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_walks_need_no_more_than_one_hop(dtype: torch.dtype) -> None:
    """Some nodes have no in-edges, so that walks end there."""
    whole = gf.from_coo(random_edges(60, 60, 90, 1).to(dtype), 60)
    starts = torch.cat([torch.arange(60), torch.tensor([7, 7])])
    walks = OneHop(whole).random_walks(starts, 6, key=5)
    assert_same(walks, whole.random_walks(starts, 6, key=5))
    assert (walks.dtype, tuple(walks.shape)) == (dtype, (62, 7))
    assert walks[:, 0].tolist() == starts.tolist()
    assert not torch.equal(walks[60], walks[61])
    assert len(OneHop(whole).random_walks(starts[:0], 3)) == 0
    assert OneHop(whole).random_walks(starts, 0).tolist() == starts[:, None].tolist()


def test_walks_say_what_is_wrong() -> None:
    whole = gf.from_coo(([0, 1], [1, 0]), 2)
    typed = gf.from_coo({"a:to:a": ([0], [0])}, {"a": 1})
    for graph in (whole, OneHop(whole)):
        with pytest.raises(ValueError, match="length must be 0 or more, but is -1"):
            graph.random_walks(torch.tensor([0]), -1)
        with pytest.raises(ValueError, match=r"must lie in 0 \.\. 1, but holds 2"):
            graph.random_walks(torch.tensor([2]), 1)
    with pytest.raises(ValueError, match=r"random walks need a graph without types, but it has \['a:to:a'\]"):
        typed.random_walks(torch.tensor([0]), 1)
