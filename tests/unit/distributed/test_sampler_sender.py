"""Tests of the errors of a sender, and of how long it waits."""

import socket
import threading
import time
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.channels import PeerError
from graphfeed.distributed import SamplerReceiver, SamplerSender
from tests.kinds.refusals import check_refused
from tests.stand_ins.programs import run_body
from tests.stand_ins.waiting import interrupt, wait_until

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("warm_programs", "no_leaks")


def test_wrong_arguments_are_refused() -> None:
    send: Any = SamplerSender
    receive: Any = SamplerReceiver
    here, far, tls = {0: "127.0.0.1:1"}, {0: "node7:5"}, "tls must be a certificate chain"
    by_tls = r"pass tls=\(certificate, key\), or write 'grpc://0\.0\.0\.0:0'"
    check_refused(
        [
            (lambda: send({}), ValueError, "namebook must map numbers to addresses of receivers"),
            (lambda: send(here, "mpi"), ValueError, "net_type must be 'socket', but is 'mpi'"),
            (lambda: send({0: "somewhere"}), ValueError, "an address must be"),
            (lambda: send({0: "127.0.0.1:0"}), ValueError, "port 0 can't be connected to"),
            (
                lambda: send({**here, 1: "node7:5"}, token="a"),
                ValueError,
                r"tls_root_certs=\.\.\., or write 'grpc://no",
            ),
            (lambda: send({0: "tcp://node7:5"}, token=""), ValueError, "node7 is reachable for others: give both"),
            (lambda: send(far, token="a", tls_root_certs="chain.pem"), TypeError, "must be bytes, such as Path"),
            (lambda: send(here, token=b"a"), TypeError, "token must be a string, but is b'a'"),
            (lambda: SamplerReceiver(None, "127.0.0.1:0", 0), ValueError, "num_sender must be 1 or more, but is 0"),
            (lambda: SamplerReceiver(None, "127.0.0.1:0", 1, "mpi"), ValueError, "net_type must be 'socket', but is"),
            (lambda: SamplerReceiver(None, "tcp://0.0.0.0:0", token=""), ValueError, "is reachable for others"),
            (lambda: SamplerReceiver(None, "0.0.0.0:0", token="a"), ValueError, by_tls),
            (lambda: SamplerReceiver(None, "0.0.0.0:0", token="a", tls=(b"", b"")), ValueError, tls),
            (lambda: receive(None, "0.0.0.0:0", token="a", tls=(b"", "")), TypeError, r"but is \['bytes', 'str'\]"),
        ]
    )


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(TimeoutError, match=rf"receiver 127\.0\.0\.1:{port} accepted no connection for 0\.3 s"):
            SamplerSender({0: f"127.0.0.1:{port}"}, timeout=0.3)
    with pytest.raises(TimeoutError, match=rf"receiver 127\.0\.0\.1:{port} did not respond for 0\.3 s"):
        SamplerSender({0: f"127.0.0.1:{port}"}, timeout=0.3)
    with pytest.raises(TimeoutError, match=r"did not respond for 0\.3 s: is it running\? The last error was: "):
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
            with pytest.raises(TimeoutError, match=r"receiver 3 took no sample for 0\.5 s; disconnected"):
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
            (wrong, "nodeflow must be a dict, but is a MiniBatch"),
            ({"x": torch.zeros(1).expand(1 << 40)}, r"a sample may have at most \d+ bytes, but has 4398046511104"),
            ({"x" * (1 << 24): torch.zeros(1)}, "may take 16777216 bytes"),
            ({"x": torch.eye(2).to_sparse()}, "tensors of a message must be dense"),
            ({"x": [1]}, "a message must be a dict of strings to tensors, but has 'x': list"),
        ]
        for sample, error in samples:
            with pytest.raises((TypeError, ValueError), match=error):
                sender.send(sample, 3)
        sender.signal(3)
        assert list(receiver) == []


@pytest.mark.slow
def test_a_sender_that_nobody_closes_leaves_at_the_end_of_its_program_and_a_forked_one_says_what_to_do() -> None:
    ended = run_body(
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
    assert ended.returncode == 0, ended.stderr
    count, reason = ended.stdout.splitlines()
    assert count == "1"
    assert "start processes by 'spawn' or 'forkserver'" in reason
