"""Channels as queues of one process: bounds, waits, sizes, and those who leave."""

import gc
import queue
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from graphfeed.channels.bounded_queue import BoundedQueue, PeerError
from graphfeed.channels.broker import Broker
from graphfeed.channels.channel_client import ChannelClient
from graphfeed.channels.sample_channel import MpChannel, QueueTimeoutError, ShmChannel
from tests.digests import assert_same
from tests.refusals import check_refused

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def channel() -> Iterator[ShmChannel]:
    with ShmChannel(capacity=2, shm_size="1MB") as channel:
        yield channel


def test_bounds_must_leave_room() -> None:
    check_refused(
        [
            (lambda: ShmChannel(0), ValueError, "capacity must be 1 or more messages, but is 0"),
            (lambda: ShmChannel(shm_size=0), ValueError, "shm_size must be 1 byte or more, but is 0"),
            (lambda: ShmChannel(shm_size="MB"), ValueError, "a number of bytes, such as '512M' or '4G', but is 'MB'"),
            (lambda: ShmChannel(num_producers=0), ValueError, "num_producers must be 1 or more, but is 0"),
        ]
    )


def test_a_message_comes_back(channel: ShmChannel) -> None:
    message = {"ids": torch.arange(5), "none": torch.zeros(0, 3), "one": torch.tensor(True), "t": torch.eye(9)[1:].T}
    channel.pin_memory()  # without a GPU, that changes nothing
    assert channel.empty()
    channel.send(message)
    assert not channel.empty()
    assert_same(channel.recv(), {name: value.clone() for name, value in message.items()})
    assert channel.empty()


def test_waits_for_messages_and_for_room_have_limits(channel: ShmChannel) -> None:
    start = time.monotonic()
    with pytest.raises(QueueTimeoutError, match=r"no message came for 0\.02 s"):
        channel.recv(timeout_ms=20, block=True)
    for _ in range(2):
        channel.send({"x": torch.ones(3)})
    with pytest.raises(QueueTimeoutError, match=r"full for 0\.02 s"):
        channel.send({"x": torch.zeros(3)}, timeout_ms=20, block=True)
    assert time.monotonic() - start >= 2 * 0.02
    assert [int(channel.recv()["x"].sum()) for _ in range(2)] == [3, 3]


def test_bytes_bound_too(channel: ShmChannel) -> None:
    channel.send({"x": torch.zeros(600_000, dtype=torch.uint8)})
    with pytest.raises(QueueTimeoutError, match="the channel was full"):
        channel.send({"x": torch.zeros(600_000, dtype=torch.uint8)}, timeout_ms=20)
    channel.recv()
    channel.send({"x": torch.ones(600_000, dtype=torch.uint8)}, timeout_ms=5_000)
    assert channel.recv()["x"].sum() == 600_000


def test_a_message_that_is_too_large_breaks_nothing(channel: ShmChannel) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="the message is too large: it has 1100187 bytes"):
            channel.send({"x": torch.zeros(1_100_000, dtype=torch.uint8)})
        channel.send({"x": torch.ones(1_000_000, dtype=torch.uint8)})
        assert channel.recv()["x"].sum() == 1_000_000


def test_what_is_kept_stalls_nobody(channel: ShmChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.channels.sample_channel.ARENA_BYTES", 1 << 20)
    kept = []
    for number in range(20):
        channel.send({"x": torch.full((300_000,), number, dtype=torch.uint8)}, timeout_ms=10_000)
        kept.append(channel.recv(timeout_ms=10_000)["x"])
        del kept[:-10]
    assert all(bool((value == number).all()) for number, value in enumerate(kept, 10))


def test_another_one_is_a_queue_and_raises_as_one() -> None:
    with MpChannel(maxsize=2) as channel:
        check_refused(
            [
                (lambda: channel.recv(block=False), queue.Empty, "no message came for 0 s"),
                (lambda: channel.recv(timeout=0.02), queue.Empty, r"no message came for 0\.02 s"),
            ]
        )
        for number in range(2):
            channel.send({"x": torch.tensor(number)}, block=False)
        assert channel.qsize() == 2
        check_refused(
            [
                (lambda: channel.send({}, block=False), queue.Full, "full for 0 s"),
                (lambda: channel.send({}, timeout=0.02), queue.Full, r"full for 0\.02 s"),
            ]
        )
        assert [int(channel.recv()["x"]), int(channel.recv(timeout=5)["x"])] == [0, 1]


def test_messages_of_every_size_come_through_and_lie_at_cache_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.channels.sample_channel.ARENA_BYTES", 1 << 20)
    with MpChannel() as channel:
        for size in (0, 10, 20_000, 500_000, 3_000_000):
            data = torch.arange(size).to(torch.uint8)
            channel.send({"x": data})
            found = channel.recv()["x"]
            assert torch.equal(found, data)
            assert found.data_ptr() % 64 == 0


def test_by_default_it_takes_what_comes() -> None:
    with MpChannel() as channel:
        for number in range(300):
            channel.send({"x": torch.full((100,), number)})
        assert [int(channel.recv()["x"][0]) for _ in range(300)] == list(range(300))


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BoundedQueue(capacity=2, limit_bytes=1 << 24))
    yield broker
    broker.close()
    broker.thread.join(10)


def test_without_room_or_messages_they_say_so_and_their_memory_is_used_again(broker: Broker) -> None:
    producer, consumer = ChannelClient(broker.address, 1 << 21), ChannelClient(broker.address)
    assert consumer.get(0.01) is None
    data = np.zeros(400_000, np.uint8)
    for _ in range(2):  # the queue has room for two messages, and its memory for five
        assert [producer.put(b"", [data], 0.01) for _ in range(5)] == [True, True, False, False, False]
        assert producer.outbox.arena is not None
        assert len(producer.outbox.arena.in_use) == 2
        assert [consumer.get(10) is None for _ in range(2)] == [False, False]
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


def test_leaving_and_being_dropped_are_no_failure_but_an_error_is(broker: Broker) -> None:
    consumer = ChannelClient(broker.address)
    quiet, dropped, loud = (ChannelClient(broker.address) for _ in range(3))
    for producer in (quiet, dropped, loud):
        producer.put(b"", [], 10)
        consumer.get(10)
    quiet.close()
    del dropped, producer
    gc.collect()
    loud.close("KeyError: 'x'")
    with pytest.raises(PeerError, match=r"producer process \d+ failed: KeyError: 'x'"):
        consumer.get(10)
    assert consumer.get(0.05) is None
    consumer.close()
