"""Servers and clients of Arrow Flight: which calls are answered, and how a server ends."""

import threading
import time
from typing import Any

import pytest

from graphfeed.distributed.wire import FlightServer, call_options, flight, import_flight, listen, make_client, to_batch
from graphfeed.distributed.wire.flight import text_of

arrow = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("no_leaks")


def serve(token: str, events: list[tuple[str, str]], host: str = "127.0.0.1", port: int = 0) -> FlightServer:
    def do_get(context: Any, ticket: Any) -> Any:
        table = arrow.Table.from_batches([to_batch(ticket.ticket.decode(), None)])
        return import_flight().RecordBatchStream(table)

    return FlightServer(host, port, token, None, lambda *event: events.append(event), do_get=do_get)


@pytest.mark.parametrize("token", ["", "a token"])
def test_only_calls_with_the_same_token_are_answered(token: str) -> None:
    events: list[tuple[str, str]] = []
    server, ticket = serve(token, events), import_flight().Ticket("x")
    with make_client(server.address, None, 10) as client:
        for other in ("another", "a token ", "" if token else "a"):
            with pytest.raises(import_flight().FlightUnauthenticatedError, match="the token is missing or wrong"):
                client.do_get(ticket, call_options(other, 10)).read_chunk()
        assert events == [("unauthenticated", "DO_GET without the right token")] * 3
        client.do_get(ticket, call_options(token, 10)).read_chunk()
    server.close()


def test_where_nobody_can_listen_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"nobody can listen on 127\.0\.0\.1:{port}: .*in use"):
            serve("", [], port=port)


def test_closing_waits_for_a_call_at_work_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "SECONDS_TO_END", 0.3)
    begun, go = threading.Event(), threading.Event()

    def do_get(context: Any, ticket: Any) -> Any:
        begun.set()
        assert go.wait(20)
        raise ValueError("too late")

    server = FlightServer("127.0.0.1", 0, "", None, lambda *_: None, do_get=do_get)
    with make_client(server.address, None, 10) as client:
        errors: list[Exception] = []

        def call() -> None:
            try:
                client.do_get(import_flight().Ticket("x"), call_options("", 20)).read_chunk()
            except (arrow.ArrowException, OSError) as error:
                errors.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        assert begun.wait(20)
        begin = time.monotonic()
        server.close()
        server.close()
        assert 0.2 < time.monotonic() - begin < 5
        go.set()
        caller.join(20)
    assert [text_of(error) for error in errors] == ["too late"]
