"""A listener, and connections to it that the test opens."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from graphfeed.distributed.ranks import listener as room
from graphfeed.distributed.ranks.listener import GREETING, Listener
from graphfeed.distributed.ranks.messages import Traffic, receive, send

Connect = Callable[..., socket.socket]


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener(2, Traffic(), lambda rank, connection: pulses.append((rank, connection)))
    pulses: list[tuple[int, socket.socket]] = []
    yield made
    made.close()
    for _, connection in pulses:
        connection.close()


@pytest.fixture
def connect(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    address, opened = listener.listen("anywhere"), []

    def connect_to(token: bytes = listener.token, is_pulse: bool = False) -> socket.socket:
        connection = socket.create_connection(address, 20)
        connection.sendall(GREETING.pack(token, 7, is_pulse))
        opened.append(connection)
        return connection

    yield connect_to
    for connection in opened:
        connection.close()


def ask(connection: socket.socket, name: str) -> Any:
    send(connection, {"name": name, "options": {"factor": 3}}, {"ids": torch.arange(3)})
    return receive(connection)


def test_questions_are_answered_on_one_connection_after_the_other(listener: Listener, connect: Connect) -> None:
    name = listener.serve("rows", lambda options, tensors: {"rows": tensors["ids"] * options["factor"]})
    other = listener.serve("rows", lambda options, tensors: {"rows": tensors["missing"]})
    assert (name, other) == ("rows 0", "rows 1")
    for _ in range(4):  # more than there are threads
        with connect() as connection:
            head, tensors = ask(connection, name)
            assert (head, tensors["rows"].tolist()) == ({}, [0, 3, 6])
            assert ask(connection, other) == ({"error": "KeyError: 'missing'"}, {})


def test_an_answer_that_can_not_be_sent_is_an_error_of_who_answers(listener: Listener, connect: Connect) -> None:
    sparse = torch.eye(2).to_sparse()
    name = listener.serve("rows", lambda options, tensors: {"rows": sparse})
    with connect() as connection:
        for _ in range(4):  # more than there are threads
            assert "TypeError: tensors of a message must be dense" in ask(connection, name)[0]["error"]


def test_threads_that_can_not_start_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Listener(3, Traffic(), lambda rank, connection: None)
    assert not any(thread.is_alive() for thread in started)


def test_who_does_not_know_the_token_gets_nothing(listener: Listener, connect: Connect) -> None:
    listener.serve("rows", lambda options, tensors: {})
    with connect(bytes(16)) as connection:
        assert connection.recv(1) == b""
    with connect() as connection:
        assert ask(connection, "rows 0") == ({}, {})


def test_who_says_nothing_keeps_no_thread(
    listener: Listener, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "GREETING_SECONDS", 0.05)
    listener.serve("rows", lambda options, tensors: {})
    with connect() as first, connect() as second:
        address = first.getpeername()
        with socket.create_connection(address) as third, socket.create_connection(address) as fourth:
            assert ask(first, "rows 0") == ask(second, "rows 0") == ({}, {})
            first.close()
            assert (third.recv(1), fourth.recv(1)) == (b"", b"")


def test_a_question_waits_for_what_is_made_later_and_is_refused_at_the_end(
    listener: Listener, connect: Connect
) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda name=name: found.append(ask(connect(), name))) for name in ("a 0", "b 0")]
    for thread in threads:
        thread.start()
    listener.serve("a", lambda options, tensors: {})
    threads[0].join(20)
    assert found == [({}, {})]
    listener.end()
    threads[1].join(20)
    assert found[1][0]["error"].startswith("RuntimeError: it has ended, and made no such graph")


def test_two_questions_are_answered_at_the_same_time(listener: Listener, connect: Connect) -> None:
    both = threading.Barrier(2, timeout=20)
    listener.serve("rows", lambda options, tensors: {"number": torch.tensor(both.wait())})
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(ask(connect(), "rows 0"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(int(tensors["number"]) for _, tensors in found) == [0, 1]
