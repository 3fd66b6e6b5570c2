"""Channels within one process: arguments, bytes, and sizes of messages."""

from collections.abc import Iterator

import pytest
import torch

from graphfeed.channels import MpChannel, QueueTimeoutError, ShmChannel
from graphfeed.testing import limits
from tests.kinds.refusals import check_refused

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


def test_bytes_bound_too(channel: ShmChannel) -> None:
    channel.pin_memory()  # without a GPU, that changes nothing
    assert channel.empty()
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


@limits(arena_bytes=1 << 20)
def test_what_is_kept_stalls_nobody(channel: ShmChannel) -> None:
    kept = []
    for number in range(20):
        channel.send({"x": torch.full((300_000,), number, dtype=torch.uint8)}, timeout_ms=10_000)
        kept.append(channel.recv(timeout_ms=10_000)["x"])
        del kept[:-10]
    assert all(bool((value == number).all()) for number, value in enumerate(kept, 10))


@limits(arena_bytes=1 << 20)
def test_messages_of_every_size_come_through_and_lie_at_cache_lines() -> None:
    with MpChannel() as channel:
        for size in (0, 10, 20_000, 500_000, 3_000_000):
            data = torch.arange(size).to(torch.uint8)
            channel.send({"x": data})
            found = channel.recv()["x"]
            assert torch.equal(found, data)
            assert found.data_ptr() % 64 == 0
