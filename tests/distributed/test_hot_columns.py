import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Peers, cut_graph, hot_columns
from graphfeed.distributed.hot_columns import HotColumns
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests import golden_pipelines
from tests.digests import assert_same
from tests.distributed import matrix
from tests.distributed.joint import in_threads
from tests.forked import in_child

LEAST = 9 * golden_pipelines.NUM_NODES + 8
"""What it takes to find columns."""


def part_of(rank: int, world_size: int) -> Any:
    """Return a part of the golden graph."""
    whole = golden_pipelines.untyped()
    return cut_graph(whole, matrix.assign(whole, world_size, "random"), rank)


def in_two_ranks(size: int, work: Callable[[PartitionedGraph], Any]) -> list[Any]:
    """Return what a function of a rank's graph returns, where ranks keep columns of each other."""
    return in_threads(2, lambda rank, peers: work(PartitionedGraph(part_of(rank, 2), peers, size)), share_memory=False)


def cut_again(whole: gf.FusedCSCSamplingGraph, graph: PartitionedGraph) -> gf.FusedCSCSamplingGraph:
    """Return the columns of another graph that a rank owns."""
    return cut_graph(whole, graph.part.book, graph.part.number).columns


def held_by(graph: PartitionedGraph) -> int:
    """Return the bytes of the columns that a rank keeps, with what was computed of them."""
    assert graph._hot._kept is not None
    columns, is_kept, *_ = graph._hot._kept
    shared = [tensor.data_ptr() for tensor in graph.part.columns.node_attributes.values()]
    held = {tensor.data_ptr(): tensor.nbytes for tensor in tensors_in([vars(columns), is_kept])}
    return sum(size for place, size in held.items() if place not in shared)


def epoch(graph: gf.SamplingGraph, num_workers: int = 0, **options: Any) -> list[Any]:
    """Return the mini-batches of an epoch."""
    pipe = golden_pipelines.nodes().sample_neighbor(graph, [5, 4], **options)
    with gf.DataLoader(pipe, num_workers, seed=3) as loader:
        return list(loader)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cora", "wikipedia_temporal"])
@pytest.mark.parametrize(("room", "least", "most"), [(1500, 0.5, 1.0), (10_000_000, 0.0, 0.7)])
def test_every_sampler_makes_the_same_mini_batches_from_columns_that_are_kept(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, name: str, room: int, least: float, most: float
) -> None:
    """Columns are chosen after the first hop, so that others have to be asked for."""
    monkeypatch.setattr(hot_columns, "RECEIVED_TIMES", 0)
    rates = matrix.compare_cached(shared_data, name, room)
    assert len(rates) >= 8
    assert least < sum(rates.values()) / len(rates) < most


def test_kept_columns_save_bytes_and_any_thread_samples_from_them() -> None:
    wanted = epoch(golden_pipelines.untyped())

    def work(graph: PartitionedGraph) -> tuple[float, float]:
        sent = [graph.peers.traffic.bytes_sent]
        for _ in range(4):
            assert_same(epoch(graph, 3), wanted)
            sent.append(graph.peers.traffic.bytes_sent)
        return (sent[4] - sent[3]) / (sent[1] - sent[0]), graph.miss_rate

    for share, miss_rate in in_two_ranks(LEAST + 40_000, work):
        assert share < 0.8
        assert 0.2 < miss_rate < 1
    assert [miss_rate for _, miss_rate in in_two_ranks(0, work)] == [0, 0]


@pytest.mark.parametrize("sample", ["uniform", "weighted", "in time"])
def test_columns_and_what_is_computed_of_them_fit_into_the_bytes(monkeypatch: pytest.MonkeyPatch, sample: str) -> None:
    monkeypatch.setattr(hot_columns, "RECEIVED_TIMES", 0)
    size = LEAST + 30_000

    def work(graph: PartitionedGraph) -> int:
        pipe: Any = golden_pipelines.nodes()
        if sample == "in time":
            pipe = pipe.temporal_sample_neighbor(graph, [5, 4], edge_timestamp_attr_name="time")
        else:
            pipe = pipe.sample_neighbor(graph, [5, 4], prob_name="weight" if sample == "weighted" else None)
        with gf.DataLoader(pipe, 0, seed=3) as loader:
            list(loader)
        return held_by(graph)

    for held in in_two_ranks(size, work):
        assert LEAST + 10_000 < held <= size


def test_a_request_for_what_was_not_kept_goes_to_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_columns, "RECEIVED_TIMES", 0)
    wanted = epoch(golden_pipelines.untyped(), prob_name="weight")

    def work(graph: PartitionedGraph) -> tuple[int, int]:
        epoch(graph)
        hits = graph._hot.hits
        assert_same(epoch(graph, prob_name="weight"), wanted)
        return hits, graph._hot.hits

    for before, after in in_two_ranks(1_000_000, work):
        assert before == after > 0


def test_columns_are_chosen_by_what_was_received_for_their_bytes_and_long_ones_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    indptr = torch.tensor([0, 2, 4, 104, 104, 106, 106])
    whole = gf.fused_csc_sampling_graph(indptr, torch.zeros(106, dtype=torch.int64))
    graph = PartitionedGraph(cut_graph(whole, torch.zeros(6, dtype=torch.int32), 0))
    monkeypatch.setattr(hot_columns, "LONGEST_SHARE", 2)
    hot = HotColumns(graph._here, 8 * 7 + 6 + 16 * 5)
    hot._needs |= hot_columns.needs_of(whole, gf.SamplingRequest([torch.tensor([2])]))
    assert [part.tolist() for part in hot._choose(torch.tensor([5, 3, 10_000, 1, 4, 0]))] == [[0, 3, 4], [2, 0, 2]]


def test_a_cache_without_room_for_an_edge_is_refused() -> None:
    part = part_of(0, 1)
    with pytest.raises(ValueError, match=f"0 .no cache. or more than the {LEAST} bytes that it takes to find"):
        PartitionedGraph(part, Peers(), LEAST)
    with pytest.raises(ValueError, match="max_cache_size_in_bytes must be 0 or more"):
        PartitionedGraph(part, Peers(), -1)
    graph = PartitionedGraph(part, Peers(), LEAST + 100)
    assert repr(graph).endswith(f"part 0 of 1, cache of {LEAST + 100} bytes)")
    assert [(name, cache.kind) for name, cache in graph.list_caches()] == [
        ("columns of other ranks", "columns in memory")
    ]
    assert "cache" not in repr(PartitionedGraph(part))
    assert PartitionedGraph(part).list_caches() == []


@pytest.mark.slow
def test_columns_that_several_samplers_read_fit_into_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_columns, "RECEIVED_TIMES", 1 << 40)
    size, both = LEAST + 40_000, threading.Barrier(2, timeout=60)

    def work(graph: PartitionedGraph) -> int:
        def run() -> None:
            for weight in ("weight", "mask"):
                epoch(graph, prob_name=weight)
            for domain in ("node", "edge"):
                given: dict[str, Any] = {f"{domain}_timestamp_attr_name": "time"}
                pipe = golden_pipelines.nodes().temporal_sample_neighbor(graph, [5, 4], prob_name="weight", **given)
                assert sum(1 for _ in gf.DataLoader(pipe, 0, seed=3))

        run()
        both.wait()
        monkeypatch.setattr(hot_columns, "RECEIVED_TIMES", 0)
        run()
        return held_by(graph)

    for held in in_two_ranks(size, work):
        assert LEAST < held <= size


@pytest.mark.parametrize("domain", ["edge", "node"])
@pytest.mark.parametrize("in_place", [False, True])
def test_attributes_that_were_edited_are_read_by_their_owners(
    monkeypatch: pytest.MonkeyPatch, domain: str, in_place: bool
) -> None:
    monkeypatch.setattr(hot_columns, "RECEIVED_TIMES", 0)
    old = golden_pipelines.untyped()
    new = gf.FusedCSCSamplingGraph(**old.fields())
    times = old.edge_attribute("time") if domain == "edge" else old.node_attribute("time")
    (new.add_edge_attribute if domain == "edge" else new.add_node_attribute)("time", 99 - times)
    both = threading.Barrier(2, timeout=60)

    def timed_epoch(graph: gf.SamplingGraph) -> list[Any]:
        given: dict[str, Any] = {f"{domain}_timestamp_attr_name": "time"}
        pipe = golden_pipelines.nodes().temporal_sample_neighbor(graph, [5, 4], **given)
        with gf.DataLoader(pipe, 0, seed=3) as loader:
            return list(loader)

    expected = timed_epoch(old), timed_epoch(new), epoch(old)

    def work(graph: PartitionedGraph) -> list[int]:
        assert_same(timed_epoch(graph), expected[0])
        hits = [graph._hot.hits]
        both.wait()
        columns, replaced = graph.part.columns, cut_again(new, graph)
        if in_place:
            here, others = (getattr(own, f"{domain}_attributes")["time"] for own in (columns, replaced))
            here.copy_(others)
        elif domain == "edge":
            columns.add_edge_attribute("time", replaced.edge_attribute("time"))
        else:
            columns.add_node_attribute("time", replaced.node_attribute("time"))
        both.wait()
        assert_same(timed_epoch(graph), expected[1])
        hits.append(graph._hot.hits)
        assert_same(epoch(graph), expected[2])
        return [*hits, graph._hot.hits]

    try:
        for before, replaced, unread in in_two_ranks(1_000_000, work):
            assert 0 < before == replaced < unread
    finally:
        golden_pipelines.untyped.cache_clear()  # Its times of nodes are the ones that were edited.


def test_kept_columns_reach_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_columns, "RECEIVED_TIMES", 0)
    both = threading.Barrier(2, timeout=60)

    def work(graph: PartitionedGraph) -> list[str]:
        epoch(graph)
        assert graph._hot._kept is not None
        ids = graph._hot._kept.is_kept.nonzero()[:, 0]
        misses = graph._hot.misses

        def sample() -> Any:
            return graph.sample_neighbors(ids, torch.tensor([3]), key=5).original_edge_ids

        wanted = sample()
        both.wait()
        in_fork, pickled = in_child(sample), in_child(lambda: pickle.dumps(graph))
        both.wait()
        assert torch.equal(sample(), wanted)
        assert graph._hot.misses == misses
        return [in_fork, pickled]

    for in_fork, pickled in in_two_ranks(1_000_000, work):
        assert in_fork.startswith(f"RuntimeError: a fork of process {os.getpid()} can't reach other ranks")
        assert pickled.startswith("TypeError: a PartitionedGraph can't be sent to another process")
