"""A request and its answer between two processes, by a raw socket, messages of ranks, and Arrow Flight in turn."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.timing import Times, in_turn
from graphfeed.distributed.ranks.transport.connections import Connections, open_connection
from graphfeed.distributed.ranks.transport.listener import GREETING, TOKEN_BYTES, Listener
from graphfeed.distributed.ranks.transport.messages import Traffic, receive_into
from graphfeed.distributed.wire import from_batch, import_flight, to_batch

RAW, MESSAGES, FLIGHT = "raw socket", "messages of ranks", "Flight, an open exchange"
SIZES = (1 << 16, 1 << 20, 1 << 23)
"""Sizes of an answer in bytes."""
ROUND_BYTES, MOST_ASKED = 1 << 27, 500
QUESTION = bytes(64)
TOKEN = bytes(TOKEN_BYTES)
LIMIT = 60.0
Ask = Callable[[int], object]


def exchange_times(size: int, rounds: int) -> dict[str, Times]:
    """Return the processor time of both sides for an answer of `size` bytes, in seconds, by transport."""
    times = max(4, min(MOST_ASKED, ROUND_BYTES // size))
    with ExitStack() as stack:
        asks, clocks = {}, [time.CLOCK_PROCESS_CPUTIME_ID]
        for name, connect in CONNECT.items():
            process, port = stack.enter_context(answering(name))
            clocks.append(~process << 3 | 2)  # as returned by clock_getcpuclockid
            asks[name] = stack.enter_context(connect(port))

        def ask(name: str, _: int) -> None:
            for _ in range(times):
                asks[name](size)

        def clock() -> float:
            return sum(map(time.clock_gettime, clocks))

        found = in_turn({name: partial(ask, name) for name in asks}, rounds, clock)
    return {name: taken.times(1 / times) for name, taken in found.items()}


@contextmanager
def answering(name: str) -> Iterator[tuple[int, int]]:
    """Start a process that answers, and yield its number and its port."""
    command = [sys.executable, "-m", "benchmarks.exchange", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.stdin.close()


def rows_of(size: int) -> torch.Tensor:
    """Return an answer of the given number of bytes, which is also its first value."""
    return torch.arange(size // 8) + size


@contextmanager
def through_socket(port: int) -> Iterator[Ask]:
    """Yield a function that sends requests over a socket."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        memory: dict[int, Any] = {size: np.empty(size, np.uint8) for size in SIZES}

        def ask(size: int) -> None:
            connection.sendall(size.to_bytes(8, "little") + QUESTION)
            receive_into(connection, memory[size].data)
            assert int(memory[size][:8].view(np.int64)[0]) == size

        yield ask


def answer_socket() -> None:
    """Answer one connection until it ends."""
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    connection = server.accept()[0]
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rows = {size: rows_of(size).numpy() for size in SIZES}
    question = bytearray(8 + len(QUESTION))
    while connection.recv_into(question, 0, socket.MSG_WAITALL):
        connection.sendall(rows[int.from_bytes(question[:8], "little")].data)


@contextmanager
def through_messages(port: int) -> Iterator[Ask]:
    """Yield a function that sends requests as a rank does."""
    greeting = GREETING.pack(TOKEN, 1, False)
    connections = Connections(lambda: open_connection(("127.0.0.1", port), greeting, LIMIT, LIMIT, None), 1)

    def ask(size: int) -> None:
        answer, _ = connections.send_request({"name": "rows 0", "options": {}}, {"ids": torch.tensor([size])})
        assert int(answer.read()[1]["rows"][0]) == size

    yield ask
    connections.close()


def answer_messages() -> None:
    """Answer as a rank does."""
    rows = {size: rows_of(size) for size in SIZES}
    listener = Listener(1, Traffic(), lambda *_: None)
    listener.token = TOKEN
    listener.serve("rows", lambda _, questions: {"rows": rows[int(questions["ids"])]})
    print(listener.listen("127.0.0.1")[0][1], flush=True)
    sys.stdin.read()
    os._exit(0)


@contextmanager
def through_flight(port: int) -> Iterator[Ask]:
    """Yield a function that sends requests by a call of Arrow Flight, in the format of sampling servers."""
    flight = import_flight()
    with flight.FlightClient(f"grpc://127.0.0.1:{port}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"rows"))
        begun = False

        def ask(size: int) -> None:
            nonlocal begun
            batch = to_batch("question", {"ids": torch.tensor([size])})
            if not begun:
                writer.begin(batch.schema)
                begun = True
            writer.write_batch(batch)
            assert int(from_batch(reader.read_chunk().data)[1]["rows"][0]) == size

        yield ask
        writer.close()


def answer_flight() -> None:
    """Answer calls of Arrow Flight until the standard input ends."""
    flight = import_flight()
    rows = {size: rows_of(size) for size in SIZES}

    def do_exchange(_: Any, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG001
        for number, chunk in enumerate(reader):
            batch = to_batch("answer", {"rows": rows[int(from_batch(chunk.data)[1]["ids"])]})
            if number == 0:
                writer.begin(batch.schema)
            writer.write_batch(batch)

    server = type("Server", (flight.FlightServerBase,), {"do_exchange": do_exchange})("grpc://127.0.0.1:0")
    print(server.port, flush=True)
    sys.stdin.read()
    os._exit(0)


CONNECT = {RAW: through_socket, MESSAGES: through_messages, FLIGHT: through_flight}
ANSWER = {RAW: answer_socket, MESSAGES: answer_messages, FLIGHT: answer_flight}


if __name__ == "__main__":
    torch.set_num_threads(1)
    ANSWER[sys.argv[1]]()
