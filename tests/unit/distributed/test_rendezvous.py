"""Rendezvous of ranks at an address, its errors, and the checks of what ranks must have in common."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Peers, RendezvousAddress, cut_graph
from graphfeed.distributed.ranks.membership.rendezvous import connect_to_store
from graphfeed.testing import limits
from tests.kinds.joint import in_threads
from tests.kinds.partitioned_graphs import plain
from tests.stand_ins.programs import start_program
from tests.stand_ins.rank_processes import free_port


def test_a_thread_that_waits_in_a_store_holds_no_other_peers_at_the_address() -> None:
    # Gloo waits for keys of other ranks, which they set only if their own threads are not blocked.
    port = free_port()
    places = [(rank, use) for use in range(2) for rank in range(2)]
    stores = {place: RendezvousAddress("127.0.0.1", port, place[0], 2).open_store(30, place[1]) for place in places}
    for rank in range(2):
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(stores[rank, 0].wait, [f"word for {rank}"], timedelta(seconds=20))
            with pytest.raises(TimeoutError):
                waiting.result(0.1)
            begun = time.monotonic()
            stores[rank, 1].set("another word", "")
            assert time.monotonic() - begun < 10
            stores[1 - rank, 0].set(f"word for {rank}", "")
            waiting.result()


def test_a_rank_of_another_job_or_release_is_refused_and_takes_no_place() -> None:
    port = free_port()
    store = RendezvousAddress("127.0.0.1", port, 0, 2, "first").open_store(30)
    for world_size, job in ((2, "second"), (3, "first")):
        words = rf"job 'first' of 2 ranks meet at .*, but this rank belongs to '{job}' of {world_size}"
        with pytest.raises(ConnectionError, match=words):
            RendezvousAddress("127.0.0.1", port, 1, world_size, job).open_store(30)
    store.set("release", "0.0.9")
    peers = Peers(meeting=RendezvousAddress("127.0.0.1", port, 1, 2, "first"), start_timeout=20)
    peers.join(20)
    with pytest.raises(ConnectionError, match=f"has graphfeed 0.0.9, but rank 1 has {gf.__version__}; install"):
        peers.check()
    assert not store.check(["taken/1"])


def test_what_a_launcher_calls_the_job_tells_jobs_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        found = []
        for job in ("7", "8"):
            monkeypatch.setenv(name, job)
            found.append(RendezvousAddress("127.0.0.1", 1, 0, 2).describe_job())
        monkeypatch.delenv(name)
        assert found[0] != found[1], name


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_of_another_job_at_the_address_is_refused_and_harms_nobody(rank: int) -> None:
    # Another spelling of the address stands for another process: each opens its own store.
    port = free_port()
    ours = [
        Peers(meeting=RendezvousAddress("127.0.0.1", port, 0, 2)),
        Peers(meeting=RendezvousAddress("localhost", port, 1, 2)),
    ]
    (name, _) = (peers.serve("graph", lambda options, tensors: {}) for peers in ours)
    for peers in ours:
        peers.wait_until_connected()
    stranger = Peers(meeting=RendezvousAddress("127.0.0.1" if rank else "localhost", port, rank, 2), start_timeout=20)
    stranger.join(20)
    taken = (
        rf"(rank {rank} at \S+:{port} is already \(.*, process \d+\)|can't listen at \S+:{port}).*choose another port"
    )
    with pytest.raises(OSError, match=taken):
        stranger.check()
    assert list(ours[0].gather(name, {}, {1: {}})) == [(1, {})]
    for peers in ours:
        peers.close()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_program_that_fails_before_the_others_began_ends_at_once(rank: int) -> None:
    program = start_program(
        "from graphfeed.distributed import RendezvousAddress, Peers\n"
        f"Peers(meeting=RendezvousAddress('127.0.0.1', {free_port()}, {rank}, 2), start_timeout=100)\n"
        "print('begun', flush=True)\n"
        "1 / 0"
    )
    program.wait_for("begun")
    begun = time.monotonic()
    assert program.end().returncode == 1
    assert time.monotonic() - begun < 60  # on a busy machine


def check_no_meeting(rank: int, port: int, reason: str) -> None:
    """Fail unless the error of a rank that can't connect to the other one contains the address."""
    peers = Peers(start_timeout=0.5, meeting=RendezvousAddress("127.0.0.1", port, rank, 2))
    peers.join()
    with pytest.raises(OSError, match=rf"rank 0 {reason}"):
        peers.gather("graph 0", {}, {1 - rank: {}})


@pytest.mark.since_torch("2.6")  # before, a store waits forever where somebody listens
def test_an_address_where_nobody_listens_or_says_nothing_or_that_others_use_is_named(no_leaks: None) -> None:
    port = free_port()
    check_no_meeting(1, port, rf"did not listen at 127\.0\.0\.1:{port} within 0\.5 s")
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        check_no_meeting(1, port, rf"did not listen at 127\.0\.0\.1:{port} within 0\.5 s")
        check_no_meeting(0, port, rf"can't listen at 127\.0\.0\.1:{port}.*choose another port")


def test_ranks_that_do_not_start_are_named() -> None:
    peers = Peers(start_timeout=0.5, meeting=RendezvousAddress("127.0.0.1", free_port(), 0, 3))
    graph = PartitionedGraph(cut_graph(plain(), torch.arange(100) % 3, 0), peers)
    with pytest.raises(TimeoutError, match=r"ranks \[1, 2\] did not create their Peers within 0\.5 s"):
        graph.in_subgraph(torch.arange(3))


def test_torch_that_shows_no_store_meets_where_the_process_group_does(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(
        ConnectionError, match=r"initialise the group by env://, update torch, or give Peers a RendezvousAddress"
    ):
        connect_to_store(object(), 20)
    server = RendezvousAddress("127.0.0.1", port, 0, 1).open_store(20)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    first, second = (connect_to_store(object(), 20) for _ in range(2))
    first.set("word", "from one")
    assert (second.get("word"), server.check(["word"])) == (b"from one", False)


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
    "graphs": (plain, plain),
    "shifts": (0, 0),
    "items": (0, 0),
}
DIFFERENT: list[dict[str, Any]] = [
    {"seeds": (3, 4), "said": r"rank \d produces mini-batches with seed \d, but rank \d with seed \d; give the Da"},
    {"fanouts": (3, 4), "said": r"the pipelines of rank \d and rank \d differ: fanouts of stage 2 NeighborSampler is"},
    {
        "items": (0, 1),
        "said": r"the pipelines of rank \d and rank \d differ: item_set \(checksum\) of stage 1 ",
    },
    {
        "graphs": (plain, another),
        "said": r"identity of 'graph 0' is \"\w+\" on ranks \[0\], and \"\w+\" on ranks \[1\]",
    },
    {"shifts": (0, 1), "said": r"assignment of 'graph 0' is \d+ on ranks \[0\], and \d+ on ranks \[1\]; all ranks"},
]


@pytest.mark.parametrize("given", DIFFERENT)
def test_ranks_that_differ_are_told_before_the_first_mini_batch(given: dict[str, Any]) -> None:
    seeds, fanouts, graphs, shifts, items = ({**SAME, **given}[name] for name in SAME)

    def work(rank: int, peers: Peers) -> None:
        graph = part_of(rank, peers, graphs[rank](), shifts[rank])
        pipe = pipe_of(rank, 2, graph, fanouts[rank], items[rank])
        with gf.DataLoader(pipe, 0, seed=seeds[rank]) as loader, pytest.raises(ValueError, match=given["said"]):
            next(iter(loader))

    with limits(peer_seconds=1.0 if {"fanouts", "items"}.intersection(given) else 30.0):
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
