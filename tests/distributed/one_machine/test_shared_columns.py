"""Ranks of one machine that share the columns of their parts."""

import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedGraph, Peers, cut_graph
from tests.digests import digests
from tests.distributed.graphs import plain
from tests.distributed.joint import in_threads


@pytest.mark.slow
def test_ids_of_edges_take_memory_only_where_they_are_not_their_places(shared: list[Any]) -> None:
    assert [found["ids"] for found in shared] == [[[True, False], [True, True]]] * 3


@pytest.mark.slow
def test_graphs_over_one_part_share_its_columns_and_another_rank_need_not(shared: list[Any]) -> None:
    assert [found["several graphs"] for found in shared] == [[True, True, rank != 1] for rank in range(3)]


def other_graph() -> gf.FusedCSCSamplingGraph:
    """Return a graph of as many edges in each column as `plain` has, all else of which differs."""
    graph = plain()
    nodes, edges = torch.arange(100), torch.arange(graph.total_num_edges)
    return gf.FusedCSCSamplingGraph(
        **{
            **graph.fields(),
            "indices": (graph.indices + 7) % 100,
            "node_attributes": {"time": nodes * 37 % 100},
            "edge_attributes": {**graph.edge_attributes, "weight": edges * 5 % 13 / 2},
        }
    )


def in_time(graph: gf.SamplingGraph) -> list[str]:
    """Return digests of an epoch that reads times and weights."""
    seeds = gf.ItemSet((torch.arange(100), torch.full((100,), 60)), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(seeds, 50).temporal_sample_neighbor(
        graph, [3, 2], prob_name="weight", node_timestamp_attr_name="time"
    )
    return digests(pipe)


def by_weight(graph: gf.SamplingGraph) -> list[str]:
    return digests(
        gf.ItemSampler(gf.ItemSet(100, names="seeds"), 50).sample_neighbor(graph, [3, 2], prob_name="weight")
    )


@pytest.mark.parametrize("in_place", [True, False])
def test_after_edits_a_graph_over_another_part_has_them_and_the_old_one_says_so(in_place: bool) -> None:
    old, new = plain(), other_graph()
    expected = [[sample(graph) for sample in (by_weight, in_time)] for graph in (old, new)]
    assert all(before != after for before, after in zip(*expected, strict=True))
    both = threading.Barrier(2, timeout=60)

    def work(rank: int, peers: Peers) -> None:
        graph = PartitionedGraph(cut_graph(old, torch.arange(100) % 2, rank), peers)
        mine, its = graph.part.columns, cut_graph(new, graph.part.book, rank).columns
        assert [sample(graph) for sample in (by_weight, in_time)] == expected[0]
        assert graph._here.complete
        both.wait()
        if in_place:
            mine.indices.copy_(its.indices)
            mine.edge_attribute("weight").copy_(its.edge_attribute("weight"))
            mine.node_attribute("time").copy_(its.node_attribute("time"))
            mine.check()
        else:
            mine.indices = its.indices
            mine.add_edge_attribute("weight", its.edge_attribute("weight"))
            mine.add_node_attribute("time", its.node_attribute("time"))
        both.wait()
        with pytest.raises(RuntimeError, match=f"part {rank} was edited .* make another graph, on all ranks"):
            by_weight(graph)
        again = PartitionedGraph(replace(graph.part), peers)
        assert [sample(again) for sample in (by_weight, in_time)] == expected[1]
        both.wait()
        exchanges = peers.traffic.exchanges
        assert by_weight(again) == expected[1][0]
        assert peers.traffic.exchanges == exchanges

    in_threads(2, work)


@pytest.mark.parametrize(("types", "guides"), [(False, 4000), (True, 0)])
def test_the_sums_of_weights_are_shared_with_guides_where_kernels_take_them(types: bool, guides: int) -> None:
    nowhere, weights = torch.zeros(2, 4000, dtype=torch.int64), 1 / torch.linspace(1e-6, 1, 4000)
    whole = (
        gf.from_coo({"a:to:a": nowhere}, {"a": 2}, edge_attributes={"w": {"a:to:a": weights}})
        if types
        else gf.from_coo(nowhere, 2, edge_attributes={"w": weights})
    )

    def work(rank: int, peers: Peers) -> None:
        graph = PartitionedGraph(cut_graph(whole, PartBook.from_bounds([0, 1, 2]), rank), peers)._here.ready()
        sums = graph.guided_sums("w")
        assert torch.equal(sums.cumulative, whole.cumulative_weights("w"))
        assert sums.guides.numel() == guides
        assert graph.cumulative_weights("w") is sums.cumulative
        with pytest.raises(KeyError, match="none"):
            graph.cumulative_weights("none")

    in_threads(2, work)


def test_ranks_that_assign_nodes_otherwise_are_refused() -> None:
    def work(rank: int, peers: Peers) -> None:
        graph = PartitionedGraph(cut_graph(plain(), (torch.arange(100) + rank) % 2, rank), peers)
        with pytest.raises(ValueError, match=r"assignment of 'graph 0' is \d+ on ranks \[0\], and \d+ on ranks"):
            by_weight(graph)

    in_threads(2, work)


@pytest.mark.slow
def test_ranks_of_one_machine_sample_by_the_same_sums(shared: list[Any]) -> None:
    assert [found["weights"] for found in shared] == [[True, True]] * 3


def test_graphs_over_the_same_part_and_peers_share_columns() -> None:
    peers, part = Peers(), cut_graph(plain(), torch.zeros(100, dtype=torch.int32), 0)
    graph = PartitionedGraph(part, peers)
    assert PartitionedGraph(part, peers)._here is graph._here
    assert PartitionedGraph(part, Peers())._here is not graph._here


@pytest.mark.slow
def test_where_memory_lacks_ranks_ask_each_other_and_one_says_so(shared: list[Any]) -> None:
    assert [found["memory lacks"][0] for found in shared] == [True] * 3
    assert min(found["memory lacks"][1] for found in shared) >= 4 * 2
    texts = [text for found in shared for text in found["memory lacks"][2]]
    assert len(texts) == 1
    assert "GB together, and 0.0 GB are free; so ranks here ask each other" in texts[0]


@pytest.mark.slow
def test_where_the_system_forbids_it_ranks_ask_each_other(shared: list[Any]) -> None:
    assert [found["can't be opened"][0] for found in shared] == [True] * 3
    # The first rank, which put them together, has no need to.
    assert [found["can't be opened"][1] >= 4 * 2 for found in shared[1:]] == [True] * 2


@pytest.mark.slow
def test_parts_with_other_attributes_are_refused(shared: list[Any]) -> None:
    for found in shared:
        assert "rank 1 has edges with" in found["attributes"]
        assert "all parts must have the same attributes" in found["attributes"]


@pytest.mark.slow
def test_shared_memory_and_threads_go_with_what_used_them(shared: list[Any]) -> None:
    assert [found["leaves"] for found in shared] == [[0, 0, 0]] * 3
