import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from graphfeed.ops import poll_request, spin

LONG = 20_000_000
"""Microseconds: nobody may wait so long for what is there."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    yield here, there
    here.close()
    there.close()


def shut(there: socket.socket) -> None:
    there.close()


def say(there: socket.socket) -> None:
    there.send(b"x")


@pytest.mark.parametrize("happens", [say, shut])
def test_it_sees_what_is_there(
    pair: tuple[socket.socket, socket.socket], happens: Callable[[socket.socket], None]
) -> None:
    happens(pair[1])
    assert spin(poll_request(pair[0].fileno()), LONG)


def test_it_gives_up_in_time(pair: tuple[socket.socket, socket.socket]) -> None:
    request = poll_request(pair[0].fileno())
    spin(request, 0)
    start = time.perf_counter()
    assert not spin(request, 1000)
    assert time.perf_counter() - start < 10


def test_it_takes_nothing_out(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].send(b"x")
    request = poll_request(pair[0].fileno())
    assert spin(request, 0)
    assert spin(request, 0)
    assert pair[0].recv(10) == b"x"
    assert not spin(request, 0)


def test_several_may_be_looked_at_as_one(pair: tuple[socket.socket, socket.socket]) -> None:
    with selectors.EpollSelector() as selector:
        selector.register(pair[0], selectors.EVENT_READ)
        request = poll_request(selector.fileno())
        assert not spin(request, 0)
        pair[1].send(b"x")
        assert spin(request, LONG)


def test_one_that_is_closed_is_left_to_who_reads_it() -> None:
    here, there = os.pipe()
    os.close(there)
    os.close(here)
    assert spin(poll_request(here), LONG)
