"""Ranks that meet at an address, or can't."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch import distributed

from graphfeed.distributed import MeetingPoint, Peers
from graphfeed.distributed.ranks import meeting
from graphfeed.distributed.ranks.meeting_point import meet
from tests.distributed.rank_processes import end_of, free_port, start_program


def test_ranks_get_the_same_store() -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(MeetingPoint("127.0.0.1", port, rank, 2).open_store, 30) for rank in range(2)]
        first, second = (future.result() for future in futures)
    first.set("word", "from rank 0")
    assert second.get("word") == b"from rank 0"


def test_a_thread_that_waits_in_a_store_holds_no_other_peers_at_the_address() -> None:
    # Gloo waits for keys of other ranks, and these set them only if their own threads are not held.
    port = free_port()
    places = [(rank, use) for use in range(2) for rank in range(2)]
    stores = {place: MeetingPoint("127.0.0.1", port, place[0], 2).open_store(30, place[1]) for place in places}
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


def test_a_rank_of_another_job_is_refused_and_takes_no_place() -> None:
    port = free_port()
    store = MeetingPoint("127.0.0.1", port, 0, 2, "first").open_store(30)
    with pytest.raises(ConnectionError, match=r"belongs to the job 'first' of 2 ranks, but this rank to 'second' of 2"):
        MeetingPoint("127.0.0.1", port, 1, 2, "second").open_store(30)
    with pytest.raises(ConnectionError, match=r"'first' of 2 ranks, but this rank to 'first' of 3 ranks"):
        MeetingPoint("127.0.0.1", port, 1, 3, "first").open_store(30)
    assert not store.check(["taken/1"])


@pytest.mark.parametrize("name", ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"])
def test_what_a_launcher_calls_the_job_tells_jobs_apart(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = []
    for job in ("7", "8"):
        monkeypatch.setenv(name, job)
        found.append(MeetingPoint("127.0.0.1", 1, 0, 2).describe_job())
    assert found[0] != found[1]


def test_a_process_group_tells_its_job_from_others_at_the_address() -> None:
    port, groups = free_port(), [distributed.HashStore() for _ in range(2)]  # type: ignore[attr-defined]
    MeetingPoint("127.0.0.1", port, 0, 2).open_store(30, group=groups[0])
    MeetingPoint("127.0.0.1", port, 1, 2).open_store(30, group=groups[0])
    MeetingPoint("localhost", port, 1, 2).open_store(30)  # without one, there is nothing to tell it by
    with pytest.raises(ConnectionError, match=rf"rank 0 at localhost:{port} belongs to the job .*choose another port"):
        MeetingPoint("localhost", port, 1, 2).open_store(30, group=groups[1])


def end_of_meeting(peers: Peers) -> str:
    """Return why some peers have ended."""
    peers.join(20)
    with pytest.raises(OSError, match=":") as caught:
        peers.check()
    return str(caught.value)


@pytest.mark.parametrize("late", [0, 1])
def test_ranks_of_two_jobs_that_met_at_an_address_notice(late: int) -> None:
    # Another spelling of the address stands for another process: each opens a store of its own.
    port = free_port()
    ours = [Peers(meeting=MeetingPoint("127.0.0.1", port, 0, 2)), Peers(meeting=MeetingPoint("localhost", port, 1, 2))]
    assert all(peers.ranks_here() == [0, 1] for peers in ours)
    stranger = Peers(meeting=MeetingPoint("127.0.0.1" if late else "localhost", port, late, 2), start_timeout=20)
    at = rf"(127\.0\.0\.1|localhost):{port}"
    assert re.search(rf"{at} is already \(|can't listen at {at}", end_of_meeting(stranger))
    for peers in ours:
        assert re.match(rf"another rank {late} \(.*, process \d+\) came to {at} while.*two jobs", end_of_meeting(peers))


def test_a_stranger_who_comes_long_after_the_ranks_have_met_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "WATCH_SECONDS", -1.0)
    port = free_port()
    ours = [Peers(meeting=MeetingPoint("127.0.0.1", port, rank, 2)) for rank in range(2)]
    (name, _) = (peers.serve("graph", lambda options, tensors: {}) for peers in ours)
    assert ours[0].ranks_here() == [0, 1]
    assert "is already" in end_of_meeting(Peers(meeting=MeetingPoint("localhost", port, 1, 2)))
    assert ours[0].wait(1, ours[0].ask(name, {}, {1: {}})[1]) == {}
    for peers in ours:
        peers.close()


def test_a_place_is_taken_once() -> None:
    store = distributed.HashStore()  # type: ignore[attr-defined]  # torch does not list it
    assert len(meet(store, 0, 1, 5)[0]) == 1
    with pytest.raises(ConnectionError, match=r"rank 0 is already \(.*, process \d+\).*another port"):
        meet(store, 0, 1, 5)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_program_that_fails_before_the_others_began_ends_at_once(rank: int) -> None:
    program = start_program(
        "from graphfeed.distributed import MeetingPoint, Peers\n"
        f"Peers(meeting=MeetingPoint('127.0.0.1', {free_port()}, {rank}, 2), start_timeout=100)\n"
        "print('begun', flush=True)\n"
        "1 / 0"
    )
    while not program.wait(0.01) and "begun" not in program.printed():
        pass
    begun = time.monotonic()
    end_of(program, 90)
    assert program.returncode == 1
    assert time.monotonic() - begun < 60  # of a busy machine


def check_no_meeting(rank: int, port: int, reason: str) -> None:
    """Fail unless a rank that can't meet the other one says where it tried."""
    peers = Peers(start_timeout=0.5, meeting=MeetingPoint("127.0.0.1", port, rank, 2))
    peers.join()
    with pytest.raises(OSError, match=f"rank 0 {reason}"):
        peers.ask("graph 0", {}, {1 - rank: {}})


def test_an_address_where_nobody_listens_is_named(no_leaks: None) -> None:
    port = free_port()
    check_no_meeting(1, port, rf"did not listen at 127\.0\.0\.1:{port} within 0\.5 s")


def test_an_address_where_somebody_listens_and_says_nothing_is_named(no_leaks: None) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        check_no_meeting(1, port, rf"did not listen at 127\.0\.0\.1:{port} within 0\.5 s")


def test_an_address_that_others_use_is_named() -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        port = server.getsockname()[1]
        check_no_meeting(0, port, rf"can't listen at 127\.0\.0\.1:{port}.*choose another port")
