"""What each rank runs where ranks end early, late, or not at all."""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import MeetingPoint, PartitionedGraph, Peers, RankLostError, cut_graph
from graphfeed.distributed.ranks.meeting_point import connect_to_store
from graphfeed.distributed.ranks.peers import rank_and_size
from tests.digests import assert_same
from tests.distributed.equal_pipelines import feature_in_parts, in_parts
from tests.golden_pipelines import NUM_NODES, untyped


def make_loader(graph: gf.SamplingGraph, count: int, peers: Peers | None = None) -> gf.DataLoader:
    """Return a loader of so many mini-batches; with rows that are asked for ahead, if peers are given."""
    pipe = gf.ItemSampler(gf.ItemSet(torch.arange(10 * count), names="seeds"), batch_size=10)
    pipe = pipe.sample_neighbor(graph, [5, 4])
    if peers is not None:
        feature = feature_in_parts(torch.zeros(NUM_NODES, 2), "random", 90, peers)
        pipe = pipe.fetch_feature(gf.BasicFeatureStore({("node", None, "x"): feature}), ["x"])
    return gf.DataLoader(pipe, 0, seed=0, window=None if peers is None else 4)


def make_graph(peers: Peers | None = None) -> PartitionedGraph:
    """Return a graph of which this rank has a part."""
    return in_parts(untyped(), "random", peers)


def end_well() -> dict[str, Any]:
    """Return what comes of each way to end without the loss of a rank."""
    found = {"disagree": disagree(), "close": close_and_reopen(), "late": be_late(2, 100), "break": leave_early()}
    found["restarts"], found["never made"] = restarts_differ(), ask_for_nothing()
    # The last one: ranks that are done with their program wait for the others.
    return {**found, "uneven": [uneven([2, 0, 9]), uneven([0, 7, 3])]}


def uneven(counts: list[int]) -> int:
    """Make another number of mini-batches on each rank, perhaps none, and end."""
    graph = make_graph()
    count = counts[rank_and_size()[0]]
    return len(list(make_loader(graph, count))) if count else 0


def restarts_differ() -> int:
    """Meet where torchrun's agents counted differently how often they started their ranks again, as they may."""
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(rank_and_size()[0])
    return len(list(make_loader(make_graph(Peers(start_timeout=20, timeout=10)), 3)))


def ask_for_nothing() -> str:
    """Ask the last rank for what it never makes, and what it has closed."""
    peers = Peers(start_timeout=20, timeout=10)
    rank, world_size = rank_and_size()
    found = ""
    if rank == 0:
        try:
            last, future = next(iter(peers.ask("nothing 0", {}, {world_size - 1: {}}).items()))
            peers.wait(last, future)
        except (RuntimeError, TimeoutError) as error:
            found = str(error)
    peers.close()
    peers.join(60)
    return f"{found} {peers.ended}"


def leave_early() -> int:
    """Leave an epoch in the middle on one rank, and go on with the next on the others."""
    loader = make_loader(make_graph(), 5)
    made = 0
    for _ in range(3):
        for batch in loader:
            made += 1
            if rank_and_size()[0] == 0 and batch.key.index == 1:
                break
    return made


def be_late(seconds: float, start_timeout: float) -> str:
    """Make the part of the last rank later than the others'."""
    rank, world_size = rank_and_size()
    if rank == world_size - 1:
        time.sleep(seconds)
    try:
        return str(len(list(make_loader(make_graph(Peers(start_timeout=start_timeout)), 3))))
    except (TimeoutError, RankLostError) as error:
        return str(error)


def lose(name: str, timeout: float, share_memory: bool, ahead: bool) -> Any:
    """Let rank 1 fail, or get a signal, in the middle.

    The others return their error, and after how many seconds it came.
    """
    peers = Peers(timeout=timeout, share_memory=share_memory)
    rank, graph = rank_and_size()[0], make_graph(peers)
    store = connect_to_store(distributed.group.WORLD, 20)
    give_up = time.monotonic() + 200
    try:
        while time.monotonic() < give_up:
            for batch in make_loader(graph, 100, peers if ahead else None):
                if rank == 1 and batch.key.index == 2:
                    store.set("lost", str(time.time()))
                    if name == "failure":
                        raise ZeroDivisionError
                    os.kill(os.getpid(), getattr(signal, name))
    except RankLostError as error:
        return [str(error), time.time() - float(store.get("lost"))]
    return None


def lose_early(name: str, timeout: float) -> Any:
    """Let rank 1 fail, or get a signal, once it has come, while rank 2 never does.

    Rank 0 returns its error, and after how many seconds it came.
    """
    rank, store = rank_and_size()[0], connect_to_store(distributed.group.WORLD, 20)
    if rank == 2:
        time.sleep(100)
    peers = Peers(timeout=timeout)
    if rank == 1:
        while not store.check(["graphfeed/0/here/0", "graphfeed/0/here/1"]):
            time.sleep(0.01)
        time.sleep(1)  # until they have seen each other
        store.set("lost", str(time.time()))
        if name == "failure":
            raise ZeroDivisionError
        os.kill(os.getpid(), getattr(signal, name))
    try:
        make_graph(peers).in_subgraph(torch.arange(100))
    except RankLostError as error:
        return [str(error), time.time() - float(store.get("lost"))]
    return None


def exit_in_the_middle() -> int:
    """Let rank 1 exit with a status; the others return how many mini-batches they made."""
    made = 0
    for _ in make_loader(make_graph(Peers(share_memory=False)), 40):
        made += 1
        if rank_and_size()[0] == 1 and made == 2:
            sys.exit(3)
    return made


def disagree() -> str:
    """Give the ranks different assignments."""
    rank = rank_and_size()[0]
    assignment = torch.arange(NUM_NODES) % 3 if rank == 0 else torch.arange(NUM_NODES) * 3 // NUM_NODES
    graph = PartitionedGraph(cut_graph(untyped(), assignment, rank), Peers(share_memory=False))
    try:
        graph.in_subgraph(torch.arange(100))
    except ValueError as error:
        return str(error)
    return ""


def close_and_reopen() -> list[Any]:
    """Close the peers, and see that their thread ends and that others work."""
    peers = Peers()
    edges = [make_graph(peers).in_subgraph(torch.arange(100)).original_edge_ids]
    peers.close()
    peers.join()
    try:
        make_graph(peers).in_subgraph(torch.arange(100))
    except RuntimeError as error:
        text = str(error)
    edges.append(make_graph().in_subgraph(torch.arange(100)).original_edge_ids)
    return [text, torch.equal(*edges)]


def meet(rank: int, world_size: int, port: int, folder: str, fails: bool) -> None:
    """Meet other ranks at an address, and make mini-batches; rank 1 perhaps fails after the first."""
    # A rank that asks the one that fails must notice; one that reads its part in shared memory may be done before.
    peers = Peers(share_memory=not fails, meeting=MeetingPoint("127.0.0.1", port, rank, world_size))
    nodes = torch.arange(NUM_NODES) % world_size
    graph = PartitionedGraph(cut_graph(untyped(), nodes, rank), peers)
    try:
        # A rank that fails answers until the others are told; so there must be more to ask for.
        for _ in range(1000 if fails else 1):
            for batch, wanted in zip(make_loader(graph, 40), make_loader(untyped(), 40), strict=True):
                assert_same(batch, wanted)
                if fails and rank == 1 and batch.key.index == 0:
                    raise ZeroDivisionError
        end = "all were equal"
    except RankLostError as error:
        end = str(error)
    (Path(folder) / f"{rank}.txt").write_text(end)


def wait_for_a_key(rank: int, world_size: int, port: int) -> None:
    """Be a rank of two: the first waits in the store for what the second writes once the first has answered."""
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    store = connect_to_store(distributed.group.WORLD, 20)
    time.sleep(rank)  # the first one waits before its peers have met
    peers = Peers(start_timeout=20, timeout=20)
    name = peers.serve("key", lambda options, tensors: {})
    if rank == 0:
        store.wait(["key"], timedelta(seconds=15))
    else:
        peers.wait(0, peers.ask(name, {}, {0: {}})[0])
        store.set("key", "")
    peers.close()
    peers.join()
    sys.stdout.write(f"rank {rank} has met the other\n")
