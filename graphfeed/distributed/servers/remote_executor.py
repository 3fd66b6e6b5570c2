"""The workers of a loader are sampling servers."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from graphfeed.channels.addresses import TOKEN_VARIABLE, check_way
from graphfeed.channels.certificates import make_client_context
from graphfeed.datapipes.pipeline.observer import Observer
from graphfeed.distributed.servers.flight import (
    FAILED,
    FORMAT,
    FORMAT_HEADER,
    REFUSED,
    Cut,
    check_schema,
    check_token,
    describe_cut,
    from_batch,
    import_flight,
    unpack_cuts,
    write_question,
    write_ticket,
)
from graphfeed.loader.executors.remote_error import RemoteError
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.ops.optional import import_optional

REST_SECONDS = (1.0, 60.0)
"""For how long a lost server is asked only if no other is left: the first time, and at most."""
REST_TIMES = 4.0
"""How many times as long as it was waited for a server rests at least, so that waiting takes a fifth of the time."""
PLAINTEXT = "grpc://"
"""What the address of a server begins with that may be sent the token without TLS."""
UNCOMPRESSED = [("grpc.compression_enabled_algorithms_bitset", 1)]
"""Lets gRPC refuse compressed answers, 1 MB of which would take up 2 GB; servers send none."""
MADE_CLIENTS: set[int] = set()
"""The processes that have connected to a server; a forked process finds its parent in it."""


class LostServerError(ConnectionError):
    """A server is gone, or did not answer in time."""


class RemoteServer:
    """A reader's connection to one server, which is made when it is first needed. Threads share it."""

    def __init__(self, address: str, token: str, tls_root_certs: bytes | None, timeout: float) -> None:
        self.address, self.timeout = check_address(address, tls_root_certs), timeout
        self.tls_root_certs = tls_root_certs
        self.headers = [
            (b"authorization", f"Bearer {token}".encode()),
            (FORMAT_HEADER.encode(), str(FORMAT).encode()),
        ]
        self.at_work = 0
        """How many mini-batches it was asked for and has not sent."""
        self.num_losses = 0
        """How often it was lost since it last answered."""
        self.rests_until = 0.0
        self.flight = import_flight()
        self.arrow = import_optional("pyarrow", "a sampling server", "")
        self.client: Any = None
        self.connecting = threading.Lock()

    def ask(self, ticket: bytes) -> tuple[str, Any]:
        """Return the kind of the answer, and the answer.

        Raises:
            LostServerError: The server is gone, or did not answer in time.
            PermissionError: It does not accept the token.
            ValueError: What answers is no sampling server, or one of another release.
        """
        flight = self.flight
        options = flight.FlightCallOptions(timeout=self.timeout, headers=self.headers)
        try:
            reader = self.connect().do_get(flight.Ticket(ticket), options)
            check_schema(reader.schema)
            return from_batch(reader.read_chunk().data)
        except flight.FlightUnauthenticatedError as error:
            raise PermissionError(f"the sampling server {self.address} does not accept the token") from error
        except flight.FlightTimedOutError as error:
            raise LostServerError(f"no answer for {self.timeout:g} s") from error
        except (flight.FlightError, OSError, StopIteration) as error:
            text = str(error).partition(". gRPC client debug context")[0] or repr(error)
            asked = "without TLS" if self.tls_root_certs is None else "over TLS"
            raise LostServerError(f"{text} (asked {asked})") from error
        except (ValueError, self.arrow.ArrowException) as error:
            text = str(error).partition(". gRPC client debug context")[0]
            raise ValueError(f"the answer of the sampling server {self.address} can't be read: {text}") from error

    def connect(self) -> Any:
        """Return the client of this process.

        Raises:
            RuntimeError: This process was forked from one that has clients; gRPC's would hang here.
        """
        with self.connecting:
            if self.client is None:
                if MADE_CLIENTS - {os.getpid()}:
                    raise RuntimeError(
                        "this process was forked from one that reads from sampling servers, and gRPC would hang in it; "
                        "start processes by 'spawn' or 'forkserver'"
                    )
                MADE_CLIENTS.add(os.getpid())
                scheme = "grpc" if self.tls_root_certs is None else "grpc+tls"
                milliseconds = int(1000 * min(self.timeout, 20))
                self.client = self.flight.FlightClient(
                    f"{scheme}://{self.address}",
                    tls_root_certs=self.tls_root_certs,
                    generic_options=[
                        # Without it, a machine that is gone is noticed after 20 seconds.
                        ("grpc.min_reconnect_backoff_ms", milliseconds),
                        *UNCOMPRESSED,
                    ],
                )
            return self.client

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self.connecting:
            if self.client is not None:
                self.client.close()


def check_address(address: str, tls_root_certs: bytes | None) -> str:
    """Return the "host:port" of a server's address.

    Raises:
        TypeError: It is no text.
        ValueError: It is no address, or others could read what is sent to it, the token among it.
    """
    place = check_way(address, PLAINTEXT, "tls_root_certs=...", has_tls=tls_root_certs is not None)
    if tls_root_certs is not None:
        make_client_context(tls_root_certs)
    return place


class RemoteExecutor(ThreadExecutor):
    """Threads that ask sampling servers for mini-batches, each for one at a time.

    A mini-batch is asked of the server that has the fewest to make. If that server is lost, another one is asked for
    the same mini-batch; so every mini-batch comes once, whichever server makes it.

    Args:
        servers: Their addresses, as "host:port". Without TLS, other than loopback addresses must be written as
            "grpc://host:port"; then anybody on the way can read the token and the mini-batches.
        token: The servers' token; None takes the environment's GRAPHFEED_TOKEN.
        tls_root_certs: The certificates that the servers' are checked against, as PEM; None connects without TLS.
        num_requests: How many mini-batches are asked for at once.
        timeout: After how many seconds without an answer a server counts as lost.

    Raises:
        ImportError: pyarrow is not installed.
        ValueError: There is no server or no token, or an address is wrong or would be sent the token in clear.
    """

    def __init__(
        self,
        servers: Sequence[str],
        token: str | None,
        tls_root_certs: bytes | None,
        num_requests: int,
        timeout: float,
    ) -> None:
        token = check_token(os.environ.get(TOKEN_VARIABLE) if token is None else token)
        found = [RemoteServer(address, token, tls_root_certs, timeout) for address in servers]
        self.servers = list({server.address: server for server in found}.values())
        self.choosing = threading.Lock()
        super().__init__(num_requests, "graphfeed-server")

    def begin(self, cut: Any, observer: Observer | None) -> Callable[[Any], "Future[Any]"]:  # noqa: ARG002
        """Return a function that asks for the mini-batch of (seed, epoch, index): servers have the pipeline already."""
        described = describe_cut(cut.datapipe)
        return lambda task: self.submit(self.fetch, described, task)

    def fetch(self, cut: Cut, task: tuple[int, int, int]) -> Any:
        """Return a mini-batch, from whichever server has it first; raises as `ask` does."""
        return self.ask(write_ticket(cut, task), f"mini-batch {task[2]} of epoch {task[1]}")

    def describe(self, place: tuple[int, int]) -> list[tuple[Cut, int]]:
        """Return the cuts of the first server that answers, and how many mini-batches each has in an epoch of a rank.

        Raises:
            ConnectionError: All servers are lost; the message names them.
            PermissionError: A server does not accept the token.
            ValueError: What answers is no sampling server.
        """
        return unpack_cuts(self.ask(write_question(place), "the pipeline"))

    def ask(self, ticket: bytes, wanted: str) -> Any:
        """Return what a ticket asks for, which errors call `wanted`.

        Raises:
            ConnectionError: All servers are lost; the message names them.
            PermissionError: A server does not accept the token.
            RuntimeError: A stage failed on a server; the text, the notes and the cause say how.
            ValueError: A server has another pipeline; the message says where it differs.
        """
        lost: dict[str, LostServerError] = {}
        while len(lost) < len(self.servers) and not self._finishing:
            server, begin = self.choose(lost), time.monotonic()
            try:
                kind, value = server.ask(ticket)
            except LostServerError as error:
                lost[server.address] = error
                self.put_to_rest(server, time.monotonic() - begin)
                continue
            finally:
                with self.choosing:
                    server.at_work -= 1
            with self.choosing:
                server.num_losses, server.rests_until = 0, 0.0
            if kind == REFUSED:
                raise ValueError(f"the sampling server {server.address} refused: {value}")
            if kind == FAILED:
                summary, notes, text = value
                failure = RemoteError(b"", summary, tuple(notes), text).unpack()
                failure.add_note(f"on the sampling server {server.address}")
                raise failure
            return value
        reasons = "; ".join(f"{address}: {error}" for address, error in lost.items())
        raise ConnectionError(f"no sampling server is left for {wanted}: {reasons}")

    def choose(self, lost: dict[str, LostServerError]) -> RemoteServer:
        """Return the server to ask next, apart from some.

        Those that were lost lately come last. One that was lost before them is asked for one mini-batch, and for more
        once it has sent that.
        """
        with self.choosing:
            now = time.monotonic()
            left = [server for server in self.servers if server.address not in lost]

            def cost(server: RemoteServer) -> tuple[bool, int]:
                is_tried = server.num_losses > 0 and server.at_work > 0
                return is_tried or server.rests_until > now, server.at_work

            server = min(left, key=cost)
            server.at_work += 1
            return server

    def put_to_rest(self, server: RemoteServer, waited: float) -> None:
        """Let a lost server be, for longer each time, and for several times the seconds that it was waited for."""
        first, most = REST_SECONDS
        with self.choosing:
            now = time.monotonic()
            if now < server.rests_until:  # it was lost to several requests at once
                return
            server.rests_until = now + max(min(first * 2**server.num_losses, most), REST_TIMES * waited)
            server.num_losses = min(server.num_losses + 1, 10)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads, as in ThreadExecutor: a server that hangs is waited for no longer than a second."""
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            for server in self.servers:
                server.close()
