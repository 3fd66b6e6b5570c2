"""Heartbeats of ranks in one process: leaving, silent and lost ranks."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from graphfeed.distributed.ranks.membership import heartbeat
from graphfeed.distributed.ranks.membership.heartbeat import Heartbeat, LostError, is_confirmed
from graphfeed.testing import limits


class Two:
    """Two ranks, each with its connections to the other."""

    def __init__(self, silent_seconds: float = 60.0) -> None:
        self.ranks = [Heartbeat(rank, silent_seconds) for rank in range(2)]
        for rank, own in enumerate(self.ranks):
            to, taken = socket.socketpair()
            own.watch(1 - rank, to)
            self.ranks[1 - rank].accept(rank, taken)


@contextmanager
def connected(heart: Heartbeat) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Connect a rank's heartbeat to rank 1, and yield the sockets of both."""
    with socket.create_server(("127.0.0.1", 0)) as server, closing(heart):
        connection = socket.create_connection(server.getsockname())
        with server.accept()[0] as other, connection:
            heart.watch(1, connection)
            yield connection, other


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    for rank in made.ranks:
        rank.close()


def listen(rank: Heartbeat, seconds: float) -> None:
    """Send heartbeats of a rank for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rank.beat(leaving=False)


def test_the_end_of_a_rank_that_leaves_while_others_need_it_is_a_loss(two: Two) -> None:
    first, second = two.ranks
    second.beat(leaving=True)
    first.beat(leaving=False)
    second.close()
    first.beat(leaving=False)
    time.sleep(heartbeat.GRACE_SECONDS)
    with pytest.raises(LostError, match="rank 1: its connection ended"):
        first.beat(leaving=False)


@pytest.mark.slow
def test_a_rank_whose_machine_answers_has_its_own_time_and_is_named_before() -> None:
    heart = Heartbeat(0, silent_seconds=1, frozen_seconds=6)
    with connected(heart) as (_, other):
        other.send(b"\0")
        with pytest.warns(RuntimeWarning, match="rank 1 has sent no heartbeat for 5 s") as warned:
            listen(heart, 5.5)
        assert len(warned) == 1
        with pytest.raises(LostError, match=r"no heartbeat for 6 s; .* larger Peers\(frozen_timeout=\)"):
            listen(heart, 20)


def test_a_rank_has_thirty_seconds_by_default_or_the_usual_ones_if_they_are_fewer() -> None:
    for silent, frozen, limit in ((180, None, 30), (10, None, 10), (10, 60, 60)):
        heart = Heartbeat(0, silent, frozen)
        assert heart.frozen_seconds == limit
        heart.close()


def test_a_silent_rank_whose_machine_answers_is_lost_earlier() -> None:
    heart = Heartbeat(0, silent_seconds=60, frozen_seconds=0.2)
    with connected(heart) as (connection, other):
        with suppress(BlockingIOError):
            while True:
                connection.send(bytes(1 << 20))  # more than the other machine can accept
        other.send(b"\0")
        listen(heart, 0.3)
        other.setblocking(False)  # unacknowledged data may have arrived
        while not is_confirmed(connection):
            with suppress(BlockingIOError):
                other.recv(1 << 20)
        with pytest.raises(LostError, match=r"rank 1: its machine answers, but it sent no heartbeat for 0\.2 s"):
            heart.beat(leaving=False)


def test_a_rank_that_still_connects_to_others_is_not_frozen() -> None:
    heart = Heartbeat(0, silent_seconds=60, frozen_seconds=0.2)
    with connected(heart) as (_, other):
        listen(heart, 0.4)
        other.send(b"\0")
        with pytest.raises(LostError, match="rank 1: its machine answers"):
            listen(heart, 20)


@limits(beat_seconds=0.01)
def test_a_rank_that_stood_still_itself_takes_no_other_for_silent() -> None:
    two = Two(silent_seconds=0.2)
    first, second = two.ranks
    for _ in range(3):
        time.sleep(0.3)  # like all ranks of a job that is paused
        first.beat(leaving=False)
    with pytest.raises(LostError, match="rank 1: it sent no heartbeat"):
        listen(first, 20)
    first.close()
    second.close()


def test_a_rank_that_ends_because_it_lost_another_one_says_which(two: Two) -> None:
    first, second = two.ranks
    second.beat(leaving=False)
    second.announce_loss(258)
    second.close()
    with pytest.raises(LostError, match="rank 258: rank 1 lost it") as error:
        first.beat(leaving=False)
    assert error.value.rank == 258
