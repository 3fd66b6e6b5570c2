"""Where others listen, who can reach them there, and what they must know."""

import ipaddress
import os
import socket
from typing import Any

from graphfeed.ops.arguments import brief
from graphfeed.ops.checks import check_count

TOKEN_VARIABLE = "GRAPHFEED_TOKEN"
PLAINTEXT = "tcp://"
"""What the address of a receiver begins with that is on another machine and has no TLS."""
BACKLOG = 128
"""How many callers the system keeps that nobody has looked at yet."""


def parse_address(address: Any) -> tuple[str, int]:
    """Return the host and the port of an address; that of IPv6 has its host in brackets, which are left out.

    Raises:
        TypeError: It is no text.
        ValueError: It is no address.

    Example:
        >>> parse_address("127.0.0.1:50051"), parse_address("[::1]:50051")
        (('127.0.0.1', 50051), ('::1', 50051))
    """
    if not isinstance(address, str):
        raise TypeError(f"an address must be a text as '127.0.0.1:50051', but is {brief(address)}")
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not host or not is_port or (":" in host) != is_bracketed or set(host) & set("[]/@ \t\r\n"):
        raise ValueError(f"an address must be as '127.0.0.1:50051' or '[::1]:50051', but is {address!r}")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return the address of a host and a port.

    Example:
        >>> join_address("::1", 50051)
        '[::1]:50051'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_place(host: Any, port: Any) -> str:
    """Return the address of a host and a port that somebody wants to listen on.

    Raises:
        TypeError: The host is no text, or the port no number.
        ValueError: They make no address.
    """
    if not isinstance(host, str):
        raise TypeError(f"host must be a text as '127.0.0.1' or '::1', but is {brief(host)}")
    check_count("port", port, 0)
    address = join_address(host, port)
    parse_address(address)
    return address


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def choose_token(token: str | None, host: str) -> bytes:
    """Return the given token, or else the environment's; without one, only loopback addresses are allowed.

    Raises:
        TypeError: The token is no text.
        ValueError: There is no token, and the host is not a loopback address.
    """
    if token is not None and not isinstance(token, str):
        raise TypeError(f"token must be a text, but is a {type(token).__name__}")
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE, "")
    if not token and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached by others: give both sides the same token, or set {TOKEN_VARIABLE} for both"
        )
    return token.encode()


def check_way(address: Any, plaintext: str, option: str, *, has_tls: bool) -> str:
    """Return an address as "host:port", unless others could read what is sent there.

    Args:
        address: "host:port", or with `plaintext` before it.
        plaintext: The scheme by which a user says that nobody else is on the network, such as "tcp://".
        option: How TLS is asked for, for messages; the first word is the parameter's name.
        has_tls: Whether it was.

    Raises:
        ValueError: It is no address, others could read what is sent, or both TLS and none are asked for.

    Example:
        >>> check_way("tcp://10.0.0.2:50051", "tcp://", "tls=(certificate, key)", has_tls=False)
        '10.0.0.2:50051'
    """
    place: str = address.removeprefix(plaintext) if isinstance(address, str) else address
    name = option.partition("=")[0]
    if "://" in str(place):
        raise ValueError(
            f"an address must be 'host:port', or '{plaintext}host:port' without TLS, but is {address!r}; with {name}, "
            "TLS needs no other name"
        )
    host, _ = parse_address(place)
    if place != address and has_tls:
        raise ValueError(f"{address} asks for no TLS, but {name} asks for it; leave one of them out")
    if place == address and not has_tls and not is_loopback(host):
        raise ValueError(
            f"others on the way to {address} could read and change what is sent; give {option}, or write "
            f"'{plaintext}{address}' where nobody else is on the network"
        )
    return place


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, on IPv4 where a name stands for both; "::" stands for all addresses of both.

    Raises:
        OSError: The host is not one of this machine, or the port is taken; the message names both.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = min(found, key=lambda one: one[0] != socket.AF_INET)
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(place, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        raise OSError(f"nobody can listen on {join_address(host, port)}: {error}") from error
