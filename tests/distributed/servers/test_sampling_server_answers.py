"""Answers of a server with several mini-batches: how many, what fails in the middle of one, and what comes then."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.servers import sampling_server
from graphfeed.distributed.servers.remote_executor import RemoteExecutor
from graphfeed.distributed.servers.tickets import MADE, read_ticket, write_ticket
from graphfeed.distributed.wire import FlightServer, import_flight, to_batch
from tests import pipelines
from tests.digests import digest, digests
from tests.distributed.served import TOKEN, Fails, Held

pytest.importorskip("pyarrow")


class Small(gf.Transform):
    """Costs nothing."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return minibatch


@contextmanager
def asking_for_eight(pipe: gf.Datapipe, server: SamplingServer, *others: str) -> Iterator[list[Future[Any]]]:
    """Yield the futures of eight mini-batches, of which four are asked for at once."""
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
        with gf.DataLoader(pipe, servers=[server.address], token=TOKEN, seed=3) as loader:
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
