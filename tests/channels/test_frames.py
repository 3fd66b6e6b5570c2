import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch

from graphfeed.channels import frames
from graphfeed.channels.frames import END, FRAME, SAMPLE, FrameReader, Greeting, greet, pack_frame, send_parts
from graphfeed.loader.transport.thread_channel import Closed
from tests.digests import assert_same

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair()
    for sock in (here, there):
        sock.settimeout(10)
    with here, there:
        yield here, there


def greet_both(pair: Pair, one: bytes, other: bytes, roles: tuple[bool, bool] = (True, False)) -> list[bool]:
    found: list[bool] = []

    def answer() -> None:
        try:
            found.append(greet(pair[1], other, listens=roles[1]))
        except Closed:
            found.append(False)

    thread = threading.Thread(target=answer)
    thread.start()
    known = greet(pair[0], one, listens=roles[0])
    if not known:
        pair[0].close()
    thread.join(10)
    return [known, *found]


def test_who_has_the_token_is_known(pair: Pair) -> None:
    assert greet_both(pair, b"a", b"a") == [True, True]


def test_another_token_is_not(pair: Pair) -> None:
    assert greet_both(pair, b"a", b"b") == [False, False]


def test_the_same_role_is_not(pair: Pair) -> None:
    assert greet_both(pair, b"a", b"a", (False, False)) == [False, False]


def test_strangers_are_not_known(pair: Pair) -> None:
    pair[1].sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: browser\r\n\r\n")
    assert not greet(pair[0], b"a", listens=True)


def test_a_listener_proves_nothing_to_a_caller_without_the_token(pair: Pair) -> None:
    greeting = Greeting(pair[0], b"a", listens=True)
    pair[1].sendall(frames.MAGIC + bytes(frames.NONCE_BYTES))
    assert greeting.step() is None
    pair[1].sendall(bytes(frames.PROOF_BYTES))
    assert greeting.step() is False
    pair[0].close()
    assert len(pair[1].recv(1000)) == frames.HELLO_BYTES


def test_one_that_sends_a_byte_at_a_time_keeps_nobody_longer_than_the_limit(pair: Pair) -> None:
    ended = threading.Event()

    def trickle() -> None:
        with suppress(ConnectionError):
            for byte in frames.MAGIC:
                pair[1].sendall(bytes([byte]))
                if ended.wait(0.1):
                    return

    thread = threading.Thread(target=trickle)
    thread.start()
    pair[0].settimeout(0.2)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        greet(pair[0], b"a", listens=False)
    assert time.monotonic() - begin < 1.5
    ended.set()
    thread.join(10)


def test_samples_come_back(pair: Pair) -> None:
    sample = {"a": torch.arange(7), "b": torch.zeros(0, 2), "c": torch.tensor(True), "d": torch.eye(3)[1:].half()}
    send_parts(pair[0], [*pack_frame(SAMPLE, sample), *pack_frame(END)])
    reader = FrameReader(pair[1])
    assert_same(reader.read(), (SAMPLE, sample))
    assert reader.read() == (END, {})


def test_a_frame_that_comes_byte_by_byte_is_kept_until_it_is_whole(pair: Pair) -> None:
    sample = {"a": torch.arange(3), "b": torch.zeros(0, 2)}
    sent = b"".join(pack_frame(SAMPLE, sample))
    pair[1].setblocking(False)
    reader = FrameReader(pair[1])
    for place in range(len(sent)):
        assert reader.read() is None
        pair[0].sendall(sent[place : place + 1])
    assert_same(reader.read(), (SAMPLE, sample))
    assert reader.num_bytes == len(sent)


@pytest.mark.parametrize(
    ("sample", "error"),
    [
        ({"a": torch.zeros(1).expand(1 << 40)}, "a sample may have 17179869184 bytes, but this one has 4398046511104"),
        ({"a" * (1 << 24): torch.zeros(1)}, "names and shapes of a sample may have 16777216 bytes"),
        ({"a": torch.eye(2).to_sparse()}, "tensors of a message must be dense"),
        ({"a": [1]}, "a message must be a dict of texts to tensors, but has 'a': list"),
        ([1], "a message must be a dict of texts to tensors, but is a list"),
    ],
    ids=["bytes", "names", "sparse", "lists", "list"],
)
def test_what_no_receiver_takes_is_not_sent(sample: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        pack_frame(SAMPLE, sample)


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (b"x", 0),
        (b"{}", 1),
        (b'[["a", "int64", [2]]]', 8),
        (b'[["a", "int64", [-2]]]', 8),
        (b'[["a", "no type", [1]]]', 8),
        (b'[["a", "int64"]]', 8),
        (b"[1]", 8),
        (b"[" * 100_000, 8),
        (b'[["a", "uint8", [0, 1e400]]]', 0),
        (b'[["a", "uint8", [0, 9223372036854775808]]]', 0),
        (b'[["a", "uint8", [' + b"1, " * 64 + b"1]]]", 1),
    ],
)
def test_what_is_no_sample_is_refused(pair: Pair, header: bytes, size: int) -> None:
    pair[0].sendall(FRAME.pack(SAMPLE, len(header), size) + header + bytes(size))
    with pytest.raises(ValueError, match="what came is no sample"):
        FrameReader(pair[1]).read()


def test_more_than_anybody_would_send_is_refused(pair: Pair) -> None:
    pair[0].sendall(FRAME.pack(SAMPLE, 2, 1 << 60))
    with pytest.raises(ValueError, match="what came is no sample: kind 0, 2 and"):
        FrameReader(pair[1]).read()


def test_a_slow_receiver_is_waited_for_as_long_as_it_takes_something(pair: Pair) -> None:
    parts = pack_frame(SAMPLE, {"a": torch.zeros(60_000, dtype=torch.uint8)})
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pair[0].settimeout(0.5)

    def take_slowly() -> None:
        left = sum(map(len, parts))
        while left:
            time.sleep(0.05)
            left -= len(pair[1].recv(4000))

    thread = threading.Thread(target=take_slowly)
    thread.start()
    send_parts(pair[0], parts)
    thread.join(10)


def test_others_have_their_turn_while_a_large_sample_comes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BYTES_AT_ONCE", 10_000)
    sample = {str(number): torch.arange(1000) for number in range(6)}
    send_parts(pair[0], pack_frame(SAMPLE, sample))
    reader = FrameReader(pair[1])
    for _ in range(2):
        before = reader.num_bytes
        assert reader.read() is None
        assert 10_000 <= reader.num_bytes - before < 20_000
    assert_same(reader.read(), (SAMPLE, sample))


def test_an_end_in_the_middle_is_noticed(pair: Pair) -> None:
    pair[0].sendall(FRAME.pack(SAMPLE, 2, 0) + b"{")
    pair[0].close()
    with pytest.raises(Closed, match="closed the connection, or is dead"):
        FrameReader(pair[1]).read()
