import socket
import threading
from collections.abc import Iterator

import pytest
import torch

from graphfeed.channels.frames import (
    END,
    FRAME,
    SAMPLE,
    choose_token,
    greet,
    parse_address,
    receive_frame,
    send_frame,
)
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


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_malformed_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"an address must be as '127\.0\.0\.1:50051'"):
        parse_address(address)


def test_a_token_is_needed_where_others_can_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHFEED_TOKEN", raising=False)
    assert choose_token(None, "127.0.0.1") == choose_token(None, "localhost") == choose_token(None, "::1") == b""
    assert choose_token("x", "0.0.0.0") == b"x"
    for host in ("0.0.0.0", "example.org"):
        with pytest.raises(ValueError, match="can be reached by others: give both sides the same token"):
            choose_token(None, host)
    monkeypatch.setenv("GRAPHFEED_TOKEN", "y")
    assert choose_token(None, "0.0.0.0") == b"y"


def greet_both(pair: Pair, one: bytes, other: bytes, roles: tuple[bool, bool] = (True, False)) -> list[bool]:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(greet(pair[1], other, listens=roles[1])))
    thread.start()
    found.append(greet(pair[0], one, listens=roles[0]))
    thread.join(10)
    return found


def test_who_has_the_token_is_known(pair: Pair) -> None:
    assert greet_both(pair, b"a", b"a") == [True, True]


def test_another_token_or_the_same_role_is_not(pair: Pair) -> None:
    assert greet_both(pair, b"a", b"b") == [False, False]
    assert greet_both(pair, b"a", b"a", (True, True)) == [False, False]


def test_strangers_are_not_known(pair: Pair) -> None:
    pair[1].sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: browser\r\n\r\n")
    assert not greet(pair[0], b"a", listens=True)


def test_samples_come_back(pair: Pair) -> None:
    sample = {"a": torch.arange(7), "b": torch.zeros(0, 2), "c": torch.tensor(True), "d": torch.eye(3)[1:].half()}
    send_frame(pair[0], SAMPLE, sample)
    send_frame(pair[0], END)
    assert_same(receive_frame(pair[1]), (SAMPLE, sample))
    assert receive_frame(pair[1]) == (END, {})


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
        receive_frame(pair[1])


def test_more_than_anybody_would_send_is_refused(pair: Pair) -> None:
    pair[0].sendall(FRAME.pack(SAMPLE, 2, 1 << 60))
    with pytest.raises(ValueError, match="what came is no sample: kind 0, 2 and"):
        receive_frame(pair[1])


def test_an_end_in_the_middle_is_noticed(pair: Pair) -> None:
    pair[0].sendall(FRAME.pack(SAMPLE, 2, 0) + b"{")
    pair[0].close()
    with pytest.raises(Closed, match="closed the connection, or is dead"):
        receive_frame(pair[1])
