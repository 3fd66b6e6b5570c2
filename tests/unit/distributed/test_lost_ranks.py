"""Lost ranks: they fail, are killed or stopped, exit, never register, or register again; and how others notice."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import Peers, RankLostError
from graphfeed.distributed.ranks.membership import program_end
from graphfeed.distributed.ranks.membership.rendezvous import connect_to_store
from tests.kinds.digests import digest
from tests.kinds.partitioned_graphs import plain
from tests.stand_ins import scripts
from tests.stand_ins.forked import in_child
from tests.stand_ins.rank_processes import end_of, rank_and_size, result_file, run_ranks, run_spawned, start_rank
from tests.unit.distributed.test_peers import make_graph, make_loader

NEW_STORE: dict[str, Any] = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it, torch's gloo connects to the address of the ranks before the restart."""


def lose(name: str, timeout: float, ahead: bool) -> Any:
    """Make rank 1 fail, or send it a signal, during an epoch.

    The others return their error, and the number of seconds until it was raised.
    """
    peers = Peers(timeout=timeout, frozen_timeout=min(timeout, 5))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "timeout", "ahead"),
    [
        ("failure", 60, False),
        ("SIGKILL", 60, True),
        ("SIGSTOP", 60, False),
        *[
            pytest.param(*given, marks=pytest.mark.thorough)
            for given in [
                ("failure", 60, True),
                ("SIGKILL", 60, False),
                ("SIGSTOP", 3, True),
            ]
        ],
    ],
)
def test_a_lost_rank_is_named_within_the_timeout(tmp_path: Path, name: str, timeout: float, ahead: bool) -> None:
    options = {"name": name, "timeout": timeout, "ahead": ahead}
    ranks = [start_rank(f"{__name__}:lose", rank, 3, tmp_path, **options) for rank in range(3)]
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
        assert seconds < (min(timeout, 5) + 4 if name == "SIGSTOP" else 4) + 6  # 6 for a busy machine


def lose_early(name: str, timeout: float) -> Any:
    """Make rank 1 fail, or send it a signal, once it has registered, while rank 2 never does.

    Rank 0 returns its error, and the number of seconds until it was raised.
    """
    rank, store = rank_and_size()[0], connect_to_store(distributed.group.WORLD, 20)
    if rank == 2:
        time.sleep(100)
    peers = Peers(timeout=timeout)
    if rank == 1:
        while not store.check(["graphfeed/0/here/0", "graphfeed/0/here/1"]):
            time.sleep(0.01)
        time.sleep(1)  # until they have connected
        store.set("lost", str(time.time()))
        if name == "failure":
            raise ZeroDivisionError
        os.kill(os.getpid(), getattr(signal, name))
    try:
        make_graph(peers).in_subgraph(torch.arange(100))
    except RankLostError as error:
        return [str(error), time.time() - float(store.get("lost"))]
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "timeout", "how"),
    [
        ("failure", 60, "its program failed"),
        ("SIGKILL", 60, "its connection ended"),
        (
            "SIGSTOP",
            2,
            r"its machine answers, but it sent no heartbeat for 2 s; .*Peers\(frozen_timeout=\) on all ranks",
        ),
    ],
)
def test_a_rank_that_is_lost_before_all_have_met_is_named(tmp_path: Path, name: str, timeout: float, how: str) -> None:
    ranks = [start_rank(f"{__name__}:lose_early", rank, 3, tmp_path, name=name, timeout=timeout) for rank in range(3)]
    try:
        assert end_of(ranks[0]) == ""
    finally:
        for rank in ranks[1:]:
            rank.kill()
            end_of(rank)
    text, seconds = json.loads(result_file(tmp_path, 0).read_text())
    lost = rf"rank 1 \(\S+, process {ranks[1].pid}\) is lost before all ranks have connected: {how}; restart all ranks"
    assert re.match(lost, text)
    assert seconds < 8  # on a busy machine


def fail_early(status: int | None) -> Any:
    """Make rank 1 fail before it begins, or exit with a status; the others return their error."""
    if rank_and_size()[0] == 1:
        if status is not None:
            sys.exit(status)
        raise ZeroDivisionError
    with pytest.raises(RankLostError) as caught:
        make_graph(Peers()).in_subgraph(torch.arange(100))
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "how"), [(None, "failed"), (3, "ended"), pytest.param(0, "ended", marks=pytest.mark.thorough)]
)
def test_a_rank_that_ends_before_it_begins_is_named_by_those_that_wait_for_it(
    tmp_path: Path, status: int | None, how: str
) -> None:
    ranks = [start_rank(f"{__name__}:fail_early", rank, 3, tmp_path, status=status) for rank in range(3)]
    assert ("ZeroDivisionError" in end_of(ranks[1])) == (status is None)
    for rank in (0, 2):
        assert end_of(ranks[rank]) == ""
        text = json.loads(result_file(tmp_path, rank).read_text())
        assert re.match(rf"rank 1 is lost before all ranks have connected: its program {how}; restart all ranks", text)


def exit_early(broke: bool, status: int) -> Any:
    """Make rank 1 exit with a status; the others return their number of mini-batches, or their error.

    Args:
        broke: Whether all ranks leave the previous epoch at the same mini-batch. If not, rank 1 exits during an epoch.
        status: Exit status of rank 1.
    """
    made, graph = 0, make_graph(Peers())
    try:
        for _ in make_loader(graph, 4000):
            made += 1
            if made == 2 and broke:
                break
            if rank_and_size()[0] == 1 and made == 2:
                sys.exit(status)
        if rank_and_size()[0] == 1:
            sys.exit(status)
        return made + sum(1 for _ in make_loader(graph, 40))
    except RankLostError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 3])
def test_a_rank_that_exits_in_the_middle_of_an_epoch_is_lost_to_those_that_go_on(tmp_path: Path, status: int) -> None:
    ranks = [start_rank(f"{__name__}:exit_early", rank, 3, tmp_path, broke=False, status=status) for rank in range(3)]
    assert [end_of(rank) for rank in ranks] == [""] * 3
    assert [rank.returncode for rank in ranks] == [0, status, 0]
    lost = rf"rank 1 \(\S+, process {ranks[1].pid}\) is lost: its program "
    found = [json.loads(result_file(tmp_path, rank).read_text()) for rank in (0, 2)]
    # The other one may hear of it first, from rank 1's last heartbeat or from the first one.
    ended = "ended after 2 mini-batches of an epoch"
    assert all(
        re.match(f"{lost}({ended}|failed;)", text) or ("rank 1" in text and "lost it" in text) for text in found
    ), found
    assert any(re.match(f"{lost}{ended}", text) for text in found), found


@pytest.mark.slow
def test_a_rank_that_exits_after_an_epoch_answers_the_others_and_keeps_its_status(tmp_path: Path) -> None:
    ranks = [start_rank(f"{__name__}:exit_early", rank, 3, tmp_path, broke=True, status=3) for rank in range(3)]
    assert [end_of(rank) for rank in ranks] == [""] * 3
    assert [rank.returncode for rank in ranks] == [0, 3, 0]
    assert [result_file(tmp_path, rank).read_text() for rank in (0, 2)] == ["42"] * 2


@pytest.mark.slow
def test_a_spawned_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    status, printed = run_spawned("tests.unit.distributed.test_peers:meet", 2, folder=str(tmp_path), fails=True)
    assert status == 1
    assert "ZeroDivisionError" in printed
    assert not (tmp_path / "1.txt").exists()
    # torch may have ended rank 0 before it could report this.
    ends = [path.read_text() for path in tmp_path.glob("0.txt")]
    assert all(re.match(r"rank 1 \(.*\) is lost", end) for end in ends), ends


def check_restarted(folder: Path) -> None:
    """Fail unless both ranks together made the mini-batches of one process, without duplicates."""
    pipe = gf.ItemSampler(gf.ItemSet(96, names="seeds"), 6, shuffle=True).sample_neighbor(plain(), [3, 4])
    wanted = [digest(batch) for batch in gf.DataLoader(pipe, 0, seed=4)]
    for rank in range(2):
        assert (folder / f"made {rank}.txt").read_text().split() == wanted[rank::2]


@pytest.mark.slow
def test_after_a_rank_was_killed_all_are_started_again_and_the_epoch_goes_on(tmp_path: Path) -> None:
    name, options = "tests.stand_ins.restarted:make_epoch", {"root": str(tmp_path)}
    ranks = [start_rank(name, rank, 2, tmp_path, **options, first=True) for rank in range(2)]
    ends = [end_of(rank) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, -signal.SIGKILL], ends
    (tmp_path / "store").unlink()
    run_ranks(name, 2, tmp_path, **options, first=False)
    check_restarted(tmp_path)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_killed_rank_is_started_again_with_all_others_and_the_epoch_goes_on(tmp_path: Path) -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    run = scripts.run("-m", *torchrun, "-m", "tests.stand_ins.restarted", str(tmp_path), **NEW_STORE)
    assert run.returncode == 0, run.stderr
    assert "exitcode: -9" in run.stderr
    check_restarted(tmp_path)


def test_an_error_ends_a_program_but_no_interactive_session() -> None:
    def fail() -> tuple[bool, bool]:
        sys.last_value = ValueError()
        before = program_end.program_failed()
        sys.ps1 = ">>> "
        return before, program_end.program_failed()

    assert in_child(fail) == "(True, False)"
