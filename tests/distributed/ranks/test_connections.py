"""One rank asks another through real sockets, whose other end the test holds."""

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from graphfeed.distributed.ranks.connections import Connections, open_connection, own_address
from graphfeed.distributed.ranks.messages import receive, send
from tests.waiting import wait_until


class Other:
    """The other rank: it answers each question when it is told to."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []

    def connect(self) -> socket.socket:
        own, other = socket.socketpair()
        self.ends.append(other)
        return own

    def answer(self, number: int, value: int) -> None:
        head, _ = receive(self.ends[number])
        send(self.ends[number], {"to": head["question"]}, {"value": torch.tensor(value)})


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    for end in made.ends:
        end.close()


def test_a_connection_is_used_again_once_its_answer_was_read(other: Other) -> None:
    connections = Connections(other.connect, 2)
    for number in range(3):
        answer, size = connections.ask({"question": number}, {})
        other.answer(0, number)
        for _ in range(2):
            head, tensors = answer.read()
            assert (head, int(tensors["value"])) == ({"to": number}, number)
        assert size > 8
    assert len(other.ends) == 1
    connections.close()


def test_where_all_connections_have_a_question_the_oldest_answer_is_read_first_and_kept(other: Other) -> None:
    connections = Connections(other.connect, 2)
    answers = [connections.ask({"question": number}, {})[0] for number in range(2)]
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(connections.ask, {"question": 2}, {})
        other.answer(1, 11)
        assert not third.done()
        other.answer(0, 10)
        answers.append(third.result(20)[0])
    other.answer(0, 12)
    assert [int(answer.read()[1]["value"]) for answer in answers] == [10, 11, 12]
    assert len(other.ends) == 2
    connections.close()


def test_a_connection_that_failed_is_replaced_and_its_question_has_no_answer(other: Other) -> None:
    connections = Connections(other.connect, 1)
    lost = connections.ask({"question": 0}, {})[0]
    other.ends[0].close()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            lost.read()
    found = connections.ask({"question": 1}, {})[0]
    other.answer(1, 5)
    assert int(found.read()[1]["value"]) == 5
    connections.close()


def test_the_end_wakes_all_who_wait(other: Other) -> None:
    connections = Connections(other.connect, 1)
    answer = connections.ask({"question": 0}, {})[0]
    errors: list[OSError] = []

    def wait() -> None:
        try:
            answer.read()
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    connections.close()
    for thread in threads:
        thread.join(20)
    assert len(errors) == 2
    with pytest.raises(ConnectionError, match="the peers have ended"):
        connections.ask({"question": 1}, {})


def test_a_connection_greets_and_an_answer_that_does_not_come_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = Connections(lambda: open_connection(server.getsockname()[:2], b"hello", 5, 0.0), 1)
        answer = connections.ask({}, {})[0]
        accepted = server.accept()[0]
        with accepted:
            assert accepted.recv(5) == b"hello"
            assert receive(accepted) == ({}, {})
            with pytest.raises(BlockingIOError):  # after a second
                answer.read()
        connections.close()


def test_the_own_address_is_that_of_the_way_to_another_one_or_of_a_named_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert own_address("127.0.0.1") == "127.0.0.1"
    with pytest.raises(OSError, match=r"."):
        own_address("no.such.host.invalid")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,eth9")
    assert own_address("no.such.host.invalid") == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "none9")
    with pytest.raises(OSError, match="GLOO_SOCKET_IFNAME is 'none9', but no such interface has an IPv4 address"):
        own_address("127.0.0.1")


def test_a_machine_without_a_name_for_others_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "no.such.host.invalid")
    assert own_address("no.such.host.invalid") == "127.0.0.1"


def test_a_fork_gives_up_its_copies(other: Other) -> None:
    connections = Connections(other.connect, 1)
    connections.ask({"question": 0}, {})
    child = os.fork()
    if child == 0:
        connections.abandon()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    other.answer(0, 1)  # the parent's own still works
    connections.close()
    wait_until(lambda: other.ends[0].recv(1) == b"")


def test_answers_that_have_come_are_read_also_where_nobody_waits(other: Other) -> None:
    connections = Connections(other.connect, 2)
    assert connections.has_all()
    for number in range(2):
        connections.ask({"question": number}, {})
    other.answer(0, 1)
    wait_until(lambda: not connections.has_all() and len(connections._unread) == 1)
    other.answer(1, 2)
    wait_until(connections.has_all)
    connections.close()


def test_who_is_interrupted_while_reading_for_another_is_told_apart_from_a_lost_connection(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(other.connect, 1)
    answer = connections.ask({"question": 0}, {})[0]

    def interrupt(_: socket.socket) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.distributed.ranks.connections.receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            connections.ask({"question": 1}, {})
    with pytest.raises(InterruptedError, match="the thread that read an answer got KeyboardInterrupt"):
        answer.read()
    connections.close()
