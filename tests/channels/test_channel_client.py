import gc
from collections.abc import Iterator

import numpy as np
import pytest

from graphfeed.channels.bounded_queue_state import BoundedQueueState
from graphfeed.channels.broker import END_EPOCH, LOOK, Broker
from graphfeed.channels.channel_client import ChannelClient, EndOfEpoch, PeerError
from graphfeed.loader.transport.thread_channel import Closed

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BoundedQueueState(capacity=2, limit_bytes=1 << 24))
    yield broker
    broker.close()
    broker.thread.join(10)


def test_messages_of_every_size_come_through(broker: Broker) -> None:
    producer, consumer = ChannelClient(broker.address, 1 << 20), ChannelClient(broker.address)
    for size in (0, 10, 20_000, 500_000, 3_000_000):
        data = np.arange(size).astype(np.uint8)
        assert producer.put(b"header", [data], 10)
        received = consumer.get(10)
        assert received is not None
        assert received[0] == b"header"
        assert np.array_equal(received[1][0], data)
        assert received[1][0].ctypes.data % 64 == 0
    producer.close()
    consumer.close()


def test_without_room_or_messages_they_say_so_and_their_memory_is_used_again(broker: Broker) -> None:
    producer, consumer = ChannelClient(broker.address, 1 << 20), ChannelClient(broker.address)
    assert consumer.get(0.01) is None
    data = np.zeros(400_000, np.uint8)
    assert [producer.put(b"", [data], 0.01) for _ in range(5)] == [True, True, False, False, False]
    assert producer.outbox.arena is not None
    assert len(producer.outbox.arena.in_use) == 2
    producer.close()
    consumer.close()


def test_arenas_are_mapped_once_each(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.channels.channel_client.MAPPINGS", 2)
    consumer = ChannelClient(broker.address)
    kept = []
    for number in range(4):
        producer = ChannelClient(broker.address, 1 << 20)
        for _ in range(2):
            producer.put(b"", [np.full(20_000, number, np.uint8)], 10)
            received = consumer.get(10)
            assert received is not None
            kept.append(received[1][0])
        producer.close()
    assert len(consumer.reader.arenas) == 2
    assert [int(data.min()) for data in kept] == [0, 0, 1, 1, 2, 2, 3, 3]
    consumer.close()


def test_leaving_is_no_failure_but_an_error_is(broker: Broker) -> None:
    consumer = ChannelClient(broker.address)
    quiet, loud = ChannelClient(broker.address), ChannelClient(broker.address)
    for producer in (quiet, loud):
        producer.put(b"", [], 10)
        consumer.get(10)
    quiet.close()
    loud.close("KeyError: 'x'")
    with pytest.raises(PeerError, match=r"producer process \d+ failed: KeyError: 'x'"):
        consumer.get(10)
    assert consumer.get(0.01) is None
    consumer.close()


def test_a_connection_that_is_dropped_says_goodbye(broker: Broker) -> None:
    producer, consumer = ChannelClient(broker.address), ChannelClient(broker.address)
    producer.put(b"", [], 10)
    consumer.get(10)
    del producer
    gc.collect()
    assert consumer.get(0.05) is None
    consumer.close()


def test_one_client_may_send_and_receive(broker: Broker) -> None:
    client = ChannelClient(broker.address)
    assert client.put(b"header", [], 10)
    assert client.get(10) == (b"header", [])
    client.request(END_EPOCH)
    with pytest.raises(EndOfEpoch, match="epoch 0 is over"):
        client.get(10)
    client.close()


def test_nobody_to_connect_to() -> None:
    broker = Broker(BoundedQueueState(capacity=2, limit_bytes=100))
    client = ChannelClient(broker.address)
    broker.close()
    broker.thread.join(10)
    with pytest.raises(Closed, match="the process that made it closed it or is gone"):
        client.request(LOOK)
    client.close()
    with pytest.raises(Closed, match="the process that made it closed it or is gone"):
        ChannelClient(broker.address)
