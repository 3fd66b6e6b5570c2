"""Ranks that connect, answer each other, and end properly."""

import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import (
    LocalFeatureStore,
    PartBook,
    PartitionedFeature,
    PartitionedGraph,
    Peers,
    RankLostError,
    RendezvousAddress,
    cut_graph,
)
from graphfeed.distributed.ranks.membership.rendezvous import connect_to_store
from graphfeed.distributed.ranks.peers import peers_at
from tests.kinds.digests import assert_same
from tests.kinds.equal_pipelines import feature_in_parts, in_parts
from tests.kinds.golden_pipelines import NUM_NODES, untyped
from tests.kinds.joint import in_threads
from tests.kinds.refusals import check_refused
from tests.stand_ins.forked import in_child
from tests.stand_ins.rank_processes import free_port, rank_and_size, run_cases, run_spawned


def test_a_single_rank_starts_no_thread(no_leaks: None) -> None:
    peers = Peers()
    assert (peers.rank, peers.world_size) == (0, 1)
    assert [peers.serve("graph", lambda options, tensors: {}) for _ in range(2)] == ["graph 0", "graph 1"]
    peers.close()


def test_a_launcher_without_a_process_group_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"2 processes were launched.*init_process_group first"):
        Peers()


def test_a_forked_process_that_asks_is_told_at_once() -> None:
    port = free_port()
    both = [
        Peers(meeting=RendezvousAddress("127.0.0.1", port, rank, 2), timeout=60, start_timeout=60) for rank in range(2)
    ]
    try:
        (name, _) = (peers.serve("graph", lambda options, tensors: {}) for peers in both)
        assert list(both[0].gather(name, {}, {1: {}})) == [(1, {})]
        reason = f"RuntimeError: a fork of process {os.getpid()} can't reach other ranks"
        assert in_child(lambda: both[0].gather(name, {}, {1: {}})).startswith(reason)
        assert in_child(both[0].wait_until_connected).startswith(reason)
        assert in_child(lambda: both[0].serve("graph", lambda options, tensors: {})).startswith(reason)
        assert in_child(lambda: list(both[0].gather(name, {}, {}))) == "[]"
    finally:
        for peers in both:
            peers.close()
        both[0].join(20)


def test_all_ranks_are_asked_and_the_own_answer_comes_first() -> None:
    def work(rank: int, peers: Peers) -> list[tuple[int, int]]:
        name = peers.serve("number", lambda options, _: {"number": torch.tensor(options["factor"] * rank)})
        return [(other, int(found["number"])) for other, found in peers.gather(name, {"factor": 10})]

    for rank, found in enumerate(in_threads(3, work)):
        assert found[0] == (rank, 10 * rank)
        assert sorted(found) == [(0, 0), (1, 10), (2, 20)]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_ranks_may_encrypt_what_they_send_and_listen_at_a_port(
    address: str, certificates: list[tuple[bytes, bytes]]
) -> None:
    store, ports = free_port(), [free_port(), free_port()]

    def be_rank(rank: int) -> None:
        meeting = RendezvousAddress(address, store, rank, 2)
        # Each has its own certificate, which the other one knows.
        roots = certificates[1 - rank][0]
        peers = Peers(meeting=meeting, port=ports[rank], tls=certificates[rank], tls_root_certs=roots, timeout=60)
        name = peers.serve("rows", lambda _, asked: {"rows": asked["ids"] + rank})
        ids = torch.arange(1 << 20)
        for _ in range(2):
            ((_, answer),) = peers.gather(name, {}, {1 - rank: {"ids": ids}})
            assert torch.equal(answer["rows"], ids + 1 - rank)
        with pytest.raises(OSError, match="in use"):
            socket.create_server((address, ports[rank]), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        peers.close()
        peers.join(20)
        assert peers.ended

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(be_rank, range(2)))


@pytest.mark.parametrize(
    ("other", "known", "said"),
    [
        (None, 0, r"rank 0 has tls, but rank 1 has none; pass Peers\(tls=...\)"),
        (1, 0, r"rank [01] .*; give all ranks certificates that the tls_root_certs of all others verify"),
        (1, 1, r"rank [01] .*; give all ranks certificates"),  # also rank 0, which knows that of rank 1
    ],
)
def test_all_ranks_are_told_which_has_another_certificate_or_none(
    other: int | None, known: int, said: str, certificates: list[tuple[bytes, bytes]]
) -> None:
    points = [RendezvousAddress("127.0.0.1", free_port(), 0, 2)]
    points.append(points[0]._replace(rank=1))
    both = [
        Peers(meeting=points[0], tls=certificates[0], tls_root_certs=certificates[known][0], timeout=10),
        Peers(meeting=points[1], tls=None if other is None else certificates[other], timeout=10),
    ]
    for peers in both:
        peers.join(20)
        with pytest.raises(ConnectionError, match=said):
            peers.check()


def test_what_can_not_be_waited_for_listened_at_or_shown_is_refused(certificates: list[tuple[bytes, bytes]]) -> None:
    check_refused(
        [
            (lambda: Peers(frozen_timeout=float("nan")), ValueError, "frozen_timeout must be more than 0 seconds"),
            (lambda: Peers(port=1 << 16), ValueError, "port must be in 0 .. 65535, but is 65536"),
            (lambda: Peers(tls_root_certs=b"x"), ValueError, "tls_root_certs is given without tls; pass tls="),
        ]
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken, store = server.getsockname()[1], free_port()
        points = [RendezvousAddress("127.0.0.1", store, rank, 2) for rank in range(2)]
        both = [Peers(meeting=point, port=point.rank * taken, start_timeout=60) for point in points]
        reason = f"can't listen at port {taken} of 127.0.0.1: .*; choose another port"
        with pytest.raises(OSError, match=reason):
            both[1].wait_until_connected()
        with pytest.raises(RankLostError, match=f"rank 1 is lost before all ranks have connected: {reason}"):
            both[0].wait_until_connected()


def make_loader(graph: gf.SamplingGraph, count: int, peers: Peers | None = None) -> gf.DataLoader:
    """Return a loader of `count` mini-batches; if peers are given, with rows that are prefetched."""
    pipe = gf.ItemSampler(gf.ItemSet(torch.arange(10 * count), names="seeds"), batch_size=10)
    pipe = pipe.sample_neighbor(graph, [5, 4])
    if peers is not None:
        feature = feature_in_parts(torch.zeros(NUM_NODES, 2), "random", 90, peers)
        pipe = pipe.fetch_feature(gf.BasicFeatureStore({("node", None, "x"): feature}), ["x"])
    return gf.DataLoader(pipe, 0, seed=0, window=None if peers is None else 4)


def make_graph(peers: Peers | None = None) -> PartitionedGraph:
    """Return a partitioned graph of which this rank stores a part."""
    return in_parts(untyped(), "random", peers)


def ranks_without_mini_batches_answer_until_all_are_done() -> None:
    for counts in ([2, 0, 9], [0, 7, 3]):
        graph, count = make_graph(), counts[rank_and_size()[0]]
        assert count == 0 or len(list(make_loader(graph, count))) == count


def a_rank_may_leave_an_epoch_early() -> None:
    rank, made = rank_and_size()[0], 0
    loader = make_loader(make_graph(), 5)
    for _ in range(3):
        for batch in loader:
            made += 1
            if rank == 0 and batch.key.index == 1:
                break
    assert made == (6 if rank == 0 else 15)


def a_rank_may_start_late() -> None:
    rank, world_size = rank_and_size()
    if rank == world_size - 1:
        time.sleep(1)
    assert len(list(make_loader(make_graph(Peers(start_timeout=100)), 3))) == 3


def ranks_meet_however_often_torchrun_started_each_again() -> None:
    """Its agents may count differently."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_RESTART_COUNT", str(rank_and_size()[0]))
        assert len(list(make_loader(make_graph(Peers(start_timeout=20, timeout=10)), 3))) == 3


def what_a_rank_never_made_fails_once_it_ends_and_holds_nobody() -> None:
    peers = Peers(start_timeout=20, timeout=10)
    rank, world_size = rank_and_size()
    if rank == 0:
        answers = peers.gather("nothing 0", {}, {world_size - 1: {}})
        with pytest.raises(RuntimeError, match=r"rank 2 \(.*\) failed: RuntimeError: it has ended without"):
            next(answers)
    peers.close()
    peers.join(60)
    assert peers.ended


def closed_peers_end_and_others_can_be_made() -> None:
    peers = Peers()
    edges = [make_graph(peers).in_subgraph(torch.arange(100)).original_edge_ids]
    peers.close()
    peers.join()
    with pytest.raises(RuntimeError, match="the peers are closed; create new ones"):
        make_graph(peers).in_subgraph(torch.arange(100))
    edges.append(make_graph().in_subgraph(torch.arange(100)).original_edge_ids)
    assert torch.equal(*edges)


@pytest.mark.slow
def test_ranks_of_a_process_group_end_well(tmp_path: Path) -> None:
    cases = [
        closed_peers_end_and_others_can_be_made,
        a_rank_may_start_late,
        a_rank_may_leave_an_epoch_early,
        ranks_meet_however_often_torchrun_started_each_again,
        what_a_rank_never_made_fails_once_it_ends_and_holds_nobody,
        # The last one: ranks whose program has ended wait for the others.
        ranks_without_mini_batches_answer_until_all_are_done,
    ]
    run_cases(cases, 3, tmp_path)


def meet(rank: int, world_size: int, port: int, folder: str, fails: bool) -> None:
    """Connect to other ranks at an address, and make mini-batches; rank 1 may fail after the first."""
    peers = Peers(meeting=RendezvousAddress("127.0.0.1", port, rank, world_size))
    nodes = torch.arange(NUM_NODES) % world_size
    graph = PartitionedGraph(cut_graph(untyped(), nodes, rank), peers)
    try:
        # A rank that fails answers until the others are notified, so there must be further requests.
        for _ in range(1000 if fails else 1):
            for batch, wanted in zip(make_loader(graph, 40), make_loader(untyped(), 40), strict=True):
                assert_same(batch, wanted)
                if fails and rank == 1 and batch.key.index == 0:
                    raise ZeroDivisionError
        end = "all were equal"
    except RankLostError as error:
        end = str(error)
    (Path(folder) / f"{rank}.txt").write_text(end)


@pytest.mark.slow
def test_ranks_without_a_process_group_meet_at_an_address(tmp_path: Path) -> None:
    status, printed = run_spawned(f"{__name__}:meet", 2, folder=str(tmp_path), fails=False)
    assert status == 0, printed
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)] == ["all were equal"] * 2


def test_features_of_stores_are_the_same_ones_in_whichever_order_ranks_set_them() -> None:
    assignment, nodes = torch.tensor([0, 0, 1, 1]), torch.arange(4)

    def read(rank: int, peers: Peers) -> list[int]:
        store = LocalFeatureStore()
        store.num_partitions, store.partition_idx, store.node_feat_pb = 2, rank, assignment
        own = nodes[assignment == rank]
        store.put_global_id(own, None)
        for name, first in [("x", 0), ("z", 100)][:: 1 - 2 * rank]:
            store.put_tensor(own[:, None] + first, None, name)
        found: list[int] = store.partitioned_features(peers)["node", None, "x"].read(nodes).flatten().tolist()
        return found

    assert in_threads(2, read) == [[0, 1, 2, 3]] * 2


def test_ranks_meet_again_at_an_address_once_they_have_closed() -> None:
    port, book = free_port(), PartBook.from_bounds([0, 2, 4])

    def read(rank: int) -> list[list[float]]:
        found = []
        for number in range(2):
            peers = peers_at(RendezvousAddress("127.0.0.1", port, rank, 2), 30)
            rows = torch.full((2, 1), 10.0 * number + rank)
            found.append(PartitionedFeature(rows, book, peers).read(torch.arange(4)).flatten().tolist())
            peers.close()
            peers.join(30)
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(read, range(2))) == [[[0, 0, 1, 1], [10, 10, 11, 11]]] * 2


def wait_for_a_key(rank: int, world_size: int, port: int) -> None:
    """Run one of two ranks: the first waits in the store for a key that the second writes after a response."""
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    store = connect_to_store(distributed.group.WORLD, 20)
    time.sleep(rank)  # the first one waits before its peers are connected
    peers = Peers(start_timeout=20, timeout=20)
    name = peers.serve("key", lambda options, tensors: {})
    if rank == 0:
        store.wait(["key"], timedelta(seconds=15))
    else:
        list(peers.gather(name, {}, {0: {}}))
        store.set("key", "")
    peers.close()
    peers.join()
    sys.stdout.write(f"rank {rank} has met the other\n")


@pytest.mark.slow
def test_ranks_meet_while_a_thread_waits_in_the_store_of_the_process_group() -> None:
    status, printed = run_spawned(f"{__name__}:wait_for_a_key", 2)
    assert status == 0, printed
    assert printed.count("has met the other") == 2
