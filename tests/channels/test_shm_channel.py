import time
from collections.abc import Iterator

import pytest
import torch

from graphfeed.channels.shm_channel import QueueTimeoutError, ShmChannel
from tests.digests import assert_same

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def channel() -> Iterator[ShmChannel]:
    with ShmChannel(capacity=2, shm_size="1MB") as channel:
        yield channel


def test_bounds_must_leave_room() -> None:
    with pytest.raises(ValueError, match="capacity must be 1 or more messages, but is 0"):
        ShmChannel(0)
    with pytest.raises(ValueError, match="shm_size must be 1 byte or more, but is 0"):
        ShmChannel(shm_size=0)
    with pytest.raises(ValueError, match="shm_size must be a number of bytes, such as '512M' or '4G', but is 'MB'"):
        ShmChannel(shm_size="MB")
    with pytest.raises(ValueError, match="num_producers must be 1 or more, but is 0"):
        ShmChannel(num_producers=0)


def test_a_message_comes_back(channel: ShmChannel) -> None:
    message = {"ids": torch.arange(5), "none": torch.zeros(0, 3), "one": torch.tensor(True), "t": torch.eye(9)[1:].T}
    assert channel.empty()
    channel.send(message)
    assert not channel.empty()
    assert_same(channel.recv(), {name: value.clone() for name, value in message.items()})
    assert channel.empty()


@pytest.mark.parametrize("milliseconds", [20, 100])
def test_waits_for_messages_and_for_room_have_limits(channel: ShmChannel, milliseconds: int) -> None:
    start = time.monotonic()
    with pytest.raises(QueueTimeoutError, match=rf"no message came for {milliseconds / 1000:g} s"):
        channel.recv(timeout_ms=milliseconds)
    for _ in range(2):
        channel.send({"x": torch.ones(3)})
    with pytest.raises(QueueTimeoutError, match=rf"no room for {milliseconds / 1000:g} s"):
        channel.send({"x": torch.zeros(3)}, timeout_ms=milliseconds)
    assert time.monotonic() - start >= 2 * milliseconds / 1000
    assert [int(channel.recv()["x"].sum()) for _ in range(2)] == [3, 3]


def test_bytes_bound_too(channel: ShmChannel) -> None:
    channel.send({"x": torch.zeros(600_000, dtype=torch.uint8)})
    with pytest.raises(QueueTimeoutError, match="no room"):
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


def test_pinning_without_a_gpu_changes_nothing(channel: ShmChannel) -> None:
    channel.pin_memory()
    channel.send({"x": torch.ones(3)})
    assert_same(channel.recv(), {"x": torch.ones(3)})
