"""Ranks that hold parts of different graphs, or run different epochs."""

import threading
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Peers, cut_graph
from graphfeed.distributed.ranks import agreement
from tests.distributed.graphs import plain
from tests.distributed.joint import in_threads


def pipe_of(rank: int, world_size: int, graph: gf.SamplingGraph, fanout: int = 3, seeds: int = 0) -> gf.Datapipe:
    items = gf.ItemSet(torch.arange(seeds, seeds + 96), names="seeds")
    sampler = gf.DistributedItemSampler(items, 6, rank=rank, world_size=world_size)
    return sampler.sample_neighbor(graph, [fanout])


def part_of(rank: int, peers: Peers, graph: gf.FusedCSCSamplingGraph | None = None, shift: int = 0) -> PartitionedGraph:
    nodes = torch.arange(100) + shift
    return PartitionedGraph(cut_graph(graph or plain(), nodes % peers.world_size, rank), peers)


def another() -> gf.FusedCSCSamplingGraph:
    """Return a graph in which each edge comes from another node."""
    return gf.FusedCSCSamplingGraph(**{**plain().fields(), "indices": (plain().indices + 1) % 100})


SAME: dict[str, Any] = {
    "seeds": (3, 3),
    "fanouts": (3, 3),
    "epochs": (0, 0),
    "graphs": (plain, plain),
    "shifts": (0, 0),
    "items": (0, 0),
}
DIFFERENT: list[dict[str, Any]] = [
    {"seeds": (3, 4), "said": r"rank \d makes mini-batches with seed \d, but rank \d with seed \d; give the DataLo"},
    {"fanouts": (3, 4), "said": r"the pipeline of rank \d is another one .*: fanouts of stage 2 NeighborSampler is"},
    {
        "items": (0, 1),
        "said": r"the pipeline of rank \d is another one .*: item_set \(checksum\) of stage 1 ",
    },
    {"epochs": (0, 5), "said": r"rank \d has begun epoch \d at index 0, but rank \d epoch \d at index 0; iterate"},
    {
        "graphs": (plain, another),
        "said": r"identity of 'graph 0' is \"\w+\" on ranks \[0\], and \"\w+\" on ranks \[1\]",
    },
    {"shifts": (0, 1), "said": r"assignment of 'graph 0' is \d+ on ranks \[0\], and \d+ on ranks \[1\]; let all ranks"},
]


@pytest.mark.parametrize("given", DIFFERENT)
def test_ranks_that_differ_are_told_before_the_first_mini_batch(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    seeds, fanouts, epochs, graphs, shifts, items = ({**SAME, **given}[name] for name in SAME)
    monkeypatch.setattr(agreement, "BEGIN_SECONDS", 1.0 if {"fanouts", "items"}.intersection(given) else 30.0)

    def work(rank: int, peers: Peers) -> None:
        graph = part_of(rank, peers, graphs[rank](), shifts[rank])
        pipe = pipe_of(rank, 2, graph, fanouts[rank], items[rank])
        with gf.DataLoader(pipe, 0, seed=seeds[rank]) as loader:
            loader.set_epoch(epochs[rank])
            with pytest.raises(ValueError, match=given["said"]):
                next(iter(loader))

    in_threads(2, work)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((3, 1, 0), (4, 1, 0), "rank 1 makes mini-batches with seed 4, but rank 0 with seed 3; give"),
        ((3, 1, 0), (3, 1, 2), "rank 1 has begun epoch 1 at index 2, but rank 0 epoch 1 at index 0; iterate"),
        ((3, 0, 2), (3, 0, 0), "rank 1 has begun epoch 0 at index 0, but rank 0 epoch 0 at index 2; iterate"),
        ((3, 0, 0), (3, 0, 2), "rank 1 has begun epoch 0 at index 2, but rank 0 epoch 0 at index 0; iterate"),
        ((3, 0, 2), (3, 0, 3), "rank 1 has begun epoch 0 at index 3, but rank 0 epoch 0 at index 2; iterate"),
    ],
)
def test_of_later_runs_the_second_rank_is_told_before_its_first_mini_batch_and_the_other_with_its_next(
    first: tuple[int, int, int], second: tuple[int, int, int], message: str
) -> None:
    both = threading.Barrier(2)

    def work(rank: int, peers: Peers) -> None:
        pipe = pipe_of(rank, 2, part_of(rank, peers))
        assert len(list(gf.DataLoader(pipe, 0, seed=3))) == 8
        seed, epoch, index = second if rank else first
        with gf.DataLoader(pipe, 0, seed=seed) as loader:
            loader.load_state_dict({"seed": seed, "epoch": epoch, "index": index})
            batches = iter(loader)
            if rank == 0:
                next(batches)
            both.wait(30)
            if rank == 1:
                with pytest.raises(ValueError, match=message):
                    next(batches)
            both.wait(30)
            if rank == 0:
                with pytest.raises(ValueError, match=message):
                    next(batches)

    in_threads(2, work)


def test_loaders_of_two_pipelines_may_begin_in_another_order_on_each_rank() -> None:
    both = threading.Barrier(2)

    def work(rank: int, peers: Peers) -> list[int]:
        graph = part_of(rank, peers)
        loaders = [gf.DataLoader(pipe_of(rank, 2, graph, fanout), 0, seed=fanout) for fanout in (2, 3)]
        made = [len(list(loader)) for loader in loaders]
        for loader in loaders if rank else loaders[::-1]:
            both.wait(30)
            made.append(len(list(loader)))
            loader.load_state_dict({**loader.state_dict(), "epoch": 5, "index": 6})
            made.append(len(list(loader)))
            loader.set_epoch(0)
            made.append(len(list(loader)))
        return made

    assert in_threads(2, work) == [[8, 8, 8, 2, 8, 8, 2, 8]] * 2


def test_a_rank_may_be_ahead_or_go_on_where_another_one_had_finished_the_epoch() -> None:
    def work(rank: int, peers: Peers) -> int:
        made = 0
        with gf.DataLoader(pipe_of(rank, 2, part_of(rank, peers)), 0, seed=3) as loader:
            for _ in range(2):
                for batch in loader:
                    made += 1
                    if rank == 1 and batch.key.index > 6:
                        break
            loader.load_state_dict({**loader.state_dict(), "epoch": 4 + rank, "index": 3 * (1 - rank)})
            return made + sum(len(list(loader)) for _ in range(2 - rank))

    assert in_threads(2, work) == [8 + 8 + 5 + 8, 4 + 4 + 8]


def test_only_the_first_run_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "BEGIN_SECONDS", 0.1)
    both = threading.Barrier(2)

    def work(rank: int, peers: Peers) -> list[int]:
        graph = part_of(rank, peers)
        made = []
        if rank == 0:
            with gf.DataLoader(pipe_of(rank, 2, graph), 0, seed=3) as loader:
                made.append(len(list(loader)))
                monkeypatch.setattr(agreement, "BEGIN_SECONDS", 1e9)
                made.append(len(list(loader)))
        both.wait(60)
        return made

    assert in_threads(2, work) == [[8, 8], []]
