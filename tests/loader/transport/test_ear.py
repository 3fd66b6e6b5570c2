import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from graphfeed.loader.transport import ear
from graphfeed.loader.transport.ear import Ear, Patience
from graphfeed.loader.transport.thread_channel import Closed

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield here, there
    here.close()
    there.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that what each look finds is taken from, the last first; looks take no time."""
    found: list[bool] = []
    monkeypatch.setattr(ear, "spin", lambda request, microseconds: found.pop())
    return found


def wait(patience: Patience, clock: list[float], seconds: float) -> None:
    patience.begin()
    clock[0] += seconds
    patience.end()


def test_one_looks_only_after_a_brief_wait(monkeypatch: pytest.MonkeyPatch, looks: list[bool]) -> None:
    """What nobody put into the list would raise when it is taken out."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    patience = Patience(0)
    wait(patience, clock, 1.0)
    wait(patience, clock, 1.0)
    wait(patience, clock, 2e-4)
    looks[:] = [True]
    wait(patience, clock, 5e-5)
    looks[:] = [False]
    wait(patience, clock, 2e-4)
    assert not looks
    wait(patience, clock, 1.0)


@pytest.mark.parametrize("brief", [False, True])
def test_a_record_comes_awake_and_asleep(ends: tuple[socket.socket, socket.socket], brief: bool) -> None:
    here, there = ends
    hearing = Ear(here)
    hearing.patience.brief = brief
    there.send(b"abc")
    record = np.zeros(10, np.uint8)
    assert hearing.hear(record, 10) == (3, None)
    assert record[:3].tobytes() == b"abc"


@pytest.mark.parametrize("brief", [False, True])
def test_limits_and_ends_hold_awake_and_asleep(ends: tuple[socket.socket, socket.socket], brief: bool) -> None:
    here, there = ends
    hearing = Ear(here)
    record = np.zeros(10, np.uint8)
    for seconds in (0, 0.01):
        hearing.patience.brief = brief
        with pytest.raises(TimeoutError, match=f"nothing came for {seconds:g} s"):
            hearing.hear(record, seconds)
    hearing.patience.brief = brief
    there.close()
    assert hearing.hear(record, 10) == (0, None)
    hearing.patience.brief = brief
    here.close()
    with pytest.raises(Closed, match="this end was closed"):
        hearing.hear(record, 10)


def test_nobody_looks_where_nobody_waits(ends: tuple[socket.socket, socket.socket], looks: list[bool]) -> None:
    hearing = Ear(ends[0])
    hearing.patience.brief = True
    with pytest.raises(TimeoutError, match="nothing came for 0 s"):
        hearing.hear(np.zeros(10, np.uint8), 0)
    assert hearing.patience.brief
