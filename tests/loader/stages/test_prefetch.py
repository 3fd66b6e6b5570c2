"""A thread that works ahead of its reader, and the channel between the two."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.loader.executors import thread_executor
from graphfeed.loader.run import RunContext
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.transport.thread_channel import Closed, ThreadChannel
from tests.waiting import HangAtTheSecond, wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


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


def test_closing_wakes_a_blocked_producer_and_a_blocked_consumer() -> None:
    empty = ThreadChannel(capacity=1)
    threading.Timer(0.05, empty.close).start()
    with pytest.raises(Closed):
        empty.get(30)
    channel = ThreadChannel(capacity=1)
    channel.put(0)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(channel.put(1)))
    thread.start()
    channel.close()
    thread.join(60)
    assert results == [False]


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


class Numbers(gf.Datapipe[int]):
    """Counts, and remembers how far it came and in which thread."""

    count: int
    seen: list[Any]

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.seen.append((number, threading.current_thread().name))
            yield number

    def __len__(self) -> int:
        return self.count


def test_it_runs_ahead_by_its_buffer_and_no_further() -> None:
    source = Numbers(100, [])
    items = iter(Prefetch(source, buffer_size=3))
    next(items)
    wait_until(lambda: len(source.seen) >= 4)
    time.sleep(0.05)  # more than the buffer holds would come now
    assert len(source.seen) in (4, 5)
    del items


def test_a_slow_stage_times_out_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_executor, "JOIN_SECONDS", 0.0)
    release = threading.Event()

    class Slow(gf.Datapipe[int]):
        def __iter__(self) -> Iterator[int]:
            release.wait(60)
            yield 0

    items = iter(Prefetch(Slow(), timeout_seconds=0.05))
    with (
        pytest.warns(RuntimeWarning, match="abandoned 1 thread still at work: graphfeed-prefetch is at threading.py"),
        pytest.raises(TimeoutError, match=r"gave no mini-batch for 0\.05 s \(graphfeed-prefetch .*larger timeout"),
    ):
        next(items)
    release.set()


def test_a_loop_that_is_left_does_not_wait_for_workers() -> None:
    hang = HangAtTheSecond()
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=1).transform(hang)
    with ThreadPoolExecutor(1) as executor:
        items = RunContext(executor).drive(Prefetch(InWorkers(pipe, num_workers=1, window=2)))
        next(items)
        items.close()
        left = [thread.name for thread in threading.enumerate() if thread.name == "graphfeed-prefetch"]
        hang.release.set()
    assert not left


class Dropping(gf.Datapipe[int]):
    """Drops, in the thread that runs it, the last reference to who reads."""

    held: list[Iterator[Any]]
    reading: threading.Event

    def __iter__(self) -> Iterator[int]:
        yield 0
        self.reading.wait(10)
        self.held.clear()
        yield 1


def test_an_iterator_that_its_own_thread_collects_says_nothing() -> None:
    held: list[Iterator[Any]] = []
    reading = threading.Event()
    held.append(iter(Prefetch(Dropping(held, reading))))
    assert next(held[0]) == 0
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "graphfeed-prefetch"]
    unraisable: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        reading.set()
        thread.join(10)
    finally:
        sys.unraisablehook = hook
    assert not unraisable
    assert not thread.is_alive()
