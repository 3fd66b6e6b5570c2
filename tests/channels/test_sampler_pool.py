import multiprocessing
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from graphfeed.channels.channel_client import PeerError
from graphfeed.channels.sampler_pool import SamplerPool
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


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


def test_as_many_processes_work_as_asked(tmp_path: Path) -> None:
    Writes().start(3, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_failure_is_raised_with_its_traceback() -> None:
    with pytest.raises(PeerError, match=r"sampler \d failed: Traceback[\s\S]*KeyError: 'no such node'"):
        Fails().start(2, None)


def test_a_death_is_raised() -> None:
    with pytest.raises(PeerError, match=r"sampler 0 failed: it died with exit code -9"):
        Dies().start(1, None)


def test_a_failure_ends_the_others() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"xyz")
    with pytest.raises(PeerError, match="ValueError: x"):
        OneFails().start(3, reading)
    os.close(reading)
    os.close(writing)


def test_a_worker_may_exit_by_itself() -> None:
    Leaves().start(1, None)
    Leaves().start(1, 0)
    with pytest.raises(PeerError, match="SystemExit: 3"):
        Leaves().start(1, 3)


def are_gone(pids: list[int]) -> bool:
    """Tell whether processes have ended, or are about to be waited for."""
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


def test_it_needs_work_and_workers() -> None:
    with pytest.raises(TypeError, match="abstract"):
        SamplerPool()  # type: ignore[abstract]
    with pytest.raises(ValueError, match="num_worker must be 1 or more, but is 0"):
        Writes().start(0, None)
