import socket
import time
from collections.abc import Iterator

import pytest

from graphfeed.distributed.ranks import heartbeat
from graphfeed.distributed.ranks.heartbeat import Heartbeat, LostError


class Two:
    """Two ranks, each with the ends of its connections to the other."""

    def __init__(self, silent_seconds: float = 60.0) -> None:
        self.ranks = [Heartbeat(rank, silent_seconds) for rank in range(2)]
        for rank, own in enumerate(self.ranks):
            to, taken = socket.socketpair()
            own.begin(1 - rank, to)
            self.ranks[1 - rank].take(rank, taken)


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    for rank in made.ranks:
        rank.close()


def test_ranks_end_once_all_of_them_leave(two: Two) -> None:
    first, second = two.ranks
    assert not first.beat(leaving=False)
    assert not second.beat(leaving=True)
    assert not first.beat(leaving=False)
    assert (first.left, second.left) == ({1}, set())
    assert first.beat(leaving=True)
    first.close()
    assert second.beat(leaving=True)
    second.beat(leaving=True)  # that the first has closed its connections is no loss


def test_a_rank_may_need_others_again(two: Two) -> None:
    first, second = two.ranks
    second.beat(leaving=True)
    first.beat(leaving=False)
    second.beat(leaving=False)
    first.beat(leaving=False)
    assert not first.beat(leaving=True)
    assert first.left == set()


def test_the_end_of_a_rank_that_leaves_while_others_need_it_is_a_loss(two: Two) -> None:
    first, second = two.ranks
    second.beat(leaving=True)
    first.beat(leaving=False)
    second.close()
    first.beat(leaving=False)
    time.sleep(heartbeat.GRACE_SECONDS)
    with pytest.raises(LostError, match="rank 1: its connection ended"):
        first.beat(leaving=False)


def test_what_was_said_before_the_end_of_another_connection_counts(two: Two) -> None:
    first, second = two.ranks
    second._to[0].send(b"\1")
    second.close()
    assert first.beat(leaving=True)


def test_a_silent_rank_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.0)
    two = Two(silent_seconds=0.2)
    first, second = two.ranks
    for _ in range(20):  # 0.4 s
        first.beat(leaving=False)
        second.beat(leaving=False)
    time.sleep(0.25)
    first.beat(leaving=False)  # what had come before
    time.sleep(0.25)
    with pytest.raises(LostError, match=r"rank 1: it gave no sign of life for 0\.2 s"):
        first.beat(leaving=False)
    first.close()
    second.close()


def test_a_rank_whose_program_failed_says_so(two: Two) -> None:
    first, second = two.ranks
    second.beat(leaving=False)
    second.tell_lost(1)
    second.close()
    with pytest.raises(LostError, match="rank 1: its program failed"):
        first.beat(leaving=False)


def test_a_rank_that_ends_because_it_lost_another_one_says_which(two: Two) -> None:
    first, second = two.ranks
    second.beat(leaving=False)
    second.tell_lost(258)
    second.close()
    with pytest.raises(LostError, match="rank 258: rank 1 lost it") as error:
        first.beat(leaving=False)
    assert error.value.rank == 258
