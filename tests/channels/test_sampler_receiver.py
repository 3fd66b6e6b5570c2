import threading
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
    with pytest.raises(TimeoutError, match=r"no sample came for 0\.05 s; 0 of 2 senders have signalled"):
        list(receiver)
    receiver.close()
    receiver.close()


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
