import threading
import time

import pytest

from graphfeed.loader.transport.thread_channel import Closed, ThreadChannel


def test_items_come_in_order() -> None:
    channel = ThreadChannel(capacity=3)
    for item in range(3):
        assert channel.put(item)
    assert [channel.get(1) for _ in range(3)] == [0, 1, 2]


def test_a_full_channel_blocks_its_producer() -> None:
    channel = ThreadChannel(capacity=2)
    given: list[int] = []

    def produce() -> None:
        for item in range(1000):
            channel.put(item)
            given.append(item)

    thread = threading.Thread(target=produce)
    thread.start()
    for item in range(1000):
        assert channel.get(60) == item
        assert len(given) <= item + 1 + 2
    thread.join(60)
    assert given == list(range(1000))


def test_an_empty_channel_times_out() -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        ThreadChannel(capacity=1).get(0.05)
    assert time.monotonic() - start >= 0.05


def test_closing_wakes_a_blocked_producer() -> None:
    channel = ThreadChannel(capacity=1)
    channel.put(0)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(channel.put(1)))
    thread.start()
    channel.close()
    thread.join(60)
    assert results == [False]


def test_closing_wakes_a_blocked_consumer() -> None:
    channel = ThreadChannel(capacity=1)
    threading.Timer(0.05, channel.close).start()
    with pytest.raises(Closed):
        channel.get(30)


def test_what_is_in_a_closed_channel_can_be_read() -> None:
    channel = ThreadChannel(capacity=1)
    channel.put("last")
    channel.close()
    assert channel.get(1) == "last"
    with pytest.raises(Closed):
        channel.get(1)


def test_nothing_is_lost_or_doubled_between_several_threads() -> None:
    channel = ThreadChannel(capacity=3)
    taken: list[int] = []

    def consume() -> None:
        try:
            while True:
                taken.append(channel.get(10))
        except Closed:
            return

    producers = [
        threading.Thread(target=lambda first=first: [channel.put(first + item) for item in range(200)])
        for first in (0, 1000, 2000)
    ]
    consumers = [threading.Thread(target=consume) for _ in range(3)]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join(20)
    channel.close()
    for thread in consumers:
        thread.join(20)
    assert sorted(taken) == [first + item for first in (0, 1000, 2000) for item in range(200)]


class Stopped(threading.Condition):
    """Returns from its first wait when the time for it is long over, as in a process that was stopped."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return super().wait(0.001 if self.waits == 1 else timeout)


def test_a_process_that_was_stopped_for_long_goes_on_waiting() -> None:
    channel = ThreadChannel(capacity=1)
    channel.changed = Stopped()
    threading.Timer(0.3, channel.put, ("late",)).start()
    assert channel.get(30) == "late"
