"""Laws of all carriers of samples: threads' channels, mailboxes, channels of processes, senders over a network."""

import itertools
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch

from graphfeed.channels import Closed, MpChannel, PeerError, ShmChannel
from graphfeed.distributed import SamplerReceiver, SamplerSender
from graphfeed.loader.transport import decode, encode, open_mailbox
from graphfeed.loader.transport.thread_channel import ThreadChannel
from tests.kinds.digests import assert_same
from tests.stand_ins.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
Sample = dict[str, torch.Tensor]


class Carrier(NamedTuple):
    """Functions of both ends, which take a time limit in seconds."""

    send: Callable[[Sample, float], object]
    receive: Callable[[float], Sample]
    leave: Callable[[], None]
    """Close the receiver's end."""


@contextmanager
def thread_channel() -> Iterator[Carrier]:
    channel = ThreadChannel(capacity=2)

    def send(sample: Sample, seconds: float) -> None:
        if not channel.put(sample):
            raise Closed

    yield Carrier(send, channel.get, channel.close)


@contextmanager
def mailbox() -> Iterator[Carrier]:
    outbox, inbox = open_mailbox(1 << 21)
    try:
        yield Carrier(
            lambda sample, seconds: outbox.send(*encode(sample), timeout_seconds=seconds),
            lambda seconds: decode(*inbox.receive(seconds)),
            inbox.close,
        )
    finally:
        outbox.close()
        inbox.close()


@contextmanager
def shm_channel() -> Iterator[Carrier]:
    with ShmChannel(2, "1MB") as channel:
        yield Carrier(
            lambda sample, seconds: channel.send(sample, timeout_ms=int(1000 * seconds)),
            lambda seconds: channel.recv(timeout_ms=int(1000 * seconds)),
            channel.close,
        )


@contextmanager
def mp_channel() -> Iterator[Carrier]:
    with MpChannel(maxsize=2) as channel:
        yield Carrier(
            lambda sample, seconds: channel.send(sample, timeout=seconds),
            lambda seconds: channel.recv(timeout=seconds),
            channel.close,
        )


@contextmanager
def network() -> Iterator[Carrier]:
    pytest.importorskip("pyarrow")
    with SamplerReceiver(None, "127.0.0.1:0") as receiver, SamplerSender({0: receiver.address}) as sender:
        samples = iter(receiver)

        def send(sample: Sample, seconds: float) -> None:
            sender.timeout = seconds
            sender.send(sample, 0)

        def receive(seconds: float) -> Sample:
            receiver.timeout = seconds
            return next(samples if seconds > 1 else iter(receiver))

        yield Carrier(send, receive, receiver.close)


KINDS: list[Callable[[], AbstractContextManager[Carrier]]] = [thread_channel, mailbox, shm_channel, mp_channel, network]
EACH = pytest.mark.parametrize("kind", KINDS)
SIZES = [0, 10, 20_000, 1000, 300_000]


def sample(number: int) -> Sample:
    """Return a sample whose values are those of its number; every fifth is large."""
    data = torch.full((SIZES[number % len(SIZES)],), number % 256, dtype=torch.uint8)
    return {"number": torch.tensor(number), "data": data, "t": torch.eye(3)[1:].T, "none": torch.zeros(0, 3)}


def check(found: Sample) -> int:
    number = int(found["number"])
    assert_same(found, sample(number))
    return number


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work)
    thread.start()
    yield thread
    thread.join(30)
    assert not thread.is_alive()


@EACH
def test_samples_come_once_whole_and_in_order_however_many_are_kept(kind: Any) -> None:
    kept: list[Sample] = []

    def send_all() -> None:
        for number in range(60):
            carrier.send(sample(number), 30)

    with kind() as carrier, in_thread(send_all):
        for number in range(60):
            kept.append(carrier.receive(30))
            assert [check(found) for found in kept] == list(range(max(0, number - 9), number + 1))
            del kept[:-9]
        kept[-1]["data"] += 1  # may be written to


@EACH
def test_a_slow_receiver_makes_the_sender_wait_and_nothing_is_lost(kind: Any) -> None:
    sent = itertools.count()

    def send_all() -> None:
        for _ in range(20):
            carrier.send({"number": torch.tensor(next(sent)), "data": torch.zeros(1 << 17)}, 30)

    with kind() as carrier, in_thread(send_all) as thread:
        assert int(carrier.receive(30)["number"]) == 0
        thread.join(0.3)
        assert thread.is_alive() or kind is mailbox, "a mailbox is bounded by its number of records"
        assert [int(carrier.receive(30)["number"]) for _ in range(19)] == list(range(1, 20))


@pytest.mark.parametrize("kind", [each for each in KINDS if each is not network])
def test_waits_have_limits_after_which_all_goes_on(kind: Any) -> None:
    numbers = itertools.count()

    def send_on() -> None:
        for number in numbers:
            carrier.send(sample(number), 0.05)

    with kind() as carrier:
        with pytest.raises((TimeoutError, queue.Empty), match=r"(nothing|no message) came for 0\.05 s"):
            carrier.receive(0.05)
        if kind is not thread_channel:  # the producer of a loader waits as long as the loop takes
            with pytest.raises((TimeoutError, queue.Full), match=r"full for 0\.05 s"):
                send_on()
            sent = next(numbers) - 1
            assert [check(carrier.receive(10)) for _ in range(sent)] == list(range(sent))
        carrier.send(sample(7), 10)
        assert check(carrier.receive(10)) == 7


@EACH
def test_closing_wakes_a_sender_and_a_receiver_that_wait(kind: Any) -> None:
    ended: queue.SimpleQueue[type[BaseException]] = queue.SimpleQueue()

    def repeat(step: Callable[[], object]) -> None:
        begun.set()
        try:
            while True:
                step()
        except (Closed, RuntimeError) as error:
            ended.put(type(error))

    for receives in (True, False):
        with kind() as carrier:
            begun = threading.Event()
            step = (lambda: carrier.receive(30)) if receives else (lambda: carrier.send(sample(4), 30))
            with in_thread(partial(repeat, step)):
                begun.wait(30)
                threading.Event().wait(0.1)
                carrier.leave()
            assert issubclass(ended.get(timeout=10), (Closed, RuntimeError))


def send_and_wait(carrier: Carrier) -> None:
    with suppress(BaseException):
        for number in range(2):
            carrier.send(sample(number), 30)
        signal.pause()


@pytest.mark.parametrize("kind", [shm_channel, mp_channel])
def test_a_killed_sender_is_named_after_what_it_sent(kind: Any) -> None:
    with kind() as carrier:
        child = multiprocessing.get_context("fork").Process(target=send_and_wait, args=(carrier,))
        child.start()
        assert [check(carrier.receive(30)) for _ in range(2)] == [0, 1]
        os.kill(child.pid or 0, signal.SIGKILL)
        with pytest.raises(PeerError, match=rf"producer process {child.pid} died"):
            carrier.receive(30)
        child.join(10)
        carrier.send(sample(3), 10)
        assert check(carrier.receive(10)) == 3, "the channel goes on"
        wait_until(lambda: not child.is_alive())
