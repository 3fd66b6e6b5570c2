"""Servers in separate processes that are killed and stopped while a loader reads from them, and their memory."""

import os
import signal
import socket
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.servers.remote_executor import RemoteExecutor
from graphfeed.distributed.servers.tickets import Cut
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.stand_ins.programs import run_body, start_program
from tests.stand_ins.scripts import IMPORTS
from tests.stand_ins.served import TOKEN, compressing_server, loader, servers, start_server
from tests.stand_ins.waiting import stop, wait_until

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TIMEOUT = 2.0


@pytest.fixture(scope="module")
def expected() -> list[str]:
    return digests(gf.DataLoader(pipelines.homogeneous(), num_workers=0, seed=3))


def test_several_servers_give_the_mini_batches_of_one_machine(tmp_path: Path, expected: list[str]) -> None:
    with servers(tmp_path, 3) as started:
        with loader(pipelines.homogeneous(), [server.address for server in started]) as own:
            assert digests(own) == expected
        ends = [server.end()[-1] for server in started]
        assert sum(int(line.split()[2]) for line in ends) == len(expected)


@pytest.mark.parametrize(
    ("number", "at"),
    [(signal.SIGSTOP, 4), (signal.SIGKILL, 6), pytest.param(signal.SIGKILL, 1, marks=pytest.mark.thorough)],
)
def test_a_lost_server_costs_no_mini_batch(tmp_path: Path, number: int, at: int, expected: list[str]) -> None:
    with servers(tmp_path, 2) as started:
        found, gaps = [], []
        # Two are requested at once, so that some are left to request when a server is lost.
        with loader(pipelines.homogeneous(), [server.address for server in started], TIMEOUT, num_workers=2) as own:
            before = time.monotonic()
            for index, minibatch in enumerate(own):
                gaps.append(time.monotonic() - before)
                found.append(digest(minibatch))
                if index + 1 == at:
                    os.kill(started[0].process.pid, number)  # if all are idle, the first one gets the request
                before = time.monotonic()
            assert isinstance(own._workers.pool, RemoteExecutor)
            assert [server.num_losses > 0 for server in own._workers.pool.servers] == [True, False]
        assert found == expected
        assert max(gaps[at:]) < 2 * TIMEOUT
        assert number == signal.SIGKILL or max(gaps[at:]) > TIMEOUT / 2


def test_a_loader_whose_servers_are_all_lost_says_which(tmp_path: Path) -> None:
    with servers(tmp_path, 2) as started:
        addresses = [server.address for server in started]
        with loader(pipelines.homogeneous(), addresses, TIMEOUT, num_workers=2) as own:
            left = iter(own)
            next(left)
            started[0].process.kill()
            stop(started[1].process.pid)
            with pytest.raises(ConnectionError, match="no sampling server is left for mini-batch") as caught:
                list(left)
    assert all(address in str(caught.value) for address in addresses)
    assert f"no response for {TIMEOUT:g} s" in str(caught.value)


def test_a_server_that_is_back_is_asked_again(tmp_path: Path, expected: list[str]) -> None:
    with servers(tmp_path, 1) as started, loader(pipelines.homogeneous(), [started[0].address], TIMEOUT) as own:
        stop(started[0].process.pid)
        with pytest.raises(ConnectionError):
            list(own)
        os.kill(started[0].process.pid, signal.SIGCONT)
        own.set_epoch(0)
        assert digests(own) == expected


def test_a_loader_waits_for_its_only_server_to_come_back(tmp_path: Path, expected: list[str]) -> None:
    with servers(tmp_path, 1) as started:
        address, again = started[0].address, None
        with loader(pipelines.homogeneous(), [address], num_workers=2, patience=60) as own:
            found = []
            for minibatch in own:
                found.append(digest(minibatch))
                if len(found) == 2:
                    started[0].process.kill()
                    assert started[0].process.wait(20)
                    again = start_server(tmp_path, port=int(address.rpartition(":")[2]))
        assert again is not None
        again.kill()
        assert again.wait(20)
    assert found == expected


def test_after_some_patience_it_is_said_that_no_server_came_back(tmp_path: Path) -> None:
    with (
        servers(tmp_path, 1) as started,
        loader(pipelines.homogeneous(), [started[0].address], num_workers=1, patience=1) as own,
    ):
        minibatches = iter(own)
        next(minibatches)
        started[0].process.kill()
        begin = time.monotonic()
        with pytest.raises(ConnectionError, match=r"is left for mini-batch .*, and none came back for 1 s: 127"):
            list(minibatches)
        assert 0.9 < time.monotonic() - begin < 20


def test_a_forked_process_is_told_rather_than_hanging() -> None:
    ended = run_body(
        """
        import warnings
        from graphfeed.distributed import SamplingServer
        pipe = pipelines.homogeneous()
        server = SamplingServer(pipe, token="t")
        with gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token="t")) as loader:
            list(loader)
        warnings.simplefilter("ignore")
        if os.fork() == 0:
            try:
                next(iter(gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token="t"))))
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        server.close()
        """
    )
    assert ended.returncode == 0, ended.stderr
    assert "start processes by 'spawn' or 'forkserver'" in ended.stdout


def test_the_token_is_not_sent_in_clear_to_other_machines_unless_their_addresses_say_so() -> None:
    own = gf.DataLoader(pipelines.homogeneous(), executor=gf.SamplingServers(["node7:5"], token=TOKEN), timeout=1.0)
    with own, pytest.raises(ValueError, match="write 'grpc://node7:5' on a trusted network"):
        next(iter(own))
    addresses = ["localhost:1", "[::1]:1", "grpc://10.0.0.2:1", "grpc://node7:1", "grpc://localhost:1"]
    executor = RemoteExecutor(addresses, TOKEN, None, 1, 1.0)
    assert [server.address for server in executor.servers] == ["localhost:1", "[::1]:1", "10.0.0.2:1", "node7:1"]
    with pytest.raises(ValueError, match="disables TLS, but tls_root_certs enables it"):
        RemoteExecutor(addresses[2:], TOKEN, b"PEM", 1, 1.0)


def test_closing_waits_for_no_server_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        executor = RemoteExecutor([f"127.0.0.1:{listener.getsockname()[1]}"], TOKEN, None, 1, 60.0)
        future = executor.fetch(Cut({}, [], None, ""), (0, 0, 0))
        connection, _ = listener.accept()
        begin = time.monotonic()
        with connection, pytest.warns(RuntimeWarning, match="abandoned 1 thread still at work: graphfeed-server_0"):
            executor.shutdown(cancel_futures=True)
        assert time.monotonic() - begin < 10
    assert isinstance(future.exception(30), ConnectionError)


def test_a_compressed_answer_is_refused_before_it_takes_up_memory() -> None:
    for coding in ("gzip", "deflate"):
        with compressing_server(coding) as address, pytest.raises(ValueError, match=f"'{coding}' is disabled"):
            next(RemoteExecutor([address], TOKEN, None, 1, 20.0).ask(b"any ticket", "a mini-batch"))


WIDE_BYTES = 8_000_000
SERVE_WIDE = f"""
    import torch
    from graphfeed.distributed import SamplingServer
    from tests.unit.distributed.test_remote_executor import Wide
    pipe = Wide(gf.ItemSampler(gf.ItemSet(60, names="seeds"), batch_size=1))
    with SamplingServer(pipe, token={TOKEN!r}, num_workers=2) as server:
        print(server.address, flush=True)
        time.sleep(200)
"""


class Wide(gf.Transform):
    """Adds many bytes, newly allocated for each mini-batch."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        minibatch.labels = torch.zeros(WIDE_BYTES // 4)
        return minibatch


def resident_bytes(process: int) -> int:
    """Return the memory of a process."""
    return int(Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


@pytest.fixture
def wide_server() -> Iterator[tuple[int, str]]:
    """Return the process of a server, and its address."""
    program = start_program(IMPORTS + textwrap.dedent(SERVE_WIDE))
    try:
        wait_until(lambda: "\n" in program.printed())
        yield program.pid, program.printed().strip()
    finally:
        program.kill()
        assert program.wait(20)


def test_a_slow_reader_takes_up_a_window_of_memory_on_the_server(wide_server: tuple[int, str]) -> None:
    process, address = wide_server
    pipe = Wide(gf.ItemSampler(gf.ItemSet(60, names="seeds"), batch_size=1))
    with loader(pipe, [address], num_workers=2) as read:
        left = iter(read)
        next(left)
        begin, most = resident_bytes(process), 0
        for _ in range(20):
            time.sleep(0.05)
            most = max(most, resident_bytes(process))
        assert most - begin < 8 * WIDE_BYTES  # two are requested at once; an epoch has 60
        assert len(list(left)) == 59
