import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from graphfeed.channels.channel_client import PeerError
from graphfeed.channels.sampler_receiver import SamplerReceiver
from graphfeed.channels.sampler_sender import SamplerSender

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def receiver() -> Iterator[SamplerReceiver]:
    receiver = SamplerReceiver(None, "127.0.0.1:0", num_sender=2, timeout=20)
    yield receiver
    receiver.close()


@contextmanager
def in_threads(*works: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def work(address: str, number: int, count: int, epochs: int = 1) -> None:
    """Send so many samples an epoch, each epoch at once after the other."""
    sender = SamplerSender({0: address})
    for epoch in range(epochs):
        for step in range(count):
            sender.send({"of": torch.tensor([number, epoch, step]), "data": torch.full((20_000,), step)}, 0)
        sender.signal(0)
    sender.close()


def found(receiver: SamplerReceiver) -> list[list[int]]:
    samples = list(receiver)
    assert all(bool((sample["data"] == sample["of"][2]).all()) for sample in samples)
    return [sample["of"].tolist() for sample in samples]


def test_an_epoch_has_all_samples_in_order_for_each_sender(receiver: SamplerReceiver) -> None:
    with in_threads(*(partial(work, receiver.address, number, 30) for number in range(2))):
        samples = found(receiver)
    assert len(samples) == 60
    for number in range(2):
        assert [sample for sample in samples if sample[0] == number] == [[number, 0, step] for step in range(30)]


def test_epochs_do_not_mix_however_fast_a_sender_is(receiver: SamplerReceiver) -> None:
    with in_threads(partial(work, receiver.address, 0, 2, 3), partial(work, receiver.address, 1, 60, 3)):
        for epoch in range(3):
            samples = found(receiver)
            assert len(samples) == 62
            assert {sample[1] for sample in samples} == {epoch}


def test_one_that_leaves_before_it_signals_is_noticed(receiver: SamplerReceiver) -> None:
    def leave() -> None:
        SamplerSender({0: receiver.address}).send({"x": torch.ones(2)}, 0)

    with in_threads(leave), pytest.raises(PeerError, match=r"sender 127\.0\.0\.1:\d+ left after 1 samples"):
        list(receiver)


def test_one_that_is_cut_off_is_noticed(receiver: SamplerReceiver) -> None:
    def break_off() -> None:
        sender = SamplerSender({0: receiver.address})
        sender.sockets.pop(0).close()

    with (
        in_threads(break_off),
        pytest.raises(PeerError, match="was cut off before it signalled: the sender has closed"),
    ):
        list(receiver)


def test_silence_has_a_limit() -> None:
    receiver = SamplerReceiver(None, "127.0.0.1:0", num_sender=2, timeout=0.05)
    with pytest.raises(TimeoutError, match=r"no sample came for 0\.05 s; 0 of 2 senders have signalled, and no other"):
        list(receiver)
    receiver.close()
    receiver.close()


def test_a_sender_that_stops_sending_is_named() -> None:
    receiver, senders = SamplerReceiver(None, "127.0.0.1:0", timeout=1.0), list[SamplerSender]()
    silent = r"0 of 1 senders have signalled, and sender 127\.0\.0\.1:\d+ is connected"
    connecting = in_threads(lambda: senders.append(SamplerSender({0: receiver.address})))
    with connecting, pytest.raises(TimeoutError, match=silent):
        list(receiver)
    senders[0].close()
    receiver.close()


def test_callers_that_prove_nothing_keep_nobody_waiting(
    receiver: SamplerReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphfeed.channels.sampler_receiver.GREETING_SECONDS", 0.2)
    place = ("127.0.0.1", int(receiver.address.rpartition(":")[2]))
    strangers = [socket.create_connection(place) for _ in range(80)]  # more than greetings at once
    for number, stranger in enumerate(strangers):
        stranger.sendall([b"", b"graph", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1000][number % 4])
    begin = time.monotonic()
    with in_threads(*(partial(work, receiver.address, number, 5) for number in range(2))):
        assert len(found(receiver)) == 10
    assert time.monotonic() - begin < 5  # one after the other, they would take 4 seconds and more
    for stranger in strangers:
        stranger.close()
    assert len(receiver.connections) == 2


def test_a_caller_that_is_slow_to_prove_it_is_let_in(receiver: SamplerReceiver) -> None:
    sender = threading.Thread(target=partial(work, receiver.address, 0, 1))
    sender.start()
    sender.join(1.0)  # it waits for the receiver, which is busy meanwhile
    with in_threads(partial(work, receiver.address, 1, 1)):
        assert len(found(receiver)) == 2
    sender.join(20)


def test_what_is_left_of_an_epoch_can_be_taken_later(receiver: SamplerReceiver) -> None:
    with in_threads(*(partial(work, receiver.address, number, 3) for number in range(2))):
        first = next(iter(receiver))
        assert len([first, *receiver]) == 6


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="num_sender must be 1 or more, but is 0"):
        SamplerReceiver(None, "127.0.0.1:0", 0)
    with pytest.raises(ValueError, match="net_type must be 'socket', but is 'mpi'"):
        SamplerReceiver(None, "127.0.0.1:0", 1, "mpi")
    with pytest.raises(ValueError, match="can be reached by others"):
        SamplerReceiver(None, "0.0.0.0:0", token="")
