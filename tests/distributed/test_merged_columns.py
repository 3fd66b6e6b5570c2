"""Ranks of one machine that put the columns of their parts together."""

from typing import Any

import pytest
import torch

from graphfeed.distributed import PartitionedGraph, Peers, cut_graph
from tests.distributed.graphs import plain


@pytest.mark.slow
def test_ids_of_edges_take_memory_only_where_they_are_not_their_places(shared: list[Any]) -> None:
    assert [found["ids"] for found in shared] == [[[True, False], [True, True], [True, True]]] * 3


@pytest.mark.slow
def test_graphs_over_one_part_share_its_columns_and_another_rank_need_not(shared: list[Any]) -> None:
    assert [found["several graphs"] for found in shared] == [[True, True, rank != 1] for rank in range(3)]


def test_a_part_with_other_arrays_than_before_is_merged_anew() -> None:
    peers, part = Peers(), cut_graph(plain(), torch.zeros(100, dtype=torch.int32), 0)
    graph = PartitionedGraph(part, peers)
    assert PartitionedGraph(part, peers)._here is graph._here
    assert PartitionedGraph(part, Peers())._here is not graph._here
    part.columns.add_edge_attribute("more", torch.zeros(part.columns.total_num_edges))
    assert PartitionedGraph(part, peers)._here is not graph._here


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
