"""Sampling servers in separate processes, which tests kill and stop."""

import gzip
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import graphfeed as gf
from tests.stand_ins.programs import Program, start_program

TOKEN = "a secret of the tests"
PIPELINE = """
from tests.kinds import pipelines
pipe = pipelines.{name}()
"""


CERTIFICATE = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]


class Held(gf.Transform):
    """Blocks until it is released."""

    go = threading.Event()

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        assert self.go.wait(60)
        return minibatch


class Fails(gf.Transform):
    """Fails at the third mini-batch."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        assert minibatch.key is not None
        if minibatch.key.index == 2:
            error = ValueError("there is no such " + "x" * 20_000)
            error.__notes__ = ["a note", 3]  # type: ignore[list-item]  # as programs may
            raise error
        return minibatch


@dataclass
class Served:
    """A server that was started."""

    process: Program
    address: str
    health: str
    """The address of its health endpoint."""

    def end(self) -> list[str]:
        """End the server as a terminal would; return its output."""
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60)
        return self.process.printed().splitlines()


def arguments(folder: object, name: str) -> list[str]:
    """Write a script with one of the common pipelines; return the command that serves it."""
    script, token = f"{folder}/{name}.py", f"{folder}/token"
    with open(script, "w") as file:
        file.write(PIPELINE.format(name=name))
    with open(token, "w") as file:
        file.write(TOKEN + "\n")
    os.chmod(token, 0o600)
    return ["serve", script, "--bind", "127.0.0.1:0", "--token-file", token, "--health-bind", "127.0.0.1:0"]


def started(server: Program) -> Served:
    """Wait for a server to print its addresses."""
    give_up = time.monotonic() + 60
    while not (found := re.search(r"^serving .* (\S+)\nhealth .* (\S+)\n", server.printed(), re.MULTILINE)):
        assert not server.wait(0.05), server.printed()
        assert time.monotonic() < give_up, "a server does not begin"
    return Served(server, *found.groups())


def start_server(folder: object, name: str = "homogeneous", port: int = 0) -> Program:
    """Start a server of one of the common pipelines, without starting an interpreter."""
    command = arguments(folder, name)
    command[command.index("--bind") + 1] = f"127.0.0.1:{port}"
    return start_program(f"import sys; from graphfeed.__main__ import main; sys.exit(main({command}))")


@contextmanager
def servers(folder: object, count: int, name: str = "homogeneous") -> Iterator[list[Served]]:
    """Start servers of one of the common pipelines."""
    programs = [start_server(folder, name) for _ in range(count)]
    try:
        yield [started(program) for program in programs]
    finally:
        for program in programs:
            program.kill()
            assert program.wait(60)


def make_certificate(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> tuple[bytes, bytes]:
    """Return a certificate, by default for this machine, and its key; skip the test if openssl is not installed."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [*CERTIFICATE, "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(certificate)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no openssl to make a certificate")
    return certificate.read_bytes(), key.read_bytes()


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def header(name: bytes, value: bytes) -> bytes:
    """Return an HTTP/2 header."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def open_call(port: int) -> socket.socket:
    """Begin a request without a token that is never completed; return its connection."""
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/arrow.flight.protocol.FlightService/DoGet",
        b":authority": b"x",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    listed = b"".join(header(*part) for part in headers.items())
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, listed))
    assert sock.recv(9)[3:4] == b"\4", "no settings came"
    time.sleep(0.5)  # until it has read the rest
    return sock


@contextmanager
def compressing_server(coding: str) -> Iterator[str]:
    """Answer the first request like gRPC, in a thread, with one message of 60 MB that is compressed to 60 kB."""
    small = zlib.compress(bytes(60 << 20)) if coding == "deflate" else gzip.compress(bytes(60 << 20))
    message = b"\1" + struct.pack(">I", len(small)) + small
    answer = b"\x88" + header(b"content-type", b"application/grpc") + header(b"grpc-encoding", coding.encode())

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as sent, suppress(ConnectionError):
            connection.sendall(frame(4, 0, 0, b"") + frame(4, 1, 0, b""))
            sent.read(24)
            while len(start := sent.read(9)) == 9:
                sent.read(int.from_bytes(start[:3], "big"))
                if start[3] == 1:
                    stream = int.from_bytes(start[5:], "big")
                    connection.sendall(frame(1, 4, stream, answer))
                    for place in range(0, len(message), 1 << 14):
                        connection.sendall(frame(0, 0, stream, message[place : place + (1 << 14)]))
                    connection.sendall(frame(1, 5, stream, header(b"grpc-status", b"0")))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    thread.join(30)
    assert not thread.is_alive()


def loader(
    pipe: gf.Datapipe, addresses: list[str], timeout: float = 60.0, num_workers: int | None = None, patience: float = 0
) -> gf.DataLoader:
    """Return a loader that reads from servers, one mini-batch ahead of each concurrent request."""
    executor = gf.SamplingServers(addresses, TOKEN, patience=patience)
    return gf.DataLoader(pipe, num_workers, executor=executor, timeout=timeout, seed=3, prefetch_factor=1)
