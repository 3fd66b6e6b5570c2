import socket
from typing import Any

import pytest

from graphfeed.channels.addresses import (
    PLAINTEXT,
    check_way,
    choose_token,
    is_loopback,
    join_address,
    listen,
    parse_address,
)

MALFORMED = [
    "",
    "host",
    "host:",
    ":1",
    "host:x",
    "host:70000",
    "host:\u0663",
    "::1:5",
    "[::1]",
    "[host]:5",
    "a b:5",
    "u@h:5",
]


@pytest.mark.parametrize("address", MALFORMED)
def test_malformed_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"an address must be as '127\.0\.0\.1:50051' or '\[::1\]:50051'"):
        parse_address(address)


@pytest.mark.parametrize("address", [None, 5000, ("host", 5)])
def test_what_is_no_text_is_refused(address: Any) -> None:
    with pytest.raises(TypeError, match="an address must be a text"):
        parse_address(address)
    with pytest.raises(TypeError, match="an address must be a text"):
        check_way(address, PLAINTEXT, "tls=...", has_tls=False)


@pytest.mark.parametrize("address", ["host:5", "10.0.0.2:0", "[::1]:65535", "[fe80::1%eth0]:7"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    assert join_address(*parse_address(address)) == address


def test_others_can_read_what_is_sent_only_where_that_was_asked_for() -> None:
    for address in ("localhost:5", "127.0.0.2:5", "[::1]:5"):
        assert is_loopback(parse_address(address)[0])
        assert check_way(address, PLAINTEXT, "tls=...", has_tls=False) == address
    for address in ("0.0.0.0:5", "[::]:5", "node7:5", "10.0.0.2:5", "localhost.example.org:5"):
        with pytest.raises(ValueError, match=r"give tls=\.\.\., or write 'tcp://.*' where nobody else is on"):
            check_way(address, PLAINTEXT, "tls=...", has_tls=False)
        assert check_way(PLAINTEXT + address, PLAINTEXT, "tls=...", has_tls=False) == address
        assert check_way(address, PLAINTEXT, "tls=...", has_tls=True) == address
        with pytest.raises(ValueError, match="asks for no TLS, but tls asks for it"):
            check_way(PLAINTEXT + address, PLAINTEXT, "tls=...", has_tls=True)
    with pytest.raises(ValueError, match="an address must be 'host:port', or 'tcp://host:port' without TLS"):
        check_way("tls://node7:5", PLAINTEXT, "tls=...", has_tls=False)


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
        with pytest.raises(OSError, match=rf"nobody can listen on 127\.0\.0\.1:{port}: .*in use"):
            listen("127.0.0.1", port)
    for host in ("192.0.2.1", "nowhere.invalid", "a..b"):
        with pytest.raises(OSError, match=f"nobody can listen on {host}:5"):
            listen(host, 5)


def test_a_token_is_needed_where_others_can_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHFEED_TOKEN", raising=False)
    assert choose_token(None, "127.0.0.1") == choose_token(None, "localhost") == choose_token(None, "::1") == b""
    assert choose_token("x", "0.0.0.0") == b"x"
    for host in ("0.0.0.0", "example.org"):
        with pytest.raises(ValueError, match="can be reached by others: give both sides the same token"):
            choose_token(None, host)
    monkeypatch.setenv("GRAPHFEED_TOKEN", "y")
    assert choose_token(None, "0.0.0.0") == b"y"
