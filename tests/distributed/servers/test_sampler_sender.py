"""What a sender refuses, and how long it waits."""

import socket
import threading
import time
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.channels import PeerError
from graphfeed.distributed import SamplerReceiver, SamplerSender
from tests.distributed.rank_processes import run_program
from tests.waiting import interrupt, wait_until

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("no_leaks")


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="namebook must have a receiver's address"):
        SamplerSender({})
    with pytest.raises(ValueError, match="net_type must be 'socket', but is 'mpi'"):
        SamplerSender({0: "127.0.0.1:1"}, "mpi")
    with pytest.raises(ValueError, match="an address must be"):
        SamplerSender({0: "somewhere"})
    with pytest.raises(ValueError, match="nobody can be called at port 0"):
        SamplerSender({0: "127.0.0.1:0"})
    with pytest.raises(ValueError, match=r"give tls_root_certs=\.\.\., or write 'grpc://node7:5' where nobody else"):
        SamplerSender({0: "127.0.0.1:1", 1: "node7:5"}, token="a")
    with pytest.raises(ValueError, match="node7 can be reached by others: give both sides the same token"):
        SamplerSender({0: "tcp://node7:5"}, token="")
    with pytest.raises(TypeError, match="tls_root_certs must be certificates as bytes"):
        SamplerSender({0: "node7:5"}, token="a", tls_root_certs="chain.pem")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="token must be a text, but is a bytes"):
        SamplerSender({0: "127.0.0.1:1"}, token=b"a")  # type: ignore[arg-type]


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(TimeoutError, match=rf"receiver 127\.0\.0\.1:{port} let nobody in for 0\.3 s"):
            SamplerSender({0: f"127.0.0.1:{port}"}, timeout=0.3)
    with pytest.raises(TimeoutError, match=rf"receiver 127\.0\.0\.1:{port} did not answer for 0\.3 s"):
        SamplerSender({0: f"127.0.0.1:{port}"}, timeout=0.3)
    with pytest.raises(TimeoutError, match=r"did not answer for 0\.3 s: is it running\? The last error was: "):
        SamplerSender({0: "tcp://nowhere.invalid:5"}, token="a", timeout=0.3)


def test_a_receiver_may_begin_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    made: list[SamplerSender] = []
    thread = threading.Thread(target=lambda: made.append(SamplerSender({0: address}, timeout=20)))
    thread.start()
    time.sleep(0.3)
    with SamplerReceiver(None, address, timeout=20) as receiver:
        thread.join(20)
        with made[0] as sender:
            sender.signal(0)
            assert list(receiver) == []


def test_a_receiver_that_takes_nothing_is_left() -> None:
    with SamplerReceiver(None, "127.0.0.1:0", timeout=20) as receiver:
        with SamplerSender({3: receiver.address}, timeout=20) as sender:
            for step in range(2):
                sender.send({"step": torch.tensor(step)}, 3)
            sender.timeout = 0.5
            with pytest.raises(TimeoutError, match=r"receiver 3 took nothing for 0\.5 s; it was left"):
                sender.send({"step": torch.tensor(2)}, 3)
            with pytest.raises(KeyError, match=r"recv_id must be one of \[\], but is 3"):
                sender.signal(3)
        samples = iter(receiver)
        assert [int(next(samples)["step"]) for _ in range(2)] == [0, 1]
        with pytest.raises(PeerError, match="was cut off before it signalled"):
            next(samples)


def test_an_interrupt_of_a_send_that_waits_makes_no_sample() -> None:
    with SamplerReceiver(None, "127.0.0.1:0", timeout=20) as receiver:
        with SamplerSender({3: receiver.address}, timeout=60) as sender:
            for step in range(2):
                sender.send({"step": torch.tensor(step)}, 3)
            with pytest.raises(KeyboardInterrupt):
                interrupt(lambda: sender.send({"step": torch.tensor(2)}, 3))
        samples = iter(receiver)
        wait_until(lambda: all(one.lost for one in receiver._inbox.senders.values()))
        assert [int(next(samples)["step"]) for _ in range(2)] == [0, 1]
        with pytest.raises(PeerError, match="was cut off before it signalled"):
            next(samples)


def test_what_cannot_be_sent_leaves_the_connection_as_it_is() -> None:
    with (
        SamplerReceiver(None, "127.0.0.1:0", timeout=20) as receiver,
        SamplerSender({3: receiver.address}, timeout=20) as sender,
    ):
        wrong: Any = gf.MiniBatch()
        samples: list[tuple[Any, str]] = [
            (wrong, "a message must be a dict of texts to tensors, but is a MiniBatch"),
            ({"x": torch.zeros(1).expand(1 << 40)}, r"a sample may have \d+ bytes, but this one has 4398046511104"),
            ({"x" * (1 << 24): torch.zeros(1)}, "may take 16777216 bytes as JSON"),
            ({"x": torch.eye(2).to_sparse()}, "tensors of a message must be dense"),
            ({"x": [1]}, "a message must be a dict of texts to tensors, but has 'x': list"),
        ]
        for sample, error in samples:
            with pytest.raises((TypeError, ValueError), match=error):
                sender.send(sample, 3)
        sender.signal(3)
        assert list(receiver) == []


@pytest.mark.slow
def test_a_sender_that_nobody_closes_leaves_at_the_end_of_its_program_and_a_forked_one_says_what_to_do() -> None:
    status, printed = run_program(
        """
        import warnings, torch
        from graphfeed.distributed import SamplerReceiver, SamplerSender
        receiver = SamplerReceiver(None, "127.0.0.1:0", timeout=20)
        sender = SamplerSender({0: receiver.address}, timeout=20)
        sender.send({"x": torch.ones(1)}, 0)
        sender.signal(0)
        print(len(list(receiver)), flush=True)
        warnings.simplefilter("ignore")
        if os.fork() == 0:
            try:
                SamplerSender({0: receiver.address}, timeout=20)
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert status == 0, printed
    count, reason = printed.splitlines()
    assert count == "1"
    assert "start processes by 'spawn' or 'forkserver'" in reason
