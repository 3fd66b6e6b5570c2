import queue
from collections.abc import Iterator

import pytest
import torch

from graphfeed.channels.mp_channel import MpChannel

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def channel() -> Iterator[MpChannel]:
    with MpChannel(maxsize=2) as channel:
        yield channel


def test_it_is_a_queue(channel: MpChannel) -> None:
    for number in range(2):
        channel.send({"x": torch.tensor(number)})
    assert channel.qsize() == 2
    assert [int(channel.recv()["x"]), int(channel.recv(timeout=5)["x"])] == [0, 1]


def test_a_full_one_and_an_empty_one_raise_as_a_queue_does(channel: MpChannel) -> None:
    with pytest.raises(queue.Empty, match="no message came for 0 s"):
        channel.recv(block=False)
    with pytest.raises(queue.Empty, match=r"no message came for 0\.02 s"):
        channel.recv(timeout=0.02)
    for _ in range(2):
        channel.send({}, block=False)
    with pytest.raises(queue.Full, match="no room for 0 s"):
        channel.send({}, block=False)
    with pytest.raises(queue.Full, match=r"no room for 0\.02 s"):
        channel.send({}, timeout=0.02)
    assert channel.recv(block=False) == {}


def test_by_default_it_takes_what_comes() -> None:
    with MpChannel() as channel:
        for number in range(300):
            channel.send({"x": torch.full((100,), number)})
        assert [int(channel.recv()["x"][0]) for _ in range(300)] == list(range(300))
