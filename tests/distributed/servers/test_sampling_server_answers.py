"""Tests of requests, and of responses with several mini-batches: their number, and failures in the middle."""

import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.servers import remote_executor, sampling_server
from graphfeed.distributed.servers.remote_executor import RemoteExecutor
from graphfeed.distributed.servers.tickets import (
    FAILED,
    LARGEST_TICKET,
    MADE,
    MEASURED,
    REFUSED,
    Cut,
    describe_cut,
    is_answer,
    read_cut,
    read_question,
    read_ticket,
    unpack_cuts,
    write_question,
    write_ticket,
)
from graphfeed.distributed.wire import FlightServer, import_flight, to_batch
from graphfeed.loader.executors import ThreadExecutor
from tests import pipelines
from tests.digests import digest, digests
from tests.distributed.served import TOKEN, Fails, Held
from tests.refusals import check_all_refused

SPAN = [1, "ItemSampler", "", 0, 0, 1, 2, 1, 1, 10, 20]
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
ANSWERS = [(MADE, None), (MEASURED, [None, [SPAN]]), (REFUSED, "why"), (FAILED, ["error", ["note"], "text"])]
NO_ANSWERS: list[tuple[Any, Any]] = [
    *[(kind, None) for kind in ("else", [MADE], REFUSED, FAILED, MEASURED)],
    *[(FAILED, value) for value in (["error", "note", "text"], ["error", [1], "text"], ["error", []])],
    *[(MEASURED, [None, spans]) for spans in ([], [SPAN[:-1]], [[*SPAN[:-1], "1"]], [[1, 2, *SPAN[2:]]])],
]


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


def test_an_answer_has_what_its_kind_asks_for() -> None:
    assert [kind for kind, value in ANSWERS if not is_answer(kind, value)] == []
    assert [(kind, value) for kind, value in NO_ANSWERS if is_answer(kind, value)] == []


pytest.importorskip("pyarrow")


CUT = Cut({}, [], None, gf.__version__)


class Small(gf.Transform):
    """A stage without cost."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return minibatch


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


def test_small_mini_batches_come_several_in_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Small(gf.ItemSampler(gf.ItemSet(200, names="seeds"), batch_size=1, shuffle=True))
    monkeypatch.setattr(sampling_server, "ANSWER_SECONDS", 10.0)
    with SamplingServer(pipe, token=TOKEN) as server:
        sizes: list[int] = []
        answer = server.answer

        def count(ticket: bytes, has_gone: Callable[[], bool]) -> tuple[list[Any], int]:
            answers, fitting = answer(ticket, has_gone)
            sizes.append(len(answers))
            return answers, fitting

        monkeypatch.setattr(server, "answer", count)
        with gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token=TOKEN), seed=3) as loader:
            assert digests(loader) == digests(gf.DataLoader(pipe, num_workers=0, seed=3))
    assert sum(sizes) == 200
    assert 2 <= max(sizes) <= 4  # of a window of eight


@pytest.mark.parametrize("limit", ["ANSWER_BYTES", "ANSWER_SECONDS"])
def test_large_or_slow_mini_batches_come_one_in_an_answer(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = pipelines.homogeneous()
    monkeypatch.setattr(sampling_server, limit, 1e-9)
    with SamplingServer(pipe, token=TOKEN) as server, asking_for_eight(pipe, server) as futures:
        expected = digests(gf.DataLoader(pipe, num_workers=0, seed=3))[:8]
        assert [digest(future.result(60)) for future in futures] == expected
        assert server.num_made == 8
        batches, fitting = server.answer(write_ticket(sampling_server.find_cuts(pipe)[0][0], 3, 0, [0, 1]), bool)
        assert (len(batches), fitting) == (1, 0)


def test_the_error_of_a_stage_leaves_the_others_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Fails(pipelines.homogeneous())
    monkeypatch.setattr(sampling_server, "ANSWER_SECONDS", 10.0)
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


def test_what_is_asked_for_and_what_is_wanted_again_is_cancelled_with_the_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor, begun, go = executor_of(), threading.Semaphore(0), threading.Event()
    executor.servers[0].num_at_once = 8

    def ask(_: bytes, __: str, count: int) -> Iterator[Any]:
        yield "made"
        assert count > 1
        begun.release()
        assert go.wait(60)  # and the rest of the response is lost

    monkeypatch.setattr(executor, "ask", ask)
    futures = [executor.fetch(CUT, (0, 0, index)) for index in range(8)]
    assert begun.acquire(timeout=60)
    ending = threading.Thread(target=executor.shutdown, kwargs={"cancel_futures": True})
    ending.start()
    assert isinstance(outcome(futures[-1]), CancelledError)
    go.set()
    outcomes = [outcome(future) for future in futures]
    ending.join(60)
    assert all(each == "made" or isinstance(each, CancelledError | RuntimeError) for each in outcomes)
    assert any(isinstance(each, RuntimeError) for each in outcomes)  # because the executor was shut down


def test_nothing_is_wanted_of_an_executor_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = ThreadExecutor.shutdown

    def ask_meanwhile(self: RemoteExecutor, **options: bool) -> None:
        with pytest.raises(RuntimeError, match="the executor was shut down; create another one"):
            self.fetch(CUT, (0, 0, 0))
        shutdown(self, **options)

    monkeypatch.setattr(ThreadExecutor, "shutdown", ask_meanwhile)
    executor_of().shutdown(cancel_futures=True)


def test_a_forked_process_may_end_its_copy_whoever_held_the_lock() -> None:
    executor = executor_of()
    executor._process = -1
    with executor._changes.lock:
        ending = threading.Thread(target=executor.shutdown, daemon=True)
        ending.start()
        ending.join(20)
        assert not ending.is_alive()


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


def test_measured_mini_batches_come_singly_and_wait_for_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_executor, "ANSWER_SECONDS", 60.0)
    executor = executor_of()
    executor.servers[0].num_at_once = executor.servers[0].num_pending = 8
    monkeypatch.setattr(executor, "ask", lambda *_: iter(["made"]))
    assert outcome(executor.fetch(CUT, (0, 0, 0), is_measured=True)) == "made"
    executor.shutdown()


def outcome(future: Future[Any]) -> Any:
    """Return the result of a future, or its error."""
    try:
        return future.result(20)
    except (CancelledError, OSError, RuntimeError) as error:
        return error
