"""Ranks that end early, late, by a signal, or not at all."""

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import LocalFeatureStore, MeetingPoint, PartBook, PartitionedFeature, Peers
from graphfeed.distributed.ranks.peers import peers_at
from tests import scripts
from tests.digests import digest
from tests.distributed.graphs import plain
from tests.distributed.rank_processes import end_of, free_port, result_file, run_ranks, run_spawned, start_rank
from tests.forked import in_child

MODULE = "tests.distributed.lost_ranks"
NEW_STORE: dict[str, Any] = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it, torch's gloo connects to where the ranks before the restart listened."""


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
    both = [Peers(meeting=MeetingPoint("127.0.0.1", port, rank, 2), timeout=60, start_timeout=60) for rank in range(2)]
    try:
        (name, _) = (peers.serve("graph", lambda options, tensors: {}) for peers in both)
        assert both[0].wait(1, both[0].ask(name, {}, {1: {}})[1]) == {}
        reason = f"RuntimeError: a fork of process {os.getpid()} can't reach other ranks"
        assert in_child(lambda: both[0].wait(1, both[0].ask(name, {}, {1: {}})[1])).startswith(reason)
        assert in_child(both[0].ranks_here).startswith(reason)
        assert in_child(lambda: both[0].serve("graph", lambda options, tensors: {})).startswith(reason)
        assert in_child(lambda: both[0].ask(name, {}, {})) == "{}"
    finally:
        for peers in both:
            peers.close()
        both[0].join(20)


@pytest.fixture(scope="module")
def ended_well(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return what each of three ranks found in all the cases that need but one start of them."""
    return run_ranks(f"{MODULE}:end_well", 3, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
def test_ranks_without_mini_batches_answer_until_all_are_done(ended_well: list[Any]) -> None:
    assert [found["uneven"] for found in ended_well] == [[2, 0], [0, 7], [9, 3]]


@pytest.mark.slow
def test_a_rank_may_leave_an_epoch_early(ended_well: list[Any]) -> None:
    assert [found["break"] for found in ended_well] == [6, 15, 15]


@pytest.mark.slow
def test_a_rank_may_start_late(ended_well: list[Any]) -> None:
    assert [found["late"] for found in ended_well] == ["3"] * 3


@pytest.mark.slow
def test_ranks_meet_however_often_torchrun_started_each_again(ended_well: list[Any]) -> None:
    assert [found["restarts"] for found in ended_well] == [3] * 3


@pytest.mark.slow
def test_what_a_rank_never_made_fails_once_it_ends_and_holds_nobody(ended_well: list[Any]) -> None:
    reason, *others = (found["never made"] for found in ended_well)
    assert re.search(r"rank 2 \(.*\) failed: RuntimeError: it has ended, and made no such graph", reason)
    assert [end.split()[-1] for end in (reason, *others)] == ["True"] * 3


@pytest.mark.slow
def test_ranks_that_disagree_about_parts_fail(ended_well: list[Any]) -> None:
    reason = re.compile(
        r"assignment of 'graph \d+' is \d+ on ranks \[0\], and \d+ on ranks \[1, 2\]; let all ranks open"
    )
    assert all(reason.search(found["disagree"]) for found in ended_well)


@pytest.mark.slow
def test_closed_peers_end_and_others_can_be_made(ended_well: list[Any]) -> None:
    assert [found["close"] for found in ended_well] == [["the peers are closed; make others", True]] * 3


@pytest.mark.slow
def test_a_rank_that_does_not_start_is_named(tmp_path: Path) -> None:
    ranks = [start_rank(f"{MODULE}:be_late", rank, 3, tmp_path, seconds=1000, start_timeout=5) for rank in range(3)]
    assert [end_of(rank) for rank in ranks[:2]] == ["", ""]
    ranks[2].kill()
    end_of(ranks[2])
    for rank in range(2):
        assert "ranks [2] did not make their parts within 5 s" in result_file(tmp_path, rank).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "timeout", "share_memory", "ahead"),
    [
        ("failure", 60, False, False),
        ("failure", 60, False, True),
        ("failure", 60, True, False),
        ("SIGKILL", 60, False, False),
        ("SIGKILL", 60, False, True),
        ("SIGKILL", 60, True, False),
        ("SIGSTOP", 4, False, True),
        ("SIGSTOP", 4, True, False),
    ],
)
def test_a_lost_rank_is_named_within_the_timeout(
    tmp_path: Path, name: str, timeout: float, share_memory: bool, ahead: bool
) -> None:
    options = {"name": name, "timeout": timeout, "share_memory": share_memory, "ahead": ahead}
    ranks = [start_rank(f"{MODULE}:lose", rank, 3, tmp_path, **options) for rank in range(3)]
    try:
        for rank in (0, 2):
            assert end_of(ranks[rank]) == ""
        if name == "failure":
            assert "ZeroDivisionError" in end_of(ranks[1])
            assert ranks[1].returncode == 1
    finally:
        if ranks[1].returncode is None:
            ranks[1].kill()
            end_of(ranks[1])
    for rank in (0, 2):
        text, seconds = json.loads(result_file(tmp_path, rank).read_text())
        assert re.match(rf"rank 1 \(\S+, process {ranks[1].pid}\) is lost: ", text)
        assert seconds < (timeout + 4 if name == "SIGSTOP" else 4) + 6  # the last is for a busy machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "timeout", "how"),
    [
        ("failure", 60, "its program failed"),
        ("SIGKILL", 60, "its connection ended"),
        ("SIGSTOP", 2, "it gave no sign of life for 2 s"),
    ],
)
def test_a_rank_that_is_lost_before_all_have_met_is_named(tmp_path: Path, name: str, timeout: float, how: str) -> None:
    ranks = [start_rank(f"{MODULE}:lose_early", rank, 3, tmp_path, name=name, timeout=timeout) for rank in range(3)]
    try:
        assert end_of(ranks[0]) == ""
    finally:
        for rank in ranks[1:]:
            rank.kill()
            end_of(rank)
    text, seconds = json.loads(result_file(tmp_path, 0).read_text())
    lost = rf"rank 1 \(\S+, process {ranks[1].pid}\) is lost before all ranks have met: {how}; start all ranks again"
    assert re.match(lost, text)
    assert seconds < 8  # of a busy machine


@pytest.mark.slow
def test_a_rank_that_exits_answers_the_others_and_keeps_its_status(tmp_path: Path) -> None:
    ranks = [start_rank(f"{MODULE}:exit_in_the_middle", rank, 3, tmp_path) for rank in range(3)]
    assert [end_of(rank) for rank in ranks] == [""] * 3
    assert [rank.returncode for rank in ranks] == [0, 3, 0]
    assert [result_file(tmp_path, rank).read_text() for rank in (0, 2)] == ["40"] * 2


@pytest.mark.slow
def test_ranks_without_a_process_group_meet_at_an_address(tmp_path: Path) -> None:
    status, printed = run_spawned(f"{MODULE}:meet", 2, folder=str(tmp_path), fails=False)
    assert status == 0, printed
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)] == ["all were equal"] * 2


def in_two_ranks(call: Callable[[int], Any]) -> list[Any]:
    """Return what a function of the rank returns, in a thread each."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(call, range(2)))


def test_features_of_stores_are_the_same_ones_in_whichever_order_ranks_set_them() -> None:
    ports, assignment, nodes = [free_port(), free_port()], torch.tensor([0, 0, 1, 1]), torch.arange(4)

    def read(rank: int) -> list[list[int]]:
        store = LocalFeatureStore()
        store.num_partitions, store.partition_idx, store.node_feat_pb = 2, rank, assignment
        own = nodes[assignment == rank]
        store.put_global_id(own, None)
        for name, first in [("x", 0), ("z", 100)][:: 1 - 2 * rank]:
            store.put_tensor(own[:, None] + first, None, name)
        found = []
        for share_memory in (True, False):
            meeting = MeetingPoint("127.0.0.1", ports[share_memory], rank, 2)
            peers = Peers(share_memory=share_memory, start_timeout=30, meeting=meeting)
            feature = store.partitioned_features(peers)["node", None, "x"]
            found.append(feature.read(nodes).flatten().tolist())
            peers.close()
        return found

    assert in_two_ranks(read) == [[[0, 1, 2, 3]] * 2] * 2


def test_features_of_another_kind_are_refused() -> None:
    port, book = free_port(), PartBook.from_bounds([0, 2, 4])
    rows = [torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int32)]

    def read(rank: int) -> str:
        meeting = MeetingPoint("127.0.0.1", port, rank, 2)
        peers = Peers(share_memory=False, start_timeout=30, meeting=meeting)
        with pytest.raises(ValueError, match="rows of 'rows 0' is") as error:
            PartitionedFeature(rows[rank], book, peers).read(torch.arange(4))
        peers.close()
        return str(error.value)

    said = 'rows of \'rows 0\' is "float32[4, 1]" on ranks [0], and "int32[4, 1]" on ranks [1]'
    assert all(said in text for text in in_two_ranks(read))


def test_ranks_meet_again_at_an_address_once_they_have_closed() -> None:
    port, book = free_port(), PartBook.from_bounds([0, 2, 4])

    def read(rank: int) -> list[list[float]]:
        found = []
        for number in range(2):
            peers = peers_at(MeetingPoint("127.0.0.1", port, rank, 2), 30)
            rows = torch.full((2, 1), 10.0 * number + rank)
            found.append(PartitionedFeature(rows, book, peers).read(torch.arange(4)).flatten().tolist())
            peers.close()
            peers.join(30)
        return found

    assert in_two_ranks(read) == [[[0, 0, 1, 1], [10, 10, 11, 11]]] * 2


@pytest.mark.slow
def test_a_spawned_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    status, printed = run_spawned(f"{MODULE}:meet", 2, folder=str(tmp_path), fails=True)
    assert status == 1
    assert "ZeroDivisionError" in printed
    assert not (tmp_path / "1.txt").exists()
    # torch may have ended rank 0 before it could say so.
    ends = [path.read_text() for path in tmp_path.glob("0.txt")]
    assert all(re.match(r"rank 1 \(.*\) is lost", end) for end in ends), ends


@pytest.mark.slow
def test_a_killed_rank_is_started_again_with_all_others_and_the_epoch_goes_on(tmp_path: Path) -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    run = scripts.run("-m", *torchrun, "-m", "tests.distributed.restarted", str(tmp_path), **NEW_STORE)
    assert run.returncode == 0, run.stderr
    assert "exitcode: -9" in run.stderr
    pipe = gf.ItemSampler(gf.ItemSet(96, names="seeds"), 6, shuffle=True).sample_neighbor(plain(), [3, 4])
    wanted = [digest(batch) for batch in gf.DataLoader(pipe, 0, seed=4)]
    for rank in range(2):
        assert (tmp_path / f"made {rank}.txt").read_text().split() == wanted[rank::2]


@pytest.mark.slow
def test_ranks_meet_while_a_thread_waits_in_the_store_of_the_process_group() -> None:
    status, printed = run_spawned(f"{MODULE}:wait_for_a_key", 2)
    assert status == 0, printed
    assert printed.count("has met the other") == 2
