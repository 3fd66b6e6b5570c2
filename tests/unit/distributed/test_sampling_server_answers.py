"""Tests of requests, and of responses with several mini-batches: their number, and failures in the middle."""

import gc
import json
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.servers import sampling_server
from graphfeed.distributed.servers.remote_executor import RemoteExecutor
from graphfeed.distributed.servers.tickets import (
    LARGEST_TICKET,
    MADE,
    Cut,
    describe_cut,
    read_cut,
    read_question,
    read_ticket,
    unpack_cuts,
    write_question,
    write_ticket,
)
from graphfeed.distributed.wire import FlightServer, import_flight, to_batch
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.kinds.refusals import check_all_refused
from tests.stand_ins.served import TOKEN, Fails, Held, loader
from tests.stand_ins.waiting import wait_until

FIELDS = {"fingerprint": {"1 ItemSampler": {}}, "streams": [], "rank": [0, 2], "release": "1", "task": [0, -1, 0, 0]}
NO_TEXTS = [b"", b"\xff", b"[]", b"{}", b"null", b"[" * 100_000]
NO_TICKETS = [
    *NO_TEXTS[:5],
    json.dumps({"fingerprint": {}, "streams": [], "rank": None, "release": "1"}).encode(),
    *[b"%b\n[0, 0, 0, 0]" % text for text in NO_TEXTS],
    *[b"\n%b" % task for task in (b"[0, 0]", b"[0, 0, 0]", b"[0, 0, 0, [1]]", b"{}", b"[" * 100_000)],
]
WRONG_FIELDS: list[Any] = [
    *[{"fingerprint": {"1 ItemSampler": value}} for value in (3, {"batch_size": [2]})],
    {"streams": None},
    *[{"rank": value} for value in (["0", 2], [0], [2, 2], [-1, 2], {"0": 1}, [False, True])],
    *[{"task": [0, 0, 0, value]} for value in (float("inf"), -1)],
    *[{"task": value} for value in ([0, 0, 0], [0, 0, 0, 1, -1], [0, 0, -1, 0], [0, "0", 0, 0], [None, 0, 0, 0])],
    {"more": 1},
]
NO_QUESTIONS = ["", "[]", "[1, 1]", "[0, true]", "{", "[" * 99, "[" * 100_000, "[0, 1" + "0" * 99 + "]"]


def understand(ticket: bytes) -> tuple[Cut, list[tuple[int, int, int]], bool]:
    text, tasks, is_measured = read_ticket(ticket)
    return read_cut(text), tasks, is_measured


def ticket_of(fields: dict[str, Any]) -> bytes:
    """Write a ticket by hand."""
    head = {name: value for name, value in fields.items() if name != "task"}
    return f"{json.dumps(head)}\n{json.dumps(fields['task'])}".encode()


def test_a_ticket_and_a_question_say_the_same_to_the_server_and_so_does_its_answer() -> None:
    cut = describe_cut(pipelines.homogeneous())
    assert understand(write_ticket(cut, 1, 2, [3, 5])) == (cut, [(1, 2, 3), (1, 2, 5)], False)
    assert understand(write_ticket(cut, 1, 2, [3], is_measured=True)) == (cut, [(1, 2, 3)], True)
    assert understand(ticket_of(FIELDS))[1] == [(-1, 0, 0)]
    assert read_question(write_question((1, 3))) == [1, 3]
    assert unpack_cuts(json.loads(json.dumps([[asdict(cut), 10]]))) == [(cut, 10)]


def test_what_is_no_ticket_or_question_is_refused() -> None:
    check_all_refused(understand, NO_TICKETS, "not a ticket")
    check_all_refused(understand, [ticket_of({**FIELDS, **wrong}) for wrong in WRONG_FIELDS], "not a ticket")
    asked = [b"about " + text.encode() for text in NO_QUESTIONS]
    check_all_refused(read_question, asked, "not a query about the pipeline")
    packed = [None, [1], [[{}, 1]], [[{"fingerprint": 1, "streams": [], "rank": None, "release": "1"}, 1]]]
    check_all_refused(unpack_cuts, packed, "does not send such a response")
    with pytest.raises(ValueError, match="at most 1048576 bytes, but this one has 1048577"):  # before it is parsed
        read_ticket(b" " * (LARGEST_TICKET + 1))


pytest.importorskip("pyarrow")


CUT = Cut({}, [], None, gf.__version__)


@contextmanager
def asking_for_eight(pipe: gf.Datapipe, server: SamplingServer, *others: str) -> Iterator[list[Future[Any]]]:
    """Yield the futures of eight mini-batches, four of which are requested at once."""
    executor = RemoteExecutor([server.address, *others], TOKEN, None, 1, 20.0)
    for each in executor.servers:
        each.num_at_once = 8
    cut = sampling_server.find_cuts(pipe)[0][0]
    try:
        yield [executor.fetch(cut, (3, 0, index)) for index in range(8)]
    finally:
        executor.shutdown(cancel_futures=True)


@pytest.mark.parametrize(
    ("changes", "count"),
    [({"answer_seconds": 10.0}, 4), ({"answer_seconds": 1e-9}, 1), ({"answer_seconds": 10.0, "answer_bytes": 1}, 1)],
)
def test_small_mini_batches_come_several_in_an_answer_and_large_or_slow_ones_singly(
    changes: dict[str, float], count: int
) -> None:
    pipe = pipelines.homogeneous()
    with limits(**changes), SamplingServer(pipe, token=TOKEN) as server:
        cut = sampling_server.find_cuts(pipe)[0][0]
        assert len(server.answer(write_ticket(cut, 3, 0, [0, 1, 2, 3]), bool)[0]) == count
        with asking_for_eight(pipe, server) as futures:
            expected = digests(gf.DataLoader(pipe, num_workers=0, seed=3))[:8]
            assert [digest(future.result(60)) for future in futures] == expected


@limits(answer_seconds=10.0)
def test_the_error_of_a_stage_leaves_the_others_of_its_answer() -> None:
    pipe = Fails(pipelines.homogeneous())
    with SamplingServer(pipe, token=TOKEN) as server, asking_for_eight(pipe, server) as futures:
        errors = [future.exception(60) for future in futures]
    assert [error is None for error in errors] == [index != 2 for index in range(8)]
    assert "mini-batch 2 of epoch 0" in " ".join(errors[2].__notes__)  # type: ignore[union-attr]


def test_what_an_answer_lacks_as_its_server_is_lost_is_asked_of_another_one() -> None:
    pipe, flight = pipelines.homogeneous(), import_flight()
    work = sampling_server.find_cuts(pipe)[0][1]
    asked: list[int] = []

    def do_get(_: Any, ticket: Any) -> Any:
        tasks = read_ticket(ticket.ticket)[1]
        asked.append(len(tasks))
        first = to_batch(MADE, work(tasks[0]))

        def answers() -> Iterator[Any]:
            yield first
            raise ValueError("lost")

        return flight.GeneratorStream(first.schema, answers())

    failing = FlightServer("127.0.0.1", 0, TOKEN, None, lambda *_: None, do_get=do_get)
    with SamplingServer(pipe, token=TOKEN) as server, asking_for_eight(pipe, server, failing.address) as futures:
        expected = digests(gf.DataLoader(pipe, num_workers=0, seed=3))[:8]
        assert [digest(future.result(60)) for future in futures] == expected
    failing.close()
    assert server.num_made == 8 - len(asked)


def test_a_lost_server_is_asked_again_after_its_backoff() -> None:
    pipe = pipelines.homogeneous()
    asked: list[int] = []

    def do_get(*_: Any) -> Any:
        asked.append(1)
        raise import_flight().FlightUnavailableError("lost")

    lost = FlightServer("127.0.0.1", 0, TOKEN, None, lambda *_: None, do_get=do_get)
    with SamplingServer(pipe, token=TOKEN) as server:
        addresses = [lost.address, server.address]
        with limits(backoff_seconds=600.0), loader(pipe, addresses, num_workers=1) as own:
            assert digests(own) == digests(gf.DataLoader(pipe, num_workers=0, seed=3))
        assert len(asked) == 1
        with limits(backoff_seconds=0.001), loader(pipe, addresses, num_workers=1) as own:
            wait_until(lambda: bool(list(own)) and len(asked) > 2)
    lost.close()


def test_mini_batches_that_nobody_wants_any_more_are_not_asked_for() -> None:
    Held.go.clear()
    held = Held(pipelines.shuffled())
    with SamplingServer(held, token=TOKEN) as server, asking_for_eight(held, server) as futures:
        assert [future.cancel() for future in futures[4:]] == [True] * 4
        Held.go.set()
        assert all(future.result(60) for future in futures[:4])
    assert server.num_made == 4


def executor_of(address: str = "127.0.0.1:1") -> RemoteExecutor:
    return RemoteExecutor([address], TOKEN, None, 1, 20.0)


def test_an_error_is_freed_with_its_future() -> None:
    executor = executor_of()
    future = executor.fetch(CUT, (0, 0, 0))
    assert isinstance(future.exception(20), ConnectionError)
    executor.shutdown()  # waits for the thread
    gc.disable()
    try:
        left = weakref.ref(future)
        del future
        assert left() is None
    finally:
        gc.enable()
