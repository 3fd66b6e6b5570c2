import itertools
import os
import socket
import time
from collections.abc import Iterator

import pytest

from graphfeed.loader.transport.record_socket import CHUNK_BYTES, RECORD_BYTES, RecordSocket
from graphfeed.loader.transport.thread_channel import Closed

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def ends() -> Iterator[tuple[RecordSocket, RecordSocket]]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield RecordSocket(here), RecordSocket(there)
    here.close()
    there.close()


def test_records_keep_their_bounds_and_what_was_received_stays(ends: tuple[RecordSocket, RecordSocket]) -> None:
    here, there = ends
    sizes = [1, 64, 65, 1000, RECORD_BYTES, 3, *([RECORD_BYTES] * (CHUNK_BYTES // RECORD_BYTES))]
    kept = []
    for number, size in enumerate(sizes):
        here.send(bytes([number]) * size, None, 10)
        record, descriptor = there.receive(10)
        assert descriptor is None
        assert record.ctypes.data % 64 == 0
        kept.append(record)
    assert [record.tobytes() for record in kept] == [bytes([number]) * size for number, size in enumerate(sizes)]


def test_a_descriptor_comes_along(ends: tuple[RecordSocket, RecordSocket]) -> None:
    here, there = ends
    source, sink = os.pipe()
    here.send(b"abc", sink, 10)
    os.close(sink)
    record, descriptor = there.receive(10)
    assert descriptor is not None
    assert record.tobytes() == b"abc"
    assert not os.get_inheritable(descriptor)
    os.write(descriptor, b"through")
    assert os.read(source, 10) == b"through"
    os.close(descriptor)
    os.close(source)


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_every_wait_has_a_limit(ends: tuple[RecordSocket, RecordSocket], seconds: float) -> None:
    here, there = ends
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=f"nothing came for {seconds:g} s"):
        there.receive(seconds)
    numbers = itertools.count()
    with pytest.raises(TimeoutError, match=f"queue was full for {seconds:g} s"):
        any(here.send(b"%10000d" % number, None, seconds) for number in numbers)  # type: ignore[func-returns-value]
    assert time.monotonic() - start >= 2 * seconds
    received = [int(there.receive(0)[0].tobytes()) for _ in range(next(numbers) - 1)]
    assert received == list(range(len(received)))
    with pytest.raises(TimeoutError, match="nothing came"):
        there.receive(0)


def test_waiting_takes_no_time_of_a_core(ends: tuple[RecordSocket, RecordSocket]) -> None:
    here, there = ends
    for _ in range(10):
        here.send(b"x", None, 10)
        there.receive(10)
    before = time.thread_time()
    with pytest.raises(TimeoutError, match="nothing came"):
        there.receive(0.5)
    assert time.thread_time() - before < 0.1


def test_the_end_comes_after_all_records(ends: tuple[RecordSocket, RecordSocket]) -> None:
    here, there = ends
    here.send(b"last", None, 10)
    here.close()
    assert there.receive(10)[0].tobytes() == b"last"
    for _ in range(2):
        with pytest.raises(Closed, match="sender has closed its end, or is dead"):
            there.receive(10)
    with pytest.raises(Closed, match="receiver has closed its end, or is dead"):
        there.send(b"x", None, 10)
    for call in (lambda: here.send(b"x", None, 10), lambda: here.receive(10)):
        with pytest.raises(Closed, match="this end was closed"):
            call()
