"""Messages between two that are sometimes awake and sometimes asleep when the next one comes."""

import multiprocessing
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfeed.loader.transport import ear
from graphfeed.loader.transport.mailbox import Inbox, Outbox, open_mailbox
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops import spin

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

FORK = multiprocessing.get_context("fork")
PAUSES = [0.0, 0.0, 0.0, 5e-5, 1e-4, 3e-4, 2e-3]
"""Below, about and above what one waits for awake."""


def answer(inbox: Inbox, outbox: Outbox) -> None:
    """Send back what comes, after as many seconds as it says."""
    while True:
        try:
            header, buffers = inbox.receive(60)
        except Closed:
            return
        time.sleep(float(np.frombuffer(header)[1]))
        outbox.send(header, buffers)


def wait_for_ever(inbox: Inbox, outbox: Outbox) -> None:
    outbox.send(b"")
    time.sleep(60)


def start(work: Any) -> tuple[Any, Outbox, Inbox]:
    """Run a function in a process with the other ends."""
    there, inbox = open_mailbox(1 << 20)
    outbox, back = open_mailbox(1 << 20)
    child = FORK.Process(target=closing, args=(work, inbox, outbox, there, back))
    child.start()
    inbox.close()
    outbox.close()
    return child, there, back


def closing(work: Any, inbox: Inbox, outbox: Outbox, *others: Any) -> None:
    """Work without the ends of the parent that a fork inherits."""
    for other in others:
        other.close()
    work(inbox, outbox)


STEP = st.tuples(
    st.sampled_from(PAUSES), st.sampled_from(PAUSES), st.sampled_from([0, 100, 10_000, 50_000]), st.integers(1, 4)
)


@settings(max_examples=20)
@given(st.lists(STEP, max_size=30))
def test_nothing_is_missed_however_the_two_hurry(steps: list[tuple[float, float, int, int]]) -> None:
    """Each step: how long this side and the other side pause, the size of the messages, and how many are on the way."""
    child, there, back = start(answer)
    number = 0
    for here, elsewhere, size, count in steps:
        for ahead in range(count):
            there.send(np.array([number + ahead, elsewhere]).tobytes(), [np.full(size, number % 256, np.uint8)])
        for _ in range(count):
            time.sleep(here)
            header, (value,) = back.receive(30)
            assert np.frombuffer(header).tolist() == [number, elsewhere]
            assert value.size == size
            number += 1
    there.close()
    with pytest.raises(Closed, match="sender has closed its end, or is dead"):
        back.receive(30)
    child.join(30)
    assert child.exitcode == 0
    back.close()


@pytest.mark.parametrize("brief", [True, False])
def test_a_peer_that_is_killed_is_noticed(brief: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver looks awake for so long, or sleeps so long, that only the end of its peer lets the test pass."""
    child, there, back = start(wait_for_ever)
    back.receive(30)
    monkeypatch.setattr(ear, "spin", lambda request, microseconds: spin(request, 10**9, 10**9))
    back.ear.patience.brief = brief
    threading.Timer(0.1, child.kill).start()
    with pytest.raises(Closed, match="sender has closed its end, or is dead"):
        back.receive(60)
    child.join(30)
    there.close()
    back.close()


def test_an_idle_one_takes_no_time_of_a_core() -> None:
    """However short the waits before were."""
    outbox, inbox = open_mailbox()
    inbox.ear.patience.brief = True
    with pytest.raises(TimeoutError, match="nothing came"):
        inbox.receive(0.01)
    before = time.thread_time()
    for _ in range(5):
        with pytest.raises(TimeoutError, match="nothing came"):
            inbox.receive(0.1)
    assert time.thread_time() - before < 0.1
    outbox.close()
    inbox.close()
