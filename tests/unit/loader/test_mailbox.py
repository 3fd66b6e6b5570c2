import contextlib
import multiprocessing
import os
import resource
import select
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.transport import Closed, Inbox, Outbox, decode, encode, open_mailbox, require_linux
from tests.kinds.digests import assert_same

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SIZES = [0, 1, 100, 16_384, 100_000, 1_000_000, 3_000_000]
ARENA = 1 << 21
"""The largest size needs a separate file; so does the second of two of the second largest, if both are kept."""


Ends = tuple[Outbox, Inbox]


@pytest.fixture
def ends() -> Iterator[Ends]:
    outbox, inbox = open_mailbox(ARENA)
    yield outbox, inbox
    outbox.close()
    inbox.close()


def payload(number: int, size: int) -> Any:
    return (np.arange(size) + number).astype(np.uint8)


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


def test_it_can_be_waited_for_with_others(ends: Ends) -> None:
    outbox, inbox = ends
    assert select.select([inbox], [], [], 0)[0] == []
    outbox.send(b"x")
    assert select.select([inbox], [], [], 10)[0] == [inbox]
    assert inbox.receive(0) == (b"x", [])


def test_what_was_sent_before_the_end_can_be_received_and_sending_to_nobody_fails(ends: Ends) -> None:
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


@pytest.mark.parametrize("size", [100_000, 3_000_000], ids=["a block", "a file"])
def test_too_many_open_files_are_named_and_what_follows_arrives_or_is_named_too(ends: Ends, size: int) -> None:
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


def test_what_the_receiver_keeps_never_stalls_the_sender_and_takes_no_descriptor(ends: Ends) -> None:
    outbox, inbox = ends
    before = len(os.listdir("/proc/self/fd"))
    kept = []
    for number in range(20):
        outbox.send(b"", [payload(number, 1_000_000)], timeout_seconds=10)
        kept.append(inbox.receive(10)[1][0])
    assert all(np.array_equal(value, payload(number, 1_000_000)) for number, value in enumerate(kept))
    assert len(os.listdir("/proc/self/fd")) <= before  # what earlier tests left may be freed


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_linux()
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(RuntimeError, match="channels between processes need Linux; use threads"):
        require_linux()


@dataclass
class Holder:
    name: str
    parts: Any


VALUES: list[Any] = [
    torch.eye(3).to_sparse(),
    torch.nn.Parameter(torch.ones(2)),
    torch.rand(2, 3, requires_grad=True),
    torch.rand(0, requires_grad=True),
    torch.empty(3, device="meta"),
    np.arange(12).reshape(3, 4).T,
    np.array(3.5),
    np.zeros((0, 2), np.int16),
    np.array(["2024-01-01"], dtype="datetime64[s]"),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array(["text", None], dtype=object),
    np.array([b"ab", b"c"]),
    np.frombuffer(b"read-only", dtype=np.uint8),
    Holder("a", {"x": [torch.ones(2), (None, 1 << 80)], 3: Counter("aab"), "b": bytearray(b"z")}),
    [torch.zeros(10_000), torch.zeros(1_000_000), np.zeros(10_000), torch.zeros(100, 100).T],
]


def test_values_of_all_kinds_arrive_as_they_were_sent(ends: Ends) -> None:
    outbox, inbox = ends

    def through(value: Any) -> Any:
        outbox.send(*encode(value))
        return decode(*inbox.receive(10))

    for value in VALUES:
        found = through(value)
        assert type(found) is type(value)
        if isinstance(value, torch.Tensor):
            assert (found.dtype, found.device, found.requires_grad) == (value.dtype, value.device, value.requires_grad)
            assert found.is_leaf
            assert found.is_meta or torch.equal(found.detach().to_dense(), value.detach().to_dense())
        elif isinstance(value, np.ndarray):
            assert (found.dtype, found.tolist()) == (value.dtype, value.tolist())
        elif isinstance(value, list):
            assert_same(found, value)
        else:
            assert found.name == value.name
            assert_same(found.parts["x"], value.parts["x"])
            assert (found.parts[3], found.parts["b"]) == (value.parts[3], value.parts["b"])
    first, second = through([VALUES[1]] * 2)
    assert first is second, "one tensor in two places stays one"
