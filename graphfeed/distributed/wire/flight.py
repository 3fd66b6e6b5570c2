"""Arrow Flight servers and clients with a token and TLS."""

import hmac
import os
import re
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from graphfeed.distributed.wire.access import join_address, listen, make_server_context
from graphfeed.distributed.wire.record_batches import FORMAT, OTHER_FORMAT, import_arrow
from graphfeed.loader.executors import renew_torch_threads
from graphfeed.ops.process import current_limits, in_one_step

FORMAT_HEADER = "graphfeed-format"
"""Header with the format of the record batches of a call; without it, the format is 1."""
USED_BY: set[int] = set()
"""Ids of the processes that have used gRPC, by which a fork detects that its parent has."""


import_flight = partial(import_arrow, "pyarrow.flight")
"""Return the module `pyarrow.flight`; raise an ImportError if pyarrow is not installed."""


class FlightServer:
    """An Arrow Flight server that only answers calls with the right token, from its creation to `close()`.

    Args:
        port: 0 selects a free port, which is then the attribute `port`.
        token: Required value of the calls' header "authorization"; "" for calls without one.
        on_refused: Called for each rejected call, with "unauthenticated" or "refused", and the reason.
        methods: Methods of `pyarrow.flight.FlightServerBase` without `self`, such as `do_get(context, ticket)`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        tls: tuple[bytes, bytes] | None,
        on_refused: Callable[[str, str], None],
        **methods: Callable[..., Any],
    ) -> None:
        flight = import_flight()
        address = join_address(host, port)
        if tls is not None:
            make_server_context(tls)
        USED_BY.add(os.getpid())
        renew_torch_threads()  # for a fork; several threads handle calls
        # Classes are created here, because pyarrow is imported late.
        guard = type("TokenGuard", (flight.ServerMiddlewareFactory,), {"start_call": make_guard(token, on_refused)})
        handlers = {name: lambda _, *args, method=method: method(*args) for name, method in methods.items()}
        server_class = type("Handler", (flight.FlightServerBase,), handlers)
        scheme, certificates = ("grpc", None) if tls is None else ("grpc+tls", [tls])
        try:
            server = server_class(f"{scheme}://{address}", middleware={"token": guard()}, tls_certificates=certificates)
        except import_arrow().ArrowException as error:
            listen(host, port).close()  # raises an error with the reason, which pyarrow's lacks
            raise OSError(f"can't listen on {address}: {error}") from error
        # At the end of the program, pyarrow would wait for open calls without a limit.
        for reference in weakref.getweakrefs(server):
            if isinstance(reference.__callback__, weakref.finalize):
                reference.__callback__.detach()
        self.port: int = server.port
        self.address = join_address(host, self.port)
        closing = threading.Event()
        # A program that is ending can't start threads. This one keeps a reference to the server until it has shut down.
        thread = threading.Thread(
            target=shut_down_after, args=(closing, server), name="graphfeed-shutdown", daemon=True
        )
        in_one_step(thread.start)
        self.close = weakref.finalize(self, end_flight_calls, closing, thread)
        """Stop listening, and wait at most 10 seconds for calls in progress, which a client may keep open."""


def make_guard(token: str, on_refused: Callable[[str, str], None]) -> Callable[..., None]:
    """Return a function that rejects calls with another token or format."""
    flight = import_flight()
    expected = authorization(token).encode()

    def start_call(_: Any, info: Any, headers: dict[str, list[str]]) -> None:
        given = (headers.get("authorization") or [""])[0]
        # The comparison takes the same time for all wrong tokens.
        if not hmac.compare_digest(str(given).encode(), expected):
            on_refused("unauthenticated", f"{info.method.name} without the right token")
            raise flight.FlightUnauthenticatedError("the token is missing or wrong")
        there = (headers.get(FORMAT_HEADER) or ["1"])[0]
        if there != str(FORMAT):
            reason = OTHER_FORMAT.format(there=there, here=FORMAT)
            on_refused("refused", reason)
            raise flight.FlightServerError(reason)

    return start_call


def authorization(token: str) -> str:
    return f"Bearer {token}" if token else ""


def shut_down_after(closing: threading.Event, server: Any) -> None:
    closing.wait()
    server.shutdown()  # waits for all calls


def end_flight_calls(closing: threading.Event, thread: threading.Thread) -> None:
    in_one_step(closing.set)
    for _ in range(round(current_limits().end_seconds / 0.1)):
        thread.join(0.1)  # a signal that arrives right before a wait is handled after it
        if not thread.is_alive():
            return


def make_client(address: str, tls_root_certs: bytes | None, timeout: float) -> Any:
    """Return a client of the server at "host:port"; it connects on first use."""
    if USED_BY - {os.getpid()}:
        raise RuntimeError(
            "this process was forked from one that has used Arrow Flight, and gRPC would hang in it; start processes "
            "by 'spawn' or 'forkserver'"
        )
    USED_BY.add(os.getpid())
    return import_flight().FlightClient(
        f"{'grpc' if tls_root_certs is None else 'grpc+tls'}://{address}",
        tls_root_certs=tls_root_certs,
        generic_options=[
            # Without it, the loss of a machine is noticed after 20 seconds.
            ("grpc.min_reconnect_backoff_ms", int(1000 * min(timeout, 20))),
            # A new client opens a new connection; a shared one that was lost would not be retried for a while.
            ("grpc.use_local_subchannel_pool", 1),
            # gRPC rejects compressed responses, as 1 MB of them may expand to 2 GB; servers don't compress.
            ("grpc.compression_enabled_algorithms_bitset", 1),
        ],
    )


def call_options(token: str, timeout: float | None) -> Any:
    """Return the options of a call: the token, the format, and the time limit in seconds."""
    headers = [(FORMAT_HEADER.encode(), str(FORMAT).encode())]
    if token:
        headers.append((b"authorization", authorization(token).encode()))
    return import_flight().FlightCallOptions(timeout=timeout, headers=headers)


def text_of(error: Exception) -> str:
    """Return the message of an Arrow Flight error, without the details of lower layers."""
    return re.split(r"\. (?:gRPC client debug context|Detail: Python exception)", str(error))[0] or repr(error)
