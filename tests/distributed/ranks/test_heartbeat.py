"""Signs of life, and what ends a wait: a rank that is silent or leaves, a program that fails, a call that hangs."""

import multiprocessing
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from graphfeed.distributed.ranks import heartbeat, program_end
from graphfeed.distributed.ranks.heartbeat import Heartbeat, LostError
from graphfeed.distributed.ranks.meeting_point import call_within


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


@pytest.fixture
def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program of this process not have failed."""
    monkeypatch.setattr(program_end, "FAILED", threading.Event())
    monkeypatch.delattr(sys, "last_value", raising=False)


ENDS = [(ValueError(), True), (SystemExit(1), True), (SystemExit(0), False)]


@pytest.mark.usefixtures("begin_anew")
@pytest.mark.parametrize(("error", "fails"), ENDS)
def test_a_program_fails_by_an_exception_or_an_exit_code_also_under_multiprocessing(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, fails: bool
) -> None:
    program_end.note_end()
    assert not program_end.program_failed()
    try:
        raise error
    except BaseException:
        program_end.note_end()
    assert program_end.program_failed() == fails
    monkeypatch.setattr(program_end, "FAILED", threading.Event())
    program_end.note_unwind(program_end.note_unwind.__code__, 0, error)
    assert not program_end.program_failed()
    program_end.note_unwind(multiprocessing.Process.run.__code__, 0, error)
    assert program_end.program_failed() == fails


@pytest.mark.usefixtures("begin_anew")
def test_functions_of_python_stay_as_they_are() -> None:
    before = sys.exit, sys.excepthook, threading.excepthook
    program_end.watch_program()
    assert (sys.exit, sys.excepthook, threading.excepthook) == before


@pytest.mark.usefixtures("begin_anew")
def test_an_error_in_an_interactive_session_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    assert program_end.program_failed()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not program_end.program_failed()


def test_what_the_function_returns_or_raises_comes_through() -> None:
    assert call_within(20, lambda: 3, "") == 3
    with pytest.raises(ZeroDivisionError):
        call_within(20, lambda: 1 // 0, "")


def test_a_function_that_does_not_return_is_given_up() -> None:
    forever = threading.Event()
    with pytest.raises(TimeoutError, match="the store did not answer"):
        call_within(0.05, forever.wait, "the store did not answer")
    forever.set()
