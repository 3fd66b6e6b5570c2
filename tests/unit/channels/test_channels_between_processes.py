"""Channels and pools of samplers across processes: what is lost when one of them fails, is killed, or closes."""

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.channels import Closed, EndOfEpoch, MpChannel, PeerError, QueueTimeoutError, SamplerPool, ShmChannel
from tests.kinds.refusals import check_refused
from tests.stand_ins.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
FORK = multiprocessing.get_context("fork")
LARGE = 30_000


@contextmanager
def running(*works: tuple[Callable[..., object], Any], method: str = "fork") -> Iterator[list[Any]]:
    """Run functions in child processes, and wait for their ends."""
    context: Any = multiprocessing.get_context(method)
    children = [context.Process(target=work, args=arguments) for work, arguments in works]
    for child in children:
        child.start()
    yield children
    for child in children:
        child.join(30)
        assert child.exitcode is not None, "it hangs"


def sample(producer: int, number: int) -> dict[str, torch.Tensor]:
    """Return a message that says where it is from; every third is large."""
    data = torch.full((LARGE if number % 3 == 0 else 10,), number % 256, dtype=torch.uint8)
    return {"from": torch.tensor([producer, number]), "data": data}


def check(message: dict[str, torch.Tensor]) -> tuple[int, int]:
    producer, number = message["from"].tolist()
    assert message["data"].equal(sample(producer, number)["data"])
    return producer, number


def produce(channel: ShmChannel, producer: int, count: int, epochs: int = 1) -> None:
    for epoch in range(epochs):
        for number in range(count):
            channel.send(sample(producer, epoch * count + number))
        channel.end_epoch()


def consume(channel: ShmChannel, results: MpChannel) -> None:
    """Send on what came, in order."""
    found = torch.tensor([check(message) for message in channel])
    results.send({"found": found.reshape(-1, 2)})


def send_and_wait(channel: ShmChannel) -> None:
    channel.send(sample(0, 0))
    time.sleep(60)


def receive_and_wait(channel: ShmChannel) -> None:
    channel.recv()
    time.sleep(60)


def send_and_fail(channel: ShmChannel) -> None:
    channel.send(sample(0, 0))
    os.close(2)  # the traceback belongs in no test's output
    raise KeyError("no such feature")


def send_until_closed(channel: ShmChannel) -> None:
    with suppress(Closed):
        while True:
            channel.send(sample(0, 0), timeout_ms=20_000)


def test_several_producers_and_consumers_lose_and_double_nothing() -> None:
    with ShmChannel(4, "100KB", num_producers=3) as channel, MpChannel() as results:
        producers = [(produce, (channel, number, 60)) for number in range(3)]
        consumers = [(consume, (channel, results)) for _ in range(2)]
        with running(*producers, *consumers):
            found = [results.recv(timeout=60)["found"].tolist() for _ in range(2)]
        assert Counter(map(tuple, found[0] + found[1])) == Counter((p, n) for p in range(3) for n in range(60))
        for part in found:
            for producer in range(3):
                numbers = [number for its, number in part if its == producer]
                assert numbers == sorted(numbers), "in order for each producer"
        statistics = channel.statistics()
        assert statistics["most messages"] <= 4
        assert statistics["most bytes"] <= 100 << 10
        assert statistics["messages sent"] == statistics["messages received"] == 180


def test_epochs_do_not_mix() -> None:
    with (
        ShmChannel(4, "1MB", num_producers=2) as channel,
        running(*((produce, (channel, number, 20, 3)) for number in range(2))),
    ):
        for epoch in range(3):
            found = [check(message) for message in channel]
            assert sorted(found) == [(p, n) for p in range(2) for n in range(20 * epoch, 20 * (epoch + 1))]
    with ShmChannel() as channel:
        channel.end_epoch()
        with pytest.raises(EndOfEpoch, match="epoch 0 is over"):
            channel.recv()
        with pytest.raises(QueueTimeoutError, match="no message"):
            channel.recv(timeout_ms=10)
    ShmChannel().send(sample(0, 0))  # one that is dropped leaves nothing


def test_a_copy_in_the_same_process_is_the_same_channel() -> None:
    with ShmChannel(4, "1MB") as channel:
        again = pickle.loads(pickle.dumps(channel))
        again.send(sample(0, 1))
        assert check(channel.recv()) == (0, 1)
        again.close()
        assert channel.empty()
        again.send(sample(0, 2))
        assert check(channel.recv()) == (0, 2), "it reconnects"
    with pytest.raises(Closed, match="closed it or has ended"):
        again.qsize()
    again.close()


def test_a_killed_consumer_is_noticed() -> None:
    with ShmChannel(2) as channel, running((receive_and_wait, (channel,))) as (child,):
        channel.send(sample(0, 0))
        while channel.statistics().get("messages received", 0) == 0:
            pass
        threading.Timer(0.1, os.kill, (child.pid, signal.SIGKILL)).start()
        with pytest.raises(PeerError, match=rf"consumer process {child.pid} died"):
            send_until_closed(channel)


def test_a_producer_that_fails_says_why() -> None:
    with ShmChannel() as channel, running((send_and_fail, (channel,))):
        assert check(channel.recv()) == (0, 0)
        with pytest.raises(PeerError, match=r"producer process \d+ failed: KeyError: 'no such feature'"):
            channel.recv(timeout_ms=30_000)


def test_an_error_travels_in_its_place() -> None:
    with ShmChannel() as channel:
        channel.send(sample(0, 1))
        channel.send_error(ValueError("fan-outs"))
        channel.send(sample(0, 2))
        assert check(channel.recv()) == (0, 1)
        with pytest.raises(PeerError, match=rf"in process {os.getpid()}: ValueError: fan-outs"):
            channel.recv()
        assert check(channel.recv()) == (0, 2)


def test_the_end_of_the_maker_ends_everybody() -> None:
    channel = ShmChannel(2)
    with running((send_until_closed, (channel,)), (send_until_closed, (channel,))) as children:
        while channel.qsize() < 2:
            pass
        channel.close()
    assert [child.exitcode for child in children] == [0, 0]
    channel.close()
    with pytest.raises(Closed, match="closed it or has ended"):
        channel.recv()


def make_and_wait(words: Any) -> None:
    """Make a channel, have a message kept and another one wait, and a child that sends on."""
    channel = ShmChannel(2)
    child = FORK.Process(target=send_and_wait, args=(channel,))
    child.start()
    kept = channel.recv()
    channel.send(sample(1, 0))
    words.send((channel.address, child.pid, len(kept)))
    time.sleep(60)


def test_nothing_is_left_when_all_are_killed() -> None:
    here, there = FORK.Pipe()
    with here, there, running((make_and_wait, (there,))) as (maker,):
        address, child, _ = here.recv()
        assert address[1:] in Path("/proc/net/unix").read_text()
        os.kill(maker.pid, signal.SIGKILL)
        wait_until(lambda: address[1:] not in Path("/proc/net/unix").read_text(), 20)  # although its child lives
        os.kill(child, signal.SIGKILL)
    left = [path.name for path in Path("/dev/shm").glob("*graphfeed*")]
    assert not [name for name in left if {str(maker.pid), str(child)} & set(name.split("-"))]


class Forks(SamplerPool):
    start_method = "fork"


class Writes(Forks):
    def worker(self, args: Path) -> None:
        (args / str(os.getpid())).touch()


class Fails(Forks):
    def worker(self, args: Any) -> None:
        raise KeyError("no such node")


class Dies(Forks):
    def worker(self, args: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class OneFails(Forks):
    def worker(self, args: int) -> None:
        """Wait for ever, but for the first that comes."""
        if os.read(args, 1) == b"x":
            raise ValueError("x")
        signal.pause()


class Leaves(Forks):
    def worker(self, args: object) -> None:
        raise SystemExit(args)


class Waits(Forks):
    def worker(self, args: int) -> None:
        os.write(args, b"%d " % os.getpid())
        signal.pause()


def test_as_many_processes_work_as_asked_and_the_failure_or_death_of_one_is_raised(tmp_path: Path) -> None:
    Writes().start(3, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    for code in (None, 0):
        Leaves().start(1, code)
    check_refused(
        [
            (lambda: Fails().start(2, None), PeerError, r"sampler \d failed: Traceback[\s\S]*KeyError: 'no such node'"),
            (lambda: Dies().start(1, None), PeerError, r"sampler 0 failed: it died with exit code -9"),
            (lambda: Leaves().start(1, 3), PeerError, "SystemExit: 3"),
            (SamplerPool, TypeError, "abstract"),
            (lambda: Writes().start(0, None), ValueError, "num_worker must be 1 or more, but is 0"),
        ]
    )


def test_a_failure_ends_the_others() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"xyz")
    with pytest.raises(PeerError, match="ValueError: x"):
        OneFails().start(3, reading)
    os.close(reading)
    os.close(writing)


def are_gone(pids: list[int]) -> bool:
    """Return whether processes have ended or are zombies."""
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
                return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_process_that_started_them(number: signal.Signals) -> None:
    reading, writing = os.pipe()
    pool = multiprocessing.get_context("fork").Process(target=Waits().start, args=(3, writing))
    pool.start()
    os.close(writing)
    pids: list[int] = []
    while len(pids) < 3:
        pids += map(int, os.read(reading, 100).split())
    if number == signal.SIGINT:
        for pid in pids:  # a terminal interrupts all of them
            os.kill(pid, number)
        assert not are_gone(pids)
    os.kill(pool.pid or 0, number)
    wait_until(lambda: are_gone(pids), 10)
    pool.join(10)
    os.close(reading)
    assert pool.exitcode == (1 if number == signal.SIGINT else -number)
