import gc
from collections.abc import Iterator

import numpy as np
import pytest

from graphfeed.channels.exchange import Exchange
from graphfeed.channels.hub import Hub
from graphfeed.channels.line import EndOfEpoch, Line, PeerError, Receiver, Sender
from graphfeed.loader.transport.thread_channel import Closed

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(Exchange(capacity=2, limit_bytes=1 << 24))
    yield hub
    hub.close()
    hub.thread.join(10)


def test_messages_of_every_size_come_through(hub: Hub) -> None:
    sender, receiver = Sender(hub.address, 1 << 20), Receiver(hub.address)
    for size in (0, 10, 20_000, 500_000, 3_000_000):
        data = np.arange(size).astype(np.uint8)
        assert sender.send(b"header", [data], 10)
        received = receiver.receive(10)
        assert received is not None
        assert received[0] == b"header"
        assert np.array_equal(received[1][0], data)
        assert received[1][0].ctypes.data % 64 == 0
    sender.close()
    receiver.close()


def test_without_room_or_messages_they_say_so_and_their_memory_is_used_again(hub: Hub) -> None:
    sender, receiver = Sender(hub.address, 1 << 20), Receiver(hub.address)
    assert receiver.receive(0.01) is None
    data = np.zeros(400_000, np.uint8)
    assert [sender.send(b"", [data], 0.01) for _ in range(5)] == [True, True, False, False, False]
    assert sender.outbox.arena is not None
    assert len(sender.outbox.arena.out) == 2
    sender.close()
    receiver.close()


def test_arenas_are_mapped_once_each(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.channels.line.MAPPINGS", 2)
    receiver = Receiver(hub.address)
    kept = []
    for number in range(4):
        sender = Sender(hub.address, 1 << 20)
        for _ in range(2):
            sender.send(b"", [np.full(20_000, number, np.uint8)], 10)
            received = receiver.receive(10)
            assert received is not None
            kept.append(received[1][0])
        sender.close()
    assert len(receiver.readings) == 2
    assert [int(data.min()) for data in kept] == [0, 0, 1, 1, 2, 2, 3, 3]
    receiver.close()


def test_leaving_is_no_failure_but_an_error_is(hub: Hub) -> None:
    receiver = Receiver(hub.address)
    quiet, loud = Sender(hub.address, 0), Sender(hub.address, 0)
    for sender in (quiet, loud):
        sender.send(b"", [], 10)
        receiver.receive(10)
    quiet.close()
    loud.close("KeyError: 'x'")
    with pytest.raises(PeerError, match=r"producer process \d+ failed: KeyError: 'x'"):
        receiver.receive(10)
    assert receiver.receive(0.01) is None
    receiver.close()


def test_a_connection_that_is_dropped_says_goodbye(hub: Hub) -> None:
    sender, receiver = Sender(hub.address, 0), Receiver(hub.address)
    sender.send(b"", [], 10)
    receiver.receive(10)
    del sender
    gc.collect()
    assert receiver.receive(0.05) is None
    receiver.close()


def test_the_end_of_an_epoch_is_told(hub: Hub) -> None:
    sender, receiver = Sender(hub.address, 0), Receiver(hub.address)
    sender.end()
    with pytest.raises(EndOfEpoch, match="epoch 0 is over"):
        receiver.receive(10)
    sender.close()
    receiver.close()


def test_nobody_to_connect_to() -> None:
    hub = Hub(Exchange(capacity=2, limit_bytes=100))
    line = Line(hub.address)
    hub.close()
    hub.thread.join(10)
    with pytest.raises(Closed, match="the process that made it closed it or is gone"):
        line.ask(23)
    line.close()
    with pytest.raises(Closed, match="the process that made it closed it or is gone"):
        Line(hub.address)
