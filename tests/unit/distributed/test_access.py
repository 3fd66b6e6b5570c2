"""Addresses, tokens and certificates, and the Flight servers that they guard: valid ones, and errors."""

import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.wire import (
    FlightServer,
    call_options,
    check_encryption,
    check_token,
    choose_token,
    import_flight,
    is_loopback,
    join_address,
    listen,
    make_client,
    make_client_context,
    make_server_context,
    parse_address,
    text_of,
    to_batch,
)
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.refusals import check_all_refused

MALFORMED = [
    *["", "host", "host:", ":1", "host:x", "host:70000", "host:\u0663", "::1:5", "[::1]", "[host]:5"],
    *["a b:5", "u@h:5"],
]


def test_an_address_has_a_host_and_a_port() -> None:
    for address in ("host:5", "10.0.0.2:0", "[::1]:65535", "[fe80::1%eth0]:7"):
        assert join_address(*parse_address(address)) == address
    words = r"an address must be like '127\.0\.0\.1:50051' or '\[::1\]:50051'"
    check_all_refused(parse_address, MALFORMED, words)
    check_all_refused(parse_address, [None, 5000, ("host", 5)], "an address must be a string", TypeError)
    with pytest.raises(TypeError, match="an address must be a string"):
        check_encryption(None, "tls=...", has_tls=False)


def test_others_can_read_what_is_sent_only_where_that_was_asked_for() -> None:
    for address in ("localhost:5", "127.0.0.2:5", "[::1]:5"):
        assert is_loopback(parse_address(address)[0])
        assert check_encryption(address, "tls=...", has_tls=False) == address
    for address in ("0.0.0.0:5", "[::]:5", "node7:5", "10.0.0.2:5", "localhost.example.org:5"):
        with pytest.raises(ValueError, match=r"pass tls=\.\.\., or write 'grpc://.*' on a trusted network"):
            check_encryption(address, "tls=...", has_tls=False)
        assert check_encryption(address, "tls=...", has_tls=True) == address
        for scheme in ("grpc://", "tcp://"):
            assert check_encryption(scheme + address, "tls=...", has_tls=False) == address
            with pytest.raises(ValueError, match="disables TLS, but tls enables it"):
                check_encryption(scheme + address, "tls=...", has_tls=True)
    with pytest.raises(ValueError, match="an address must be 'host:port', or 'grpc://host:port' without TLS"):
        check_encryption("tls://node7:5", "tls=...", has_tls=False)


def test_a_host_may_be_a_name_or_of_either_family() -> None:
    for host, callers in (
        ("localhost", ["127.0.0.1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("::1", ["::1"]),
        ("::", ["::1", "127.0.0.1"]),
    ):
        try:
            listener = listen(host, 0)
        except OSError:
            assert ":" in host  # not every machine has IPv6
            continue
        with listener:
            for caller in callers:
                socket.create_connection((caller, listener.getsockname()[1]), timeout=10).close()


def test_where_nobody_can_listen_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"can't listen on 127\.0\.0\.1:{port}: .*in use"):
            listen("127.0.0.1", port)
    for host in ("192.0.2.1", "nowhere.invalid", "a..b"):
        with pytest.raises(OSError, match=f"can't listen on {host}:5"):
            listen(host, 5)


def test_a_token_is_needed_where_others_can_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHFEED_TOKEN", raising=False)
    assert choose_token(None, "127.0.0.1") == choose_token(None, "localhost") == choose_token(None, "::1") == ""
    assert choose_token("x", "0.0.0.0") == "x"
    for host in ("0.0.0.0", "example.org"):
        with pytest.raises(ValueError, match="is reachable for others: give both sides the same token"):
            choose_token(None, host)
    monkeypatch.setenv("GRAPHFEED_TOKEN", "y")
    assert choose_token(None, "0.0.0.0") == "y"


def test_a_token_must_fit_into_a_header() -> None:
    words = "token must be a string of printable ASCII"
    check_all_refused(check_token, [None, "", " a", "a\n", "ä"], words)


def test_a_certificate_needs_its_own_key(certificates: list[tuple[bytes, bytes]]) -> None:
    (certificate, key), (_, other_key) = certificates
    make_server_context((certificate, key))
    make_client_context(certificate)
    for given in ((certificate, other_key), (key, certificate), (b"nothing", key), (b"", b"")):
        with pytest.raises(ValueError, match="tls must be a certificate chain and the private key"):
            make_server_context(given)
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="tls must be a certificate chain"):
        SamplingServer(pipelines.shuffled(), token="a", tls=(certificate, other_key))


def test_what_holds_no_certificate_is_refused_before_anything_is_sent() -> None:
    def ask(content: Any) -> object:
        servers = gf.SamplingServers(["10.0.0.2:5"], "a", tls_root_certs=content)
        return next(iter(gf.DataLoader(pipelines.shuffled(), executor=servers, timeout=1.0)))

    contents = [b"nothing", b"", b"\xff\x00", "chain.pem", Path("chain.pem")]
    check_all_refused(ask, contents, "tls_root_certs must be (bytes|certificates as)", (TypeError, ValueError))


def test_a_key_that_is_encrypted_is_refused_and_nobody_is_asked_for_its_password(
    certificates: list[tuple[bytes, bytes]], tmp_path: Path
) -> None:
    certificate, key = certificates[0]
    (tmp_path / "key.pem").write_bytes(key)
    command = ["openssl", "pkey", "-in", str(tmp_path / "key.pem"), "-aes256", "-passout", "pass:word"]
    encrypted = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"ENCRYPTED" in encrypted
    with pytest.raises(ValueError, match="the private key of tls is encrypted"):
        make_server_context((certificate, encrypted))


def test_a_key_that_is_given_as_text_is_not_shown() -> None:
    for given, said in (((b"", "a secret"), r"\['bytes', 'str'\]"), ((b"",), r"\['bytes'\]"), ("a secret", "str")):
        with pytest.raises(TypeError, match=rf"^tls must be .*both as bytes, but is {said}$"):
            make_server_context(given)  # type: ignore[arg-type]


def test_certificates_may_have_comments_in_any_encoding(certificates: list[tuple[bytes, bytes]]) -> None:
    for comment in ("# Főtanúsítvány\n".encode(), b"# F\xf5tan\xfas\xedtv\xe1ny\n"):
        make_client_context(comment + certificates[0][0])


@pytest.fixture
def arrow(no_leaks: None) -> Any:
    return pytest.importorskip("pyarrow")


def serve(arrow: Any, token: str, events: list[tuple[str, str]]) -> FlightServer:
    def do_get(context: Any, ticket: Any) -> Any:
        table = arrow.Table.from_batches([to_batch(ticket.ticket.decode(), None)])
        return import_flight().RecordBatchStream(table)

    return FlightServer("127.0.0.1", 0, token, None, lambda *event: events.append(event), do_get=do_get)


@pytest.mark.parametrize("token", ["", "a token"])
def test_only_calls_with_the_same_token_are_answered(arrow: Any, token: str) -> None:
    events: list[tuple[str, str]] = []
    server, ticket = serve(arrow, token, events), import_flight().Ticket("x")
    with make_client(server.address, None, 10) as client:
        for other in ("another", "a token ", "" if token else "a"):
            with pytest.raises(import_flight().FlightUnauthenticatedError, match="the token is missing or wrong"):
                client.do_get(ticket, call_options(other, 10)).read_chunk()
        assert events == [("unauthenticated", "DO_GET without the right token")] * 3
        client.do_get(ticket, call_options(token, 10)).read_chunk()
    server.close()


@limits(end_seconds=0.3)
def test_closing_waits_for_a_call_at_work_a_limited_time(arrow: Any) -> None:
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
