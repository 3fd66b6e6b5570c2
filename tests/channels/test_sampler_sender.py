import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.channels.channel_client import PeerError
from graphfeed.channels.sampler_receiver import SamplerReceiver
from graphfeed.channels.sampler_sender import SamplerSender

pytestmark = pytest.mark.usefixtures("no_leaks")


def wait_in_vain(receiver: SamplerReceiver) -> None:
    """Let senders in, and wait for samples that nobody sends."""
    with pytest.raises(TimeoutError, match="no sample came"):
        list(receiver)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="namebook must have a receiver's address"):
        SamplerSender({})
    with pytest.raises(ValueError, match="net_type must be 'socket', but is 'mpi'"):
        SamplerSender({0: "127.0.0.1:1"}, "mpi")
    with pytest.raises(ValueError, match="an address must be"):
        SamplerSender({0: "somewhere"})
    with pytest.raises(ValueError, match="nobody can be called at port 0"):
        SamplerSender({0: "127.0.0.1:0"})
    with pytest.raises(ValueError, match=r"give tls_root_certs=\.\.\., or write 'tcp://node7:5' where nobody else"):
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
    with pytest.raises(TimeoutError, match=rf"receiver 127\.0\.0\.1:{port} did not answer for 0\.3 s"):
        SamplerSender({0: f"127.0.0.1:{port}"}, timeout=0.3)
    with pytest.raises(TimeoutError, match=r"did not answer for 0\.3 s: is it running\? The last error was: "):
        SamplerSender({0: "tcp://nowhere.invalid:5"}, token="a", timeout=0.3)


def test_a_receiver_that_lets_nobody_in_is_named() -> None:
    with (
        SamplerReceiver(None, "127.0.0.1:0") as receiver,
        pytest.raises(TimeoutError, match=r"receiver .* let nobody in for 0\.3 s: it does so while it is iterated"),
    ):
        SamplerSender({0: receiver.address}, timeout=0.3)


@contextmanager
def connected(timeout: float = 20.0) -> Iterator[tuple[SamplerReceiver, SamplerSender]]:
    """Yield a receiver, and a sender that it has let in."""
    made: list[SamplerSender] = []
    with SamplerReceiver(None, "127.0.0.1:0", timeout=timeout) as receiver:
        thread = threading.Thread(target=lambda: made.append(SamplerSender({3: receiver.address}, timeout=60)))
        thread.start()
        receiver.timeout = 0.3
        wait_in_vain(receiver)
        receiver.timeout = timeout
        thread.join(10)
        with made[0]:
            yield receiver, made[0]


def test_a_receiver_that_takes_nothing_is_left() -> None:
    with connected() as (_, sender):
        sender.timeout = 0.3
        sender.sockets[3].settimeout(sender.timeout)
        with pytest.raises(TimeoutError, match=r"receiver 3 took nothing for 0\.3 s; it was left"):
            sender.send({"x": torch.zeros(20_000_000)}, 3)
        with pytest.raises(KeyError, match=r"recv_id must be one of \[\], but is 3"):
            sender.signal(3)


class Interrupted:
    """A socket whose last bytes are not sent, because an interrupt comes."""

    def __init__(self, sock: socket.socket, lacks: int) -> None:
        self.sock, self.lacks = sock, lacks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)

    def send(self, part: memoryview) -> int:
        if len(part) == 1000:
            self.sock.sendall(part[: -self.lacks])
            raise KeyboardInterrupt
        return self.sock.send(part)


@pytest.mark.parametrize("lacks", [1, 13, 15, 40])
def test_an_interrupt_in_the_middle_of_a_sample_makes_no_sample(lacks: int) -> None:
    with connected() as (receiver, sender):
        sock: Any = Interrupted(sender.sockets[3], lacks)
        sender.sockets[3] = sock
        with pytest.raises(KeyboardInterrupt):
            sender.send({"x": torch.full((1000,), 7, dtype=torch.uint8)}, 3)
        sender.close()
        with pytest.raises(PeerError, match="was cut off before it signalled"):
            list(receiver)


def test_what_cannot_be_sent_leaves_the_connection_as_it_is() -> None:
    with connected() as (receiver, sender):
        wrong: Any = gf.MiniBatch()
        with pytest.raises(TypeError, match="a message must be a dict of texts to tensors, but is a MiniBatch"):
            sender.send(wrong, 3)
        with pytest.raises(ValueError, match="send less at a time"):
            sender.send({"x": torch.zeros(1).expand(1 << 40)}, 3)
        sender.signal(3)
        assert list(receiver) == []


def test_a_sender_that_nobody_has_closed_waits_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.channels.sampler_sender.LEAVE_SECONDS", 0.1)
    with connected() as (_, sender):
        sender.sockets[3].setblocking(False)
        with suppress(BlockingIOError):
            while True:
                sender.sockets[3].send(bytes(1 << 20))
        begin = time.monotonic()
        sender.__del__()
        assert time.monotonic() - begin < 5
