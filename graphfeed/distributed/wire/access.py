"""Checks of addresses, tokens and certificates, before anything is sent."""

import ipaddress
import os
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Any

from graphfeed.ops.arguments import brief, check_count, kind_of

TOKEN_VARIABLE = "GRAPHFEED_TOKEN"
PLAINTEXT = ("grpc://", "tcp://")
"""Prefixes of an address of another machine to connect to without TLS."""


def parse_address(address: Any) -> tuple[str, int]:
    """Return the host, without the brackets of IPv6, and the port of an address."""
    if not isinstance(address, str):
        raise TypeError(f"an address must be a string such as '127.0.0.1:50051', but is {brief(address)}")
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not host or not is_port or (":" in host) != is_bracketed or set(host) & set("[]/@ \t\r\n"):
        raise ValueError(f"an address must be like '127.0.0.1:50051' or '[::1]:50051', but is {address!r}")
    return host, int(port)


def join_address(host: Any, port: Any) -> str:
    """Return "host:port", with brackets around IPv6 addresses."""
    if not isinstance(host, str):
        raise TypeError(f"host must be a string such as '127.0.0.1' or '::1', but is {brief(host)}")
    check_count("port", port, 0)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    parse_address(address)
    return address


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_encryption(address: Any, option: str, *, has_tls: bool) -> str:
    """Return an address as "host:port"; raise if others could read the data sent there."""
    # Messages recommend `option`, which begins with the parameter's name, to use TLS.
    is_plaintext = isinstance(address, str) and address.startswith(PLAINTEXT)
    bare = address.partition("://")[2] if is_plaintext else address
    name = option.partition("=")[0]
    if "://" in str(bare):
        raise ValueError(
            f"an address must be 'host:port', or 'grpc://host:port' without TLS, but is {address!r}; with {name}, "
            "TLS needs no other scheme"
        )
    host, port = parse_address(bare)
    if is_plaintext and has_tls:
        raise ValueError(f"{address} disables TLS, but {name} enables it; leave one of them out")
    if not is_plaintext and not has_tls and not is_loopback(host):
        raise ValueError(
            f"others on the network could read and change data sent to {address}; pass {option}, or write "
            f"'grpc://{address}' on a trusted network"
        )
    return join_address(host, port)


def check_token(token: str | None) -> str:
    """Return a token after checking that it can be sent as a header."""
    if token is not None and not isinstance(token, str):
        raise TypeError(f"token must be a string, but is {kind_of(token)}")
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        given = "is missing" if not token else "has other characters, or leading or trailing blanks"
        raise ValueError(f"token must be a string of printable ASCII characters, the same on both sides, but {given}")
    return token


def choose_token(token: str | None, host: str) -> str:
    """Return the given token, or else the environment's. "" is allowed only if other machines can't reach the host."""
    token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
    if token != "":
        return check_token(token)
    if not is_loopback(host):
        raise ValueError(
            f"{host} is reachable for others: give both sides the same token, or set {TOKEN_VARIABLE} for both"
        )
    return ""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, on IPv4 if a name has addresses of both families; "::" listens on both families."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = min(infos, key=lambda info: info[0] != socket.AF_INET)
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=1024, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        raise OSError(f"can't listen on {join_address(host, port)}: {error}") from error


def make_server_context(tls: tuple[bytes, bytes]) -> ssl.SSLContext:
    """Return the TLS context of a server, from its certificate chain and private key."""
    return with_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)


def with_certificate(context: ssl.SSLContext, tls: tuple[bytes, bytes]) -> ssl.SSLContext:
    """Load a certificate chain and its private key into a TLS context; raise if they are not valid."""
    pair: object = tls
    given = [type(part).__name__ for part in pair] if isinstance(pair, tuple) else type(pair).__name__
    if given != ["bytes", "bytes"]:  # the message must not contain a key
        raise TypeError(f"tls must be a certificate chain and its private key, both as bytes, but is {given}")

    def refuse_password() -> str:
        raise ValueError("the private key of tls is encrypted; pass it decrypted, as openssl pkey writes it")

    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads them only from files
        for name, content in zip(("certificate", "key"), tls, strict=True):
            (Path(folder) / name).write_bytes(content)
        try:
            # Without this function, OpenSSL would prompt for the password of an encrypted key.
            context.load_cert_chain(f"{folder}/certificate", f"{folder}/key", refuse_password)
        except ssl.SSLError as error:
            raise ValueError(
                f"tls must be a certificate chain and the private key of its first certificate, both as PEM: {error}"
            ) from error
    return context


def make_client_context(tls_root_certs: bytes) -> ssl.SSLContext:
    """Return the TLS context of a client that verifies servers' certificates and names against root certificates."""
    if not isinstance(tls_root_certs, bytes):
        raise TypeError(
            "tls_root_certs must be certificates as bytes, such as Path('chain.pem').read_bytes(), but is "
            f"{tls_root_certs!r}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Bundles may contain comments with the names of authorities, in any encoding.
        context.load_verify_locations(cadata=tls_root_certs.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"tls_root_certs must be certificates as PEM: {error}") from error
    return context


def make_mutual_contexts(
    tls: tuple[bytes, bytes], tls_root_certs: bytes | None
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return TLS contexts of a server and a client that verify each other's certificates, but not their names."""
    server, roots = make_server_context(tls), tls[0] if tls_root_certs is None else tls_root_certs
    client = make_client_context(roots)
    client.check_hostname = False  # any process with such a certificate is a rank, wherever it runs
    with_certificate(client, tls)
    server.load_verify_locations(cadata=roots.decode("ascii", "ignore"))
    server.verify_mode = ssl.CERT_REQUIRED
    server.num_tickets = 0  # so that no data arrives before the first response
    return server, client
