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

from graphfeed.distributed import Peers
from graphfeed.distributed.ranks.owners import merge_answers
from graphfeed.distributed.ranks.transport import messages
from graphfeed.distributed.ranks.transport.connections import Connections, own_address
from graphfeed.distributed.ranks.transport.listener import GREETING, Listener
from graphfeed.distributed.ranks.transport.messages import Traffic, receive, send
from graphfeed.ops.memory import pinning
from graphfeed.testing import limits
from tests.kinds.digests import assert_same
from tests.kinds.joint import in_threads
from tests.kinds.refusals import check_refused
from tests.stand_ins.locked_memory import LockedMemory
from tests.stand_ins.waiting import wait_until

MESSAGES: list[tuple[dict[str, Any], dict[str, torch.Tensor]]] = [
    ({"id": 1, "options": {"key": 2**64 - 1}}, {"ids": torch.arange(5), "types": torch.ones(3, dtype=torch.uint8)}),
    ({}, {}),
    ({"id": 3}, {"none": torch.empty(0, 7), "rows": torch.randn(4, 3).bfloat16(), "mask": torch.tensor([True])}),
    ({"id": 4}, {"large": torch.arange(3_000_000), "columns": torch.arange(200).reshape(10, 20).t()}),
    ({"id": 5}, {f"{number}": torch.arange(number) for number in range(600)}),  # more than a system call sends
]


def test_tensors_and_options_of_every_kind_arrive_there_and_back_also_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "MOST_PIECES", 2)

    def work(rank: int, peers: Peers) -> None:
        seen: list[Any] = []

        def echo(options: Any, tensors: Any) -> Any:
            seen.append(options)
            return tensors

        name = peers.serve("echo", echo)
        for options, tensors in MESSAGES:
            ((_, found),) = peers.gather(name, options, {1 - rank: tensors})
            assert_same(found, tensors)
        wait_until(lambda: len(seen) == len(MESSAGES))  # the other rank may be later
        assert seen == [options for options, _ in MESSAGES]

    in_threads(2, work)


def test_what_arrives_while_results_are_pinned_is_not() -> None:
    # Torch would not notice the copies of its tensors to a GPU, and would reuse pinned memory too early.
    here, there = socket.socketpair()
    with here, there, LockedMemory().installed(), pinning(), ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, there, {}, {"small": torch.arange(10), "large": torch.arange(10_000)})
        _, found = receive(here)
        sent.result()
        assert_same(found, {"small": torch.arange(10), "large": torch.arange(10_000)})
        assert not any(tensor.is_pinned() for tensor in found.values())


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
    monkeypatch.setattr("graphfeed.distributed.ranks.transport.connections.INTERFACES_6", listed)
    assert own_address("127.0.0.1") == "fd00::2"
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
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


class Interrupted(socket.socket):
    """Reads until a user presses Ctrl+C."""

    def recv_into(self, *_: Any, **__: Any) -> int:
        raise KeyboardInterrupt


def test_who_is_interrupted_while_reading_for_another_is_told_apart_from_a_lost_connection(other: Other) -> None:
    connections = Connections(lambda: Interrupted(fileno=other.connect().detach()), 1)
    answer = connections.send_request({"question": 0}, {})[0]
    with pytest.raises(KeyboardInterrupt):
        connections.send_request({"question": 1}, {})
    with pytest.raises(InterruptedError, match="the thread that read a response got KeyboardInterrupt"):
        answer.read()
    connections.close()


def test_columns_that_do_not_fit_together_are_refused() -> None:
    def merge(counts: Any, sources: Any) -> object:
        tensors = {"counts": torch.tensor(counts, dtype=torch.int32), "sources": torch.tensor(sources)}
        return merge_answers([(torch.tensor([0, 1]), tensors)], {"sources": torch.int64})

    sums, lengths = "counts must be 0 or more and add up to the 2 values of their part", "equally long, but are 2 and 1"
    check_refused(
        [
            (lambda: merge([2, 1], [5, 6]), ValueError, sums),
            (lambda: merge([3, -1], [5, 6]), ValueError, sums),
            (lambda: merge([2], [5, 6]), ValueError, f"places and counts of a part must be {lengths}"),
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


def test_who_can_not_answer_says_why_and_answers_again() -> None:
    def work(rank: int, peers: Peers) -> None:
        rows = peers.serve("rows", lambda options, asked: {"rows": asked["ids"] * options["factor"]})
        sparse = peers.serve("rows", lambda *_: {"rows": torch.eye(2).to_sparse()})
        for _ in range(4):  # more than there are threads
            for name, said in ((rows, "KeyError: 'ids'"), (sparse, "TypeError: tensors of a message must be dense")):
                with pytest.raises(RuntimeError, match=said):
                    list(peers.gather(name, {"factor": 3}, {1 - rank: {}}))
            ((_, found),) = peers.gather(rows, {"factor": 3}, {1 - rank: {"ids": torch.arange(3)}})
            assert found["rows"].tolist() == [0, 3, 6]

    in_threads(2, work)


def ask(connection: socket.socket, name: str) -> Any:
    send(connection, {"name": name, "options": {"factor": 3}}, {"ids": torch.arange(3)})
    return receive(connection)


def test_who_does_not_know_the_token_gets_nothing(listener: Listener, connect: Connect) -> None:
    listener.serve("rows", lambda options, tensors: {})
    with connect(bytes(16)) as connection:
        assert connection.recv(1) == b""
    with connect() as connection:
        assert ask(connection, "rows 0") == ({}, {})


@limits(peer_seconds=0.05)
def test_who_says_nothing_keeps_no_thread(listener: Listener, connect: Connect) -> None:
    listener.serve("rows", lambda options, tensors: {})
    with connect() as first, connect() as second:
        address = first.getpeername()
        with socket.create_connection(address) as third, socket.create_connection(address) as fourth:
            assert ask(first, "rows 0") == ask(second, "rows 0") == ({}, {})
            first.close()
            assert (third.recv(1), fourth.recv(1)) == (b"", b"")
