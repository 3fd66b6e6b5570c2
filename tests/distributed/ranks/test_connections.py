"""Requests of one rank to another through real sockets, whose other end is in the test."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.ranks import listener as room
from graphfeed.distributed.ranks import messages
from graphfeed.distributed.ranks.connections import Connections, open_connection, own_address
from graphfeed.distributed.ranks.exchange import merge_answers, request_from_owners
from graphfeed.distributed.ranks.listener import GREETING, Listener
from graphfeed.distributed.ranks.messages import Traffic, receive, send
from graphfeed.distributed.ranks.peers import Peers
from tests.digests import assert_same
from tests.refusals import check_refused
from tests.waiting import wait_until

MESSAGES: list[tuple[dict[str, Any], dict[str, torch.Tensor]]] = [
    ({"id": 1, "options": {"key": 2**64 - 1}}, {"ids": torch.arange(5), "types": torch.ones(3, dtype=torch.uint8)}),
    ({}, {}),
    ({"id": 3}, {"none": torch.empty(0, 7), "rows": torch.randn(4, 3).bfloat16(), "mask": torch.tensor([True])}),
    ({"id": 4}, {"large": torch.arange(3_000_000), "columns": torch.arange(200).reshape(10, 20).t()}),
]


def send_all(connection: socket.socket) -> list[int]:
    """Send the messages, and return the bytes of each."""
    return [send(connection, *message) for message in MESSAGES]


def test_messages_come_out_as_they_went_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for most_pieces in (1, 2, 512):
        monkeypatch.setattr(messages, "MOST_PIECES", most_pieces)
        one, other = socket.socketpair()
        one.settimeout(20)  # so that the system may accept a part of a message
        with one, other, ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send_all, one)
            found = [receive(other) for _ in MESSAGES]
            sizes = sent.result(20)
        assert_same(found, MESSAGES)
        assert sizes[3] > 24_000_000
        assert sizes[1] < 100


def test_a_connection_that_ends_within_a_message_says_so() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(messages.SIZE.pack(100) + bytes(99))
        one.close()
        with pytest.raises(ConnectionResetError, match="the other rank has closed the connection"):
            receive(other)


class Other:
    """The other rank, which answers each request when the test says so."""

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
        answer, size = connections.send_request({"question": number}, {})
        other.answer(0, number)
        for _ in range(2):
            head, tensors = answer.read()
            assert (head, int(tensors["value"])) == ({"to": number}, number)
        assert size > 8
    assert len(other.ends) == 1
    connections.close()


def test_where_all_connections_have_a_question_the_oldest_answer_is_read_first_and_kept(other: Other) -> None:
    connections = Connections(other.connect, 2)
    answers = [connections.send_request({"question": number}, {})[0] for number in range(2)]
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(connections.send_request, {"question": 2}, {})
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
    lost = connections.send_request({"question": 0}, {})[0]
    other.ends[0].close()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            lost.read()
    found = connections.send_request({"question": 1}, {})[0]
    other.answer(1, 5)
    assert int(found.read()[1]["value"]) == 5
    connections.close()


def test_the_end_wakes_all_who_wait(other: Other) -> None:
    connections = Connections(other.connect, 1)
    answer = connections.send_request({"question": 0}, {})[0]
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
        connections.send_request({"question": 1}, {})


def test_a_connection_greets_and_an_answer_that_does_not_come_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = Connections(lambda: open_connection(server.getsockname()[:2], b"hello", 5, 0.0, None), 1)
        answer = connections.send_request({}, {})[0]
        accepted = server.accept()[0]
        with accepted:
            assert accepted.recv(5) == b"hello"
            assert receive(accepted) == ({}, {})
            with pytest.raises(BlockingIOError):  # after a second
                answer.read()
        connections.close()


def test_the_own_address_is_that_of_the_way_to_another_one_or_of_a_named_interface(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert own_address("127.0.0.1") == "127.0.0.1"
    with pytest.raises(OSError, match=r"."):
        own_address("no.such.host.invalid")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,eth9")
    assert own_address("no.such.host.invalid") == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "none9")
    with pytest.raises(OSError, match="GLOO_SOCKET_IFNAME is 'none9', but no such interface has an address"):
        own_address("127.0.0.1")
    listed = tmp_path / "if_inet6"
    listed.write_text(f"fe80{1:028x} 04 40 20 80 none9\nfd00{2:028x} 04 40 00 82 none9\n")
    monkeypatch.setattr("graphfeed.distributed.ranks.connections.INTERFACES_6", listed)
    assert own_address("127.0.0.1") == "fd00::2"


def test_a_machine_without_a_name_for_others_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "no.such.host.invalid")
    assert own_address("no.such.host.invalid") == "127.0.0.1"


def test_a_fork_gives_up_its_copies(other: Other) -> None:
    connections = Connections(other.connect, 1)
    connections.send_request({"question": 0}, {})
    child = os.fork()
    if child == 0:
        connections.abandon()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    other.answer(0, 1)  # the parent's connection still works
    connections.close()
    wait_until(lambda: other.ends[0].recv(1) == b"")


def test_answers_that_have_come_are_read_also_where_nobody_waits(other: Other) -> None:
    connections = Connections(other.connect, 2)
    assert connections.has_all()
    for number in range(2):
        connections.send_request({"question": number}, {})
    other.answer(0, 1)
    wait_until(lambda: not connections.has_all() and len(connections._unread) == 1)
    other.answer(1, 2)
    wait_until(connections.has_all)
    connections.close()


def test_who_is_interrupted_while_reading_for_another_is_told_apart_from_a_lost_connection(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(other.connect, 1)
    answer = connections.send_request({"question": 0}, {})[0]

    def interrupt(_: socket.socket) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.distributed.ranks.connections.receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            connections.send_request({"question": 1}, {})
    with pytest.raises(InterruptedError, match="the thread that read a response got KeyboardInterrupt"):
        answer.read()
    connections.close()


DTYPES = {"sources": torch.int64}


def answer(places: list[int], counts: list[int], sources: list[int]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    tensors = {"counts": torch.tensor(counts, dtype=torch.int32), "sources": torch.tensor(sources, dtype=torch.int32)}
    return torch.tensor(places), tensors


def test_columns_of_any_length_come_back_in_the_order_of_the_questions() -> None:
    answers = [answer([1, 4], [2, 0], [10, 11]), answer([0, 2, 3], [1, 0, 3], [20, 21, 22, 23])]
    offsets, columns = merge_answers(answers, DTYPES)
    assert offsets.tolist() == [0, 1, 3, 3, 6, 6]
    assert columns["sources"].tolist() == [20, 10, 11, 21, 22, 23]
    assert columns["sources"].dtype == torch.int64
    alone = merge_answers([answer([0, 1], [2, 0], [10, 11])], DTYPES)[1]["sources"]
    assert (alone.tolist(), alone.dtype) == ([10, 11], torch.int64)


def test_nothing_asked_is_nothing_answered() -> None:
    offsets, columns = merge_answers([], DTYPES)
    assert offsets.tolist() == [0]
    assert columns["sources"].shape == (0,)


def test_a_single_rank_answers_by_itself() -> None:
    ids, peers = torch.tensor([3, 1]), Peers()
    name = peers.serve("feature", lambda options, questions: {"rows": questions["ids"] * options["factor"]})
    [(places, tensors)] = request_from_owners(
        peers, name, PartBook.from_bounds([0, 4]), ids, {"factor": 2}, {"ids": ids}
    )
    assert (places.tolist(), tensors["rows"].tolist()) == ([0, 1], [6, 2])


def test_columns_that_do_not_fit_together_are_refused() -> None:
    def merge(counts: Any, sources: Any) -> object:
        return merge_answers([answer([0, 1], counts, sources)], DTYPES)

    sums, lengths = "counts must be 0 or more and add up to the 2 values of their part", "equally long, but are 2 and 1"
    check_refused(
        [
            (lambda: merge([2, 1], [5, 6]), ValueError, sums),
            (lambda: merge([3, -1], [5, 6]), ValueError, sums),
            (lambda: merge([2], [5, 6]), ValueError, f"places and counts of a part must be {lengths}"),
            (lambda: merge([1, 1], [[5], [6]]), ValueError, "values must have 1 dimension"),
        ]
    )


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
    address, opened = listener.listen("anywhere")[0], []

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
    assert found[1][0]["error"].startswith("RuntimeError: it has ended without creating this graph")


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
