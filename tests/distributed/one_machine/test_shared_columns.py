"""Ranks in threads that share the columns of their parts, and how memory is handed to other processes."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedGraph, Peers, cut_graph
from graphfeed.distributed.one_machine import memory_scope
from graphfeed.distributed.one_machine.memory_scope import open_handle, share, write_handle
from graphfeed.ops.arguments import as_tensor
from tests.digests import digests
from tests.distributed.graphs import plain
from tests.distributed.joint import in_threads


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


def test_a_scope_is_that_of_the_machine_and_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = memory_scope.memory_scope()
    assert own == memory_scope.memory_scope() != ""
    (tmp_path / "boot_id").write_text("another")
    os.symlink("pid:[7]", tmp_path / "pid")
    for name, path in (("BOOT_ID", tmp_path / "boot_id"), ("PROCESSES", tmp_path / "pid")):
        with monkeypatch.context() as patch:
            patch.setattr(memory_scope, name, path)
            assert memory_scope.memory_scope() not in ("", own)
            patch.setattr(memory_scope, name, tmp_path / "absent")
            assert memory_scope.memory_scope() == ""


def test_a_tensor_in_memory_is_found_for_as_long_as_its_block_is_kept(no_leaks: None) -> None:
    values = torch.arange(6).view(3, 2)
    place, block = share(values)
    (found,), opened = open_handle(write_handle(place))
    assert torch.equal(found, values)
    assert block is not None
    block.tensors[0][0, 0] = 9
    assert found[0, 0] == 9
    del block, found, opened
    with pytest.raises(FileNotFoundError):
        open_handle(write_handle(place))


def test_a_mapped_tensor_stays_in_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6.0).reshape(3, 2))
    mapped = as_tensor("rows", np.load(tmp_path / "rows.npy", mmap_mode="c"))
    place, block = share(mapped[1:])
    assert block is None
    (found,), opened = open_handle(write_handle(place))
    assert opened is None
    assert found.tolist() == [[2, 3], [4, 5]]
