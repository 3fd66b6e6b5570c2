import errno
import itertools
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphfeed.channels.addresses import parse_address
from graphfeed.channels.channel_client import PeerError
from graphfeed.channels.frames import SAMPLE, Greeting, pack_frame
from graphfeed.channels.sampler_receiver import SamplerReceiver
from graphfeed.channels.sampler_sender import SamplerSender
from graphfeed.loader.transport.thread_channel import Closed
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
TOKEN = "a token of the tests"


@pytest.fixture(params=["plain", "tls"])
def receiver(request: pytest.FixtureRequest, certificate: tuple[bytes, bytes]) -> Iterator[SamplerReceiver]:
    tls = certificate if request.param == "tls" else None
    with SamplerReceiver(None, "127.0.0.1:0", num_sender=2, token=TOKEN, tls=tls, timeout=5) as receiver:
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
    """Send so many samples per epoch, each epoch at once after the other."""
    sender = sender_to(receiver)
    for epoch in range(epochs):
        for step in range(count):
            sender.send({"of": torch.tensor([number, epoch, step]), "data": torch.full((20_000,), step)}, 0)
        sender.signal(0)
    sender.close()


def found(receiver: SamplerReceiver) -> list[list[int]]:
    samples = list(receiver)
    assert all(bool((sample["data"] == sample["of"][2]).all()) for sample in samples)
    return [sample["of"].tolist() for sample in samples]


def test_an_epoch_has_all_samples_in_order_for_each_sender(receiver: SamplerReceiver) -> None:
    with in_threads(*(partial(work, receiver, number, 30) for number in range(2))):
        samples = found(receiver)
    assert len(samples) == 60
    for number in range(2):
        assert [sample for sample in samples if sample[0] == number] == [[number, 0, step] for step in range(30)]


def test_epochs_do_not_mix_however_fast_a_sender_is(receiver: SamplerReceiver) -> None:
    with in_threads(partial(work, receiver, 0, 2, 3), partial(work, receiver, 1, 60, 3)):
        for epoch in range(3):
            samples = found(receiver)
            assert len(samples) == 62
            assert {sample[1] for sample in samples} == {epoch}


def test_one_that_leaves_before_it_signals_is_noticed(receiver: SamplerReceiver) -> None:
    def leave() -> None:
        sender_to(receiver).send({"x": torch.ones(2)}, 0)

    with in_threads(leave), pytest.raises(PeerError, match=r"sender 127\.0\.0\.1:\d+ left after 1 samples"):
        list(receiver)


def test_one_that_is_cut_off_is_noticed(receiver: SamplerReceiver) -> None:
    def break_off() -> None:
        sender = sender_to(receiver)
        sender.sockets.pop(0).close()

    with (
        in_threads(break_off),
        pytest.raises(PeerError, match="was cut off before it signalled: the sender has closed"),
    ):
        list(receiver)


def test_silence_has_a_limit() -> None:
    receiver = SamplerReceiver(None, "127.0.0.1:0", num_sender=2, timeout=0.05)
    with pytest.raises(TimeoutError, match=r"no sample came for 0\.05 s; 0 of 2 senders have signalled, and no other"):
        list(receiver)
    receiver.close()
    receiver.close()


def test_a_sender_that_stops_sending_is_named() -> None:
    receiver, senders = SamplerReceiver(None, "127.0.0.1:0", timeout=0.3), list[SamplerSender]()
    silent = r"0 of 1 senders have signalled, and sender 127\.0\.0\.1:\d+ is connected"
    connecting = in_threads(lambda: senders.append(SamplerSender({0: receiver.address})))
    with connecting, pytest.raises(TimeoutError, match=silent):
        list(receiver)
    senders[0].close()
    receiver.close()


def test_callers_that_prove_nothing_keep_nobody_waiting(
    receiver: SamplerReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphfeed.channels.sampler_receiver.GREETING_SECONDS", 0.2)
    place = ("127.0.0.1", int(receiver.address.rpartition(":")[2]))
    strangers = [socket.create_connection(place) for _ in range(80)]  # more than greetings at once
    for number, stranger in enumerate(strangers):
        stranger.sendall([b"", b"graph", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1000][number % 4])
    begin = time.monotonic()
    with in_threads(*(partial(work, receiver, number, 5) for number in range(2))):
        assert len(found(receiver)) == 10
    assert time.monotonic() - begin < 5  # one after the other, they would take 4 seconds and more
    for stranger in strangers:
        stranger.close()
    assert len(receiver.connections) == 2


def test_a_caller_that_is_slow_to_prove_it_is_let_in(receiver: SamplerReceiver) -> None:
    sender = threading.Thread(target=partial(work, receiver, 0, 1))
    sender.start()
    sender.join(0.3)  # it waits for the receiver, which is busy meanwhile
    with in_threads(partial(work, receiver, 1, 1)):
        assert len(found(receiver)) == 2
    sender.join(20)


def test_the_time_in_which_nobody_iterates_is_not_taken_from_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr("graphfeed.channels.sampler_receiver.time", clock)
    with (
        SamplerReceiver(None, "127.0.0.1:0", token=TOKEN, timeout=20) as receiver,
        socket.create_connection(parse_address(receiver.address)) as sock,
    ):
        Greeting(sock, TOKEN.encode(), listens=False)  # and no proof yet
        with in_threads(partial(work, receiver, 0, 2)):
            samples = iter(receiver)
            for _ in range(2):
                next(samples)
                assert len(receiver.callers) == 1
                passed[0] += 100
            assert list(samples) == []
            assert len(receiver.callers) == 1


def test_what_is_left_of_an_epoch_can_be_taken_later(receiver: SamplerReceiver) -> None:
    with in_threads(*(partial(work, receiver, number, 3) for number in range(2))):
        first = next(iter(receiver))
        assert len([first, *receiver]) == 6


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="num_sender must be 1 or more, but is 0"):
        SamplerReceiver(None, "127.0.0.1:0", 0)
    with pytest.raises(ValueError, match="net_type must be 'socket', but is 'mpi'"):
        SamplerReceiver(None, "127.0.0.1:0", 1, "mpi")
    with pytest.raises(ValueError, match="can be reached by others"):
        SamplerReceiver(None, "tcp://0.0.0.0:0", token="")
    with pytest.raises(ValueError, match=r"give tls=\(certificate, key\), or write 'tcp://0\.0\.0\.0:0'"):
        SamplerReceiver(None, "0.0.0.0:0", token=TOKEN)
    with pytest.raises(ValueError, match="tls must be a certificate chain"):
        SamplerReceiver(None, "0.0.0.0:0", token=TOKEN, tls=(b"", b""))


@pytest.mark.slow
def test_garbage_changes_nothing(receiver: SamplerReceiver) -> None:
    place = ("127.0.0.1", int(receiver.address.rpartition(":")[2]))

    def disturb() -> None:
        generator = random.Random(0)
        for number in range(500):
            begin = [b"", b"graphfeed channel 1\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"][number % 4]
            with socket.create_connection(place, timeout=20) as sock, suppress(ConnectionError):
                sock.sendall(begin + generator.randbytes(number))
        work(receiver, 0, 30)

    with in_threads(disturb, partial(work, receiver, 1, 30)):
        assert len(found(receiver)) == 60
    assert len(receiver.connections) == 2


def test_another_token_and_none_are_refused_and_others_come_through(receiver: SamplerReceiver) -> None:
    def try_tokens() -> None:
        for token in ("", "other", TOKEN + "x"):
            with pytest.raises(PermissionError, match="has another token, or is not one of graphfeed's"):
                sender_to(receiver, token)
        work(receiver, 0, 3)

    with in_threads(try_tokens, partial(work, receiver, 1, 3)):
        assert len(found(receiver)) == 6


def test_callers_without_tls_or_with_another_certificate_are_told_so(pairs: list[tuple[bytes, bytes]]) -> None:
    (known, key), (unknown, _) = pairs

    def call(port: int) -> None:
        for host, tls_root_certs, error in (
            ("127.0.0.1", None, r"not one of graphfeed's \(it was called without TLS\)"),
            ("127.0.0.1", unknown, "no certificate that is known: .*self.signed"),
            ("127.0.0.2", known, r"no certificate that is known: .*127\.0\.0\.2"),
        ):
            with pytest.raises(PermissionError, match=error):
                SamplerSender({0: f"{host}:{port}"}, token=TOKEN, tls_root_certs=tls_root_certs, timeout=20)
        with SamplerSender({0: f"localhost:{port}"}, token=TOKEN, tls_root_certs=known, timeout=20) as sender:
            sender.signal(0)

    with (
        SamplerReceiver(None, "0.0.0.0:0", token=TOKEN, tls=(known, key), timeout=20) as receiver,
        in_threads(partial(call, int(receiver.address.rpartition(":")[2]))),
    ):
        assert list(receiver) == []


def test_a_receiver_without_tls_is_refused_by_a_sender_with_it(certificate: tuple[bytes, bytes]) -> None:
    with SamplerReceiver(None, "127.0.0.1:0", token=TOKEN, timeout=20) as receiver:

        def call() -> None:
            with pytest.raises(PermissionError, match="has no TLS, or no certificate that is known"):
                SamplerSender({0: receiver.address}, token=TOKEN, tls_root_certs=certificate[0], timeout=20)
            with sender_to(receiver) as sender:
                sender.signal(0)

        with in_threads(call):
            assert list(receiver) == []


def in_child(function: Callable[[], object]) -> Any:
    """Start a process that calls a function, and then kills itself."""

    def call() -> None:
        kept = function()  # noqa: F841 (a sender that is freed would say that it leaves)
        os.kill(os.getpid(), signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=call)
    child.start()
    return child


@pytest.mark.parametrize("part", [0, 5, 30, 1000, 50_000])
def test_a_killed_sender_is_named_at_once_wherever_it_was(receiver: SamplerReceiver, part: int) -> None:
    def send() -> SamplerSender:
        sender = sender_to(receiver)
        sender.send({"x": torch.arange(3)}, 0)
        sender.sockets[0].sendall(b"".join(pack_frame(SAMPLE, {"x": torch.zeros(20_000)}))[:part])
        return sender

    child = in_child(send)
    samples = iter(receiver)
    assert next(samples)["x"].tolist() == [0, 1, 2]
    child.join(20)
    begin = time.monotonic()
    with pytest.raises(PeerError, match=r"sender 127\.0\.0\.1:\d+ was cut off before it signalled"):
        next(samples)
    assert time.monotonic() - begin < 2
    with in_threads(*(partial(work, receiver, number, 2) for number in range(2))):
        assert len(found(receiver)) == 4


def test_a_killed_receiver_is_named_by_its_senders(receiver: SamplerReceiver) -> None:
    child = in_child(lambda: next(iter(receiver)))
    sender = sender_to(receiver)
    receiver.close()
    gone = f"receiver 0 at {receiver.address} has closed the connection, or is dead"
    with pytest.raises(Closed, match=gone):
        sender.batch_send([{"x": torch.zeros(20_000)}] * 1000, [0] * 1000)
    child.join(20)
    sender.close()


def test_a_sender_that_stops_in_the_middle_of_a_sample_keeps_no_other_waiting(receiver: SamplerReceiver) -> None:
    stopped: list[SamplerSender] = []

    def stop() -> None:
        stopped.append(sender_to(receiver))
        stopped[0].sockets[0].sendall(b"".join(pack_frame(SAMPLE, {"x": torch.zeros(20_000)}))[:-1])
        work(receiver, 1, 5)

    receiver.timeout = 0.5
    samples = iter(receiver)
    with in_threads(stop):
        assert [next(samples)["of"].tolist() for _ in range(5)] == [[1, 0, step] for step in range(5)]
    name = rf"127\.0\.0\.1:{stopped[0].sockets[0].getsockname()[1]}"
    with pytest.raises(TimeoutError, match=rf"1 of 2 senders have signalled, and sender {name} is connected"):
        next(samples)
    stopped[0].sockets.pop(0).close()


def test_a_slow_reader_makes_senders_wait_and_loses_nothing(receiver: SamplerReceiver) -> None:
    sent = itertools.count()
    receiver.num_sender = 1

    def send() -> None:
        with sender_to(receiver) as sender:
            for step in range(20):
                sender.send({"step": torch.tensor(step), "data": torch.zeros(1 << 20)}, 0)
                next(sent)
            sender.signal(0)

    with in_threads(send):
        samples = iter(receiver)
        assert next(samples)["step"] == 0
        time.sleep(0.3)
        assert next(sent) < 10
        assert [int(sample["step"]) for sample in samples] == list(range(1, 20))


def test_an_interrupt_in_the_middle_of_a_sample_loses_nothing(receiver: SamplerReceiver) -> None:
    receiver.num_sender = 1
    sample = {"x": torch.arange(20_000)}
    frame = b"".join(pack_frame(SAMPLE, sample))
    go_on = threading.Event()

    def send() -> None:
        with sender_to(receiver) as sender:
            sender.sockets[0].sendall(frame[:70_000])
            assert go_on.wait(20)
            sender.sockets[0].sendall(frame[70_000:])
            sender.signal(0)

    def interrupt() -> None:
        wait_until(lambda: any(peer.frames.num_bytes == 70_000 for peer in receiver.connections))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with in_threads(send):
        with in_threads(interrupt), pytest.raises(KeyboardInterrupt):
            list(receiver)
        go_on.set()
        (found,) = receiver
    assert torch.equal(found["x"], sample["x"])


@pytest.mark.parametrize("address", ["localhost:0", "[::1]:0"])
def test_an_address_may_be_a_name_or_of_ipv6(address: str) -> None:
    try:
        receiver = SamplerReceiver(None, address, token=TOKEN, timeout=5)
    except OSError:
        pytest.skip("no IPv6")
    with receiver, in_threads(partial(work, receiver, 0, 2)):
        assert len(found(receiver)) == 2


def test_a_closed_receiver_says_so(receiver: SamplerReceiver) -> None:
    receiver.close()
    with pytest.raises(RuntimeError, match="the receiver is closed; make another"):
        next(iter(receiver))


def test_one_that_is_closed_between_two_samples_says_so(receiver: SamplerReceiver) -> None:
    def send() -> None:
        with sender_to(receiver) as sender:
            for _ in range(2):
                sender.send({"x": torch.ones(1)}, 0)
                sender.signal(0)

    with in_threads(send, send):
        assert len(list(receiver)) == 2
    samples = iter(receiver)  # both have sent
    next(samples)
    receiver.close()
    with pytest.raises(RuntimeError, match="the receiver is closed; make another"):
        next(samples)


def test_lack_of_files_is_an_error_and_a_caller_that_has_gone_is_none(receiver: SamplerReceiver) -> None:
    def accept(number: int) -> None:
        raise OSError(number, "")

    listener: Any = SimpleNamespace(accept=partial(accept, errno.ECONNABORTED), close=receiver.listener.close)
    receiver.listener = listener
    receiver._accept()
    listener.accept = partial(accept, errno.EMFILE)
    with pytest.raises(OSError, match=str(errno.EMFILE)):
        receiver._accept()
