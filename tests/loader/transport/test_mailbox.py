import contextlib
import itertools
import multiprocessing
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.transport.mailbox import INLINE_BYTES, Inbox, Outbox, open_mailbox, require_linux
from graphfeed.loader.transport.pickling import decode, encode
from graphfeed.loader.transport.record_socket import CHUNK_BYTES, RECORD_BYTES, RecordSocket
from graphfeed.loader.transport.thread_channel import Closed
from tests.refusals import check_refused

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SIZES = [0, 1, 100, INLINE_BYTES, 100_000, 1_000_000, 3_000_000]
ARENA = 1 << 21
"""The largest size needs a separate file; so does the second of two of the second largest, if both are kept."""


@pytest.fixture
def ends() -> Iterator[tuple[Outbox, Inbox]]:
    outbox, inbox = open_mailbox(ARENA)
    yield outbox, inbox
    outbox.close()
    inbox.close()


def payload(number: int, size: int) -> Any:
    return (np.arange(size) + number).astype(np.uint8)


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


@given(st.lists(st.lists(st.sampled_from(SIZES), max_size=3), max_size=12), st.integers(0, 4))
def test_messages_come_once_in_order_and_whole(messages: list[list[int]], kept: int) -> None:
    """Whatever their sizes, and however many of them are kept."""
    outbox, inbox = open_mailbox(ARENA)
    shelf: list[tuple[int, list[int], list[Any]]] = []
    try:
        for number, sizes in enumerate(messages):
            outbox.send(b"%d" % number, [payload(number, size) for size in sizes])
            header, buffers = inbox.receive(10)
            assert header == b"%d" % number
            assert [value.ctypes.data % 64 for value in buffers if value.size] == [0] * sum(size > 0 for size in sizes)
            shelf.append((number, sizes, buffers))
            del buffers
            del shelf[: max(0, len(shelf) - kept - 1)]
            for old, its, values in shelf:
                assert [value.size for value in values] == its
                assert all(np.array_equal(value, payload(old, value.size)) for value in values)
    finally:
        outbox.close()
        inbox.close()


def test_what_the_receiver_keeps_never_stalls_the_sender(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    before = files()
    kept = []
    for number in range(20):
        outbox.send(b"", [payload(number, 1_000_000)], timeout_seconds=10)
        kept.append(inbox.receive(10)[1][0])
    assert all(np.array_equal(value, payload(number, 1_000_000)) for number, value in enumerate(kept))
    assert files() == before, "memory that is kept takes no descriptor"


def test_memory_is_used_again(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    places = set()
    for number in range(20):
        outbox.send(b"", [payload(number, 100_000)])
        places.add(inbox.receive(10)[1][0].ctypes.data)
    assert len(places) == 1


def test_it_can_be_waited_for_with_others(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    assert select.select([inbox], [], [], 0)[0] == []
    outbox.send(b"x")
    assert select.select([inbox], [], [], 10)[0] == [inbox]
    assert inbox.receive(0) == (b"x", [])


def test_an_empty_one_times_out_and_waiting_takes_no_time_of_a_core(ends: tuple[Outbox, Inbox]) -> None:
    for seconds in (0, 0.2):
        start, busy = time.monotonic(), time.thread_time()
        with pytest.raises(TimeoutError, match=rf"nothing came for {seconds:g} s"):
            ends[1].receive(seconds)
        assert time.monotonic() - start >= seconds
        assert time.thread_time() - busy < 0.05


@pytest.mark.parametrize("size", [10, INLINE_BYTES, 100_000])
def test_a_full_one_times_out_and_loses_nothing(ends: tuple[Outbox, Inbox], size: int) -> None:
    outbox, inbox = ends
    numbers = itertools.count()

    def send_on() -> None:
        for number in numbers:
            outbox.send(b"%d" % number, [payload(number, size)], timeout_seconds=0.05)

    with pytest.raises(TimeoutError, match=r"queue was full for 0\.05 s"):
        send_on()
    sent = next(numbers) - 1
    for number in range(sent):
        header, (value,) = inbox.receive(10)
        assert header == b"%d" % number
        assert np.array_equal(value, payload(number, size))
    outbox.send(b"more")
    assert inbox.receive(10)[0] == b"more"


def test_what_was_sent_before_the_end_can_be_received_and_sending_to_nobody_fails(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    for size in SIZES:
        outbox.send(b"", [payload(0, size)])
    outbox.close()
    outbox.close()
    assert [inbox.receive(10)[1][0].size for _ in SIZES] == SIZES
    for _ in range(2):
        with pytest.raises(Closed, match="sender has closed"):
            inbox.receive(10)
    inbox.close()
    for end in (lambda: outbox.send(b""), lambda: inbox.receive(1)):
        with pytest.raises(Closed, match="this end was closed"):
            end()
    left, gone = open_mailbox(ARENA)
    gone.close()
    for size in (1, 100_000, 3_000_000):
        with pytest.raises(Closed, match="receiver has closed"):
            left.send(b"", [payload(0, size)])
    left.close()


def test_a_blocked_sender_wakes_when_the_receiver_goes(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    failures: list[type[BaseException]] = []

    def send_for_ever() -> None:
        try:
            while True:
                outbox.send(bytes(10_000), timeout_seconds=30)
        except Closed as error:
            failures.append(type(error))

    thread = threading.Thread(target=send_for_ever)
    thread.start()
    inbox.receive(10)
    inbox.close()
    thread.join(10)
    assert failures == [Closed]


@pytest.mark.parametrize("size", [100_000, 3_000_000], ids=["a block", "a file"])
def test_too_many_open_files_are_named_and_what_follows_arrives_or_is_named_too(
    ends: tuple[Outbox, Inbox], size: int
) -> None:
    outbox, inbox = ends
    outbox.send(b"", [payload(0, size)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        occupied = []
        with contextlib.suppress(OSError):
            while True:
                occupied.append(os.dup(0))
        with pytest.raises(OSError, match="too many open files"):
            inbox.receive(10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in occupied:
            os.close(descriptor)
    outbox.send(b"more", [payload(0, 100_000)])
    if size == 100_000:  # is in the arena that did not arrive
        with pytest.raises(OSError, match="did not arrive: this process has too many open files"):
            inbox.receive(10)
        outbox.send(b"more")
    assert inbox.receive(10)[0] == b"more"


def echo(inbox: Inbox, outbox: Outbox) -> None:
    """Send all messages back, until the end."""
    torch.set_num_threads(1)
    while True:
        try:
            value = decode(*inbox.receive(60))
        except Closed:
            return
        outbox.send(*encode(value))


def produce(outbox: Outbox, inherited: Inbox) -> None:
    """Send until the receiver has closed its end."""
    inherited.close()
    number = 0
    while True:
        outbox.send(b"%d" % number, [payload(number, SIZES[number % len(SIZES)])])
        number += 1


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=[pytest.mark.slow, pytest.mark.thorough]), "fork"])
def test_both_ends_move_to_a_child_process(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    there, inbox = open_mailbox(ARENA)
    outbox, back = open_mailbox(ARENA)
    child = context.Process(target=echo, args=(inbox, outbox))
    child.start()
    inbox.close()
    outbox.close()
    for size in SIZES:
        there.send(*encode({"x": torch.from_numpy(payload(3, size))}))
        assert decode(*back.receive(60))["x"].equal(torch.from_numpy(payload(3, size)))
    if method != "fork":  # a fork also inherits the other sides
        there.close()
    else:
        child.kill()
    with pytest.raises(Closed):
        back.receive(60)
    child.join(60)
    assert child.exitcode == (0 if method != "fork" else -signal.SIGKILL)
    there.close()
    back.close()


def test_a_sender_that_is_killed_is_noticed() -> None:
    outbox, inbox = open_mailbox(ARENA)
    child = multiprocessing.get_context("fork").Process(target=produce, args=(outbox, inbox))
    child.start()
    outbox.close()
    kept = [inbox.receive(30) for _ in range(20)]
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    with contextlib.suppress(Closed):
        while True:
            kept.append(inbox.receive(30))
    child.join(10)
    for number, (header, (value,)) in enumerate(kept):
        assert header == b"%d" % number
        assert np.array_equal(value, payload(number, SIZES[number % len(SIZES)]))
    inbox.close()


def test_other_systems_and_a_negative_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_linux()
    monkeypatch.delattr(os, "memfd_create")
    rows: list[Any] = [
        (require_linux, RuntimeError, "channels between processes need Linux; use threads"),
        (lambda: Outbox(None, -1), ValueError, "arena_bytes must be 0 or more, but is -1"),  # type: ignore[arg-type]
    ]
    check_refused(rows)


def test_records_keep_their_bounds_lie_at_cache_lines_and_stay_when_others_come() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.closing(here), contextlib.closing(there):
        sender, receiver = RecordSocket(here), RecordSocket(there)
        sent = [bytes([size % 251]) * size for size in (1, 64, 65, 1000, RECORD_BYTES, 3)]
        sent += [b"a" * RECORD_BYTES] * (CHUNK_BYTES // RECORD_BYTES)
        kept = []
        for record in sent:
            sender.send(record, None, 10)
            received, _ = receiver.receive(10)
            assert received.ctypes.data % 64 == 0
            kept.append(received)
        assert [record.tobytes() for record in kept] == sent
