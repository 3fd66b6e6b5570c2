"""A receiver and its senders, in threads and in processes: order, epochs, and errors for lost senders."""

import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import torch

from graphfeed.channels import Closed, PeerError
from graphfeed.distributed import SamplerReceiver, SamplerSender
from graphfeed.distributed.wire import parse_address, to_batch
from tests.stand_ins.programs import Program, start_program
from tests.stand_ins.waiting import interrupt, stop, wait_until

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("warm_programs", "no_leaks")
TOKEN = "a token of the tests"


@pytest.fixture(params=["plain", pytest.param("tls", marks=pytest.mark.thorough)])
def receiver(request: pytest.FixtureRequest, certificates: list[tuple[bytes, bytes]]) -> Iterator[SamplerReceiver]:
    tls = certificates[0] if request.param == "tls" else None
    with SamplerReceiver(None, "127.0.0.1:0", num_sender=2, token=TOKEN, tls=tls, timeout=20) as receiver:
        receiver.graph = None if tls is None else tls[0]
        yield receiver


def sender_to(receiver: SamplerReceiver, token: str = TOKEN) -> SamplerSender:
    return SamplerSender({0: receiver.address}, token=token, tls_root_certs=receiver.graph, timeout=20)


@contextmanager
def in_threads(*works: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def work(receiver: SamplerReceiver, number: int, count: int, epochs: int = 1) -> None:
    """Send the given number of samples per epoch, without pauses between epochs."""
    with sender_to(receiver) as sender:
        for epoch in range(epochs):
            for step in range(count):
                sender.send({"of": torch.tensor([number, epoch, step]), "data": torch.full((20_000,), step)}, 0)
            sender.signal(0)


def receive(receiver: SamplerReceiver) -> list[list[int]]:
    samples = list(receiver)
    assert all(bool((sample["data"] == sample["of"][2]).all()) for sample in samples)
    return [sample["of"].tolist() for sample in samples]


@contextmanager
def process_that_sends(receiver: SamplerReceiver, count: int, then: str = "") -> Iterator[Program]:
    """Send the given number of samples from a process, which then waits."""
    text = f"""
import time, torch
from graphfeed.distributed import SamplerSender
sender = SamplerSender({{0: {receiver.address!r}}}, token={TOKEN!r}, tls_root_certs={receiver.graph!r}, timeout=20)
for step in range({count}):
    sender.send({{"step": torch.tensor(step), "data": torch.zeros(100_000)}}, 0)
    print(step, flush=True)
{then}
time.sleep(100)
"""
    program = start_program(text)
    try:
        yield program
    finally:
        program.kill()
        assert program.wait(20)


def test_epochs_have_all_samples_in_order_for_each_sender_and_do_not_mix(receiver: SamplerReceiver) -> None:
    with in_threads(partial(work, receiver, 0, 2, 3), partial(work, receiver, 1, 30, 3)):
        for epoch in range(3):
            samples = receive(receiver)
            assert len(samples) == 32
            for number, count in ((0, 2), (1, 30)):
                mine = [sample for sample in samples if sample[0] == number]
                assert mine == [[number, epoch, step] for step in range(count)]
    assert receiver.epoch == 3


def test_one_that_leaves_before_it_signals_is_noticed_behind_its_samples(receiver: SamplerReceiver) -> None:
    sender = sender_to(receiver)
    sender.send({"x": torch.ones(2)}, 0)
    sender.close()
    samples = iter(receiver)
    assert next(samples)["x"].tolist() == [1, 1]
    with pytest.raises(PeerError, match=r"sender 127\.0\.0\.1:\d+ left after 1 samples"):
        next(samples)
    sender_to(receiver).close()  # this one has sent nothing
    with in_threads(*(partial(work, receiver, number, 2) for number in range(2))):
        assert len(receive(receiver)) == 4


def test_silence_has_a_limit_and_who_is_silent_is_named() -> None:
    with SamplerReceiver(None, "127.0.0.1:0", num_sender=2, timeout=0.2) as receiver:
        with pytest.raises(TimeoutError, match=r"no sample came for 0\.2 s; 0 of 2 senders have signalled, and no ot"):
            list(receiver)
        with SamplerSender({0: receiver.address}) as silent, SamplerSender({0: receiver.address}) as other:
            other.signal(0)
            name = r"sender 127\.0\.0\.1:\d+ is connected"
            with pytest.raises(TimeoutError, match=rf"1 of 2 senders have signalled, and {name}"):
                list(receiver)
            silent.signal(0)
            assert list(receiver) == []
        receiver.close()
        receiver.close()


def test_garbage_and_callers_that_say_nothing_change_nothing(receiver: SamplerReceiver) -> None:
    place = parse_address(receiver.address)
    silent = [socket.create_connection(place) for _ in range(80)]
    generator = random.Random(0)
    for number in range(200):
        begin = [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
        with socket.create_connection(place, timeout=20) as sock, suppress(ConnectionError):
            sock.sendall(begin[number % 4] + generator.randbytes(number))
    with in_threads(*(partial(work, receiver, number, 5) for number in range(2))):
        assert len(receive(receiver)) == 10
    for sock in silent:
        sock.close()


def test_another_token_and_none_are_refused_and_others_come_through(receiver: SamplerReceiver) -> None:
    for token in ("", "other", TOKEN + "x"):
        with pytest.raises(PermissionError, match="has another token, or is not a graphfeed receiver"):
            sender_to(receiver, token)
    with in_threads(*(partial(work, receiver, number, 3) for number in range(2))):
        assert len(receive(receiver)) == 6


def test_callers_without_tls_or_with_another_certificate_are_told_so(certificates: list[tuple[bytes, bytes]]) -> None:
    (known, key), (unknown, _) = certificates
    with SamplerReceiver(None, "0.0.0.0:0", token=TOKEN, tls=(known, key), timeout=20) as receiver:
        port = parse_address(receiver.address)[1]
        for host, tls_root_certs, error in (
            ("127.0.0.1", None, r"not a graphfeed receiver \(connecting without TLS\)"),
            ("127.0.0.1", unknown, "no certificate that can be verified: .*self.signed"),
            ("127.0.0.2", known, r"no certificate that can be verified: .*127\.0\.0\.2"),
        ):
            with pytest.raises(PermissionError, match=error):
                SamplerSender({0: f"{host}:{port}"}, token=TOKEN, tls_root_certs=tls_root_certs, timeout=20)
        with SamplerSender({0: f"localhost:{port}"}, token=TOKEN, tls_root_certs=known, timeout=20) as sender:
            sender.signal(0)
            assert list(receiver) == []
    with (
        SamplerReceiver(None, "127.0.0.1:0", token=TOKEN, timeout=20) as receiver,
        pytest.raises(PermissionError, match="has no TLS, or no certificate that can be verified"),
    ):
        SamplerSender({0: receiver.address}, token=TOKEN, tls_root_certs=known, timeout=20)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_sender_is_named_behind_what_it_sent(receiver: SamplerReceiver, number: signal.Signals) -> None:
    with process_that_sends(receiver, 5) as program:
        samples = iter(receiver)
        assert next(samples)["step"] == 0
        wait_until(lambda: "1\n" in program.printed())  # some of the others are here, and one is in flight
        program.send_signal(number)
        begin, receiver.timeout = time.monotonic(), 1.0
        steps: list[int] = []
        error = PeerError if number == signal.SIGKILL else TimeoutError
        with pytest.raises(error, match=r"sender 127\.0\.0\.1:\d+ (was cut off before it sig|is connected)"):
            steps.extend(int(sample["step"]) for sample in samples)
        assert time.monotonic() - begin < 4
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= 1
    if number == signal.SIGSTOP:
        with pytest.raises(PeerError, match="was cut off"):  # it was killed at the end
            list(receiver)
    receiver.timeout = 20
    with in_threads(*(partial(work, receiver, number, 2) for number in range(2))):
        assert len(receive(receiver)) == 4


def test_one_that_dies_once_it_signalled_is_named_where_no_other_is_connected(receiver: SamplerReceiver) -> None:
    with process_that_sends(receiver, 1, "sender.signal(0); print('signalled', flush=True)") as program:
        samples = iter(receiver)
        next(samples)
        receiver.timeout = 1.0
        with pytest.raises(TimeoutError, match="1 of 2 senders have signalled"):
            next(samples)
        receiver.timeout = 20
        program.kill()
        with pytest.raises(PeerError, match=r"sender 127\.0\.0\.1:\d+ was cut off after it had signalled: the sender"):
            list(receiver)
    with in_threads(partial(work, receiver, 1, 2)):
        assert len(list(receiver)) == 2  # its signal counts


def test_what_is_no_sample_is_not_taken_and_its_sender_is_named(receiver: SamplerReceiver) -> None:
    wrongs: list[Any] = [3, [1], {"a": 1}, {"a": [torch.ones(1)]}]
    for wrong in wrongs:
        sender = sender_to(receiver)
        for batch in (to_batch("sample", wrong), to_batch("else", None)):
            with pytest.raises(ConnectionError, match=r"a message must be|is not a sample|connection is closed"):
                sender.connections[0].put(batch, 10)
        with pytest.raises(PeerError, match=r"was cut off before it signalled: (a message must be|the message is not)"):
            list(receiver)
        sender.close()


def test_an_interrupt_of_one_that_waits_loses_nothing_and_one_that_is_dropped_stops_to_listen() -> None:
    dropped = parse_address(SamplerReceiver(None, "127.0.0.1:0").address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(dropped, timeout=10)
    with (
        SamplerReceiver(None, "127.0.0.1:0", timeout=20) as receiver,
        SamplerSender({0: receiver.address}, timeout=20) as sender,
    ):
        with pytest.raises(KeyboardInterrupt):
            interrupt(lambda: list(receiver))
        sender.send({"": torch.arange(3), "ü": torch.ones(2, requires_grad=True)}, 0)
        with in_threads(lambda: sender.signal(0)):
            (found,) = receiver
    assert [(name, value.tolist()) for name, value in found.items()] == [("", [0, 1, 2]), ("ü", [1, 1])]


def test_a_lost_receiver_is_named_by_its_senders() -> None:
    program = start_program(f"""
import time
from graphfeed.distributed import SamplerReceiver
receiver = SamplerReceiver(None, "127.0.0.1:0", token={TOKEN!r})
print(receiver.address, flush=True)
next(iter(receiver))
print("received", flush=True)
time.sleep(100)
""")
    try:
        wait_until(lambda: "\n" in program.printed(), 60)
        address = program.printed().strip()
        with SamplerSender({0: address, 1: address}, token=TOKEN, timeout=20) as sender:
            sender.send({"x": torch.zeros(20_000)}, 0)
            wait_until(lambda: "received" in program.printed())
            stop(program.pid)
            sender.timeout = 0.5
            with pytest.raises(TimeoutError, match=r"receiver 1 took no sample for 0\.5 s; disconnected"):
                sender.send({"x": torch.zeros(20_000)}, 1)
            sender.timeout = 20
            program.kill()
            with pytest.raises(Closed, match=f"receiver 0 at {address} has closed the connection, or is dead"):
                sender.batch_send([{"x": torch.zeros(20_000)}] * 10, [0] * 10)
    finally:
        program.kill()
        assert program.wait(20)


def test_one_that_is_closed_says_so_also_between_two_samples(receiver: SamplerReceiver) -> None:
    with sender_to(receiver) as sender:
        samples = iter(receiver)
        sender.send({"x": torch.ones(1)}, 0)
        next(samples)
        sender.send({"x": torch.ones(1)}, 0)
        receiver.close()
        for left in (samples, iter(receiver)):
            with pytest.raises(RuntimeError, match="the receiver is closed; create a new"):
                next(left)
        with pytest.raises(Closed, match="has closed the connection, or is dead"):
            sender.send({"x": torch.ones(1)}, 0)
