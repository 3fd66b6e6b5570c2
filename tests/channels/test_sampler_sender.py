import socket
import threading

import pytest
import torch

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


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(TimeoutError, match=rf"receiver 127\.0\.0\.1:{port} did not answer for 0\.3 s"):
        SamplerSender({0: f"127.0.0.1:{port}"}, timeout=0.3)


def test_another_token_is_refused() -> None:
    receiver = SamplerReceiver(None, "127.0.0.1:0", token="a", timeout=2.0)
    thread = threading.Thread(target=wait_in_vain, args=(receiver,))
    thread.start()
    with pytest.raises(PermissionError, match="has another token, or is not one of graphfeed's"):
        SamplerSender({0: receiver.address}, token="b")
    thread.join(10)
    receiver.close()


def test_a_receiver_that_takes_nothing_is_left() -> None:
    receiver = SamplerReceiver(None, "127.0.0.1:0", timeout=1.0)
    made: list[SamplerSender] = []
    thread = threading.Thread(target=lambda: made.append(SamplerSender({3: receiver.address}, timeout=60)))
    thread.start()
    wait_in_vain(receiver)
    thread.join(10)
    (sender,) = made
    sender.timeout = 0.5
    sender.sockets[3].settimeout(sender.timeout)
    with pytest.raises(TimeoutError, match=r"receiver 3 took nothing for 0\.5 s; it was left"):
        sender.send({"x": torch.zeros(20_000_000)}, 3)
    with pytest.raises(KeyError, match=r"recv_id must be one of \[\], but is 3"):
        sender.signal(3)
    receiver.close()
