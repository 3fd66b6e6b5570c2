"""An executor whose workers are sampling servers, and the public object that configures it for a loader."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from math import inf
from time import perf_counter_ns
from typing import Any, NamedTuple

from graphfeed.datapipes.pipeline import Observer
from graphfeed.distributed.servers.tickets import (
    AT_ONCE,
    FAILED,
    MEASURED,
    REFUSED,
    Cut,
    describe_cut,
    is_answer,
    unpack_cuts,
    write_question,
    write_ticket,
)
from graphfeed.distributed.wire import (
    TOKEN_VARIABLE,
    call_options,
    check_encryption,
    check_schema,
    check_token,
    from_batch,
    import_arrow,
    import_flight,
    make_client,
    make_client_context,
    text_of,
)
from graphfeed.loader import Servers
from graphfeed.loader.executors import RemoteError, ThreadExecutor
from graphfeed.loader.profile import FIRST_SERVER, Measured, Span
from graphfeed.ops.arguments import brief, check_seconds, checked
from graphfeed.ops.process import Changes, current_limits

RETRY_SECONDS = 0.5
"""Interval at which lost servers are retried if all are lost."""
BACKOFF_TIMES = 4.0
"""Lower bound of the backoff as a multiple of the time spent waiting, which is then at most a fifth of all time."""


class LostServerError(ConnectionError):
    """A server is gone, or did not respond in time."""


class Wanted(NamedTuple):
    """A requested mini-batch and its future."""

    cut: Cut
    seed: int
    epoch: int
    is_measured: bool
    number: int
    future: Future[Any]


class RemoteServer:
    """A client's connection to one server, opened on first use and shared by threads."""

    def __init__(self, address: str, token: str, tls_root_certs: bytes | None, timeout: float, number: int = 0) -> None:
        self.address = check_encryption(address, "tls_root_certs=...", has_tls=tls_root_certs is not None)
        if tls_root_certs is not None:
            make_client_context(tls_root_certs)
        self.token, self.tls_root_certs, self.timeout = token, tls_root_certs, timeout
        self.num_pending = 0
        """Number of mini-batches requested from it and not yet received."""
        self.num_at_once = 1
        """Number of mini-batches that fit into one response, according to the latest one."""
        self.num_losses = 0
        """Number of times it was lost since its last response."""
        self.backs_off_until = 0.0
        self.number = FIRST_SERVER + number
        self.flight = import_flight()
        self.client: Any = None
        self.connecting = threading.Lock()

    def ask(self, ticket: bytes) -> Iterator[Any]:
        """Yield the results that a ticket requests; failures are yielded as exceptions."""
        flight, asked, answer = self.flight, perf_counter_ns(), None
        with self.connecting:
            if self.client is None:
                self.client = make_client(self.address, self.tls_root_certs, self.timeout)
            client = self.client
        try:
            reader = client.do_get(flight.Ticket(ticket), call_options(self.token, self.timeout))
            check_schema(reader.schema)
            self.num_at_once = max(1, int((reader.schema.metadata or {}).get(AT_ONCE, 1)))
            for answer in reader:
                yield self.read(*from_batch(answer.data), asked)
            if answer is None:
                raise LostServerError("its response was empty")
        except flight.FlightUnauthenticatedError as error:
            raise PermissionError(f"the sampling server {self.address} does not accept the token") from error
        except flight.FlightTimedOutError as error:
            raise LostServerError(f"no response for {self.timeout:g} s") from error
        except (flight.FlightError, OSError) as error:
            way = "without TLS" if self.tls_root_certs is None else "over TLS"
            raise LostServerError(f"{text_of(error)} (connecting {way})") from error
        except (ValueError, import_arrow().ArrowException) as error:
            raise ValueError(
                f"the response of the sampling server {self.address} can't be read: {text_of(error)}"
            ) from error

    def read(self, kind: Any, value: Any, asked: int) -> Any:
        """Return the value of a response, or the exception that it reports."""
        if not is_answer(kind, value):
            raise ValueError(f"a sampling server does not send such a response: {brief(kind)}")
        if kind == REFUSED:
            return ValueError(f"the sampling server {self.address} rejected the request: {value}")
        if kind == FAILED:
            summary, notes, text = value
            failure = RemoteError(b"", summary, tuple(notes), text).unpack()
            failure.add_note(f"on the sampling server {self.address}")
            return failure
        if kind == MEASURED:
            measured = Measured(value[0], [Span(*span) for span in value[1]])
            return measured.between(asked, perf_counter_ns(), self.number)
        return value

    def back_off(self, waited: float) -> None:
        """Drop the connection, and back off: twice as long each time, at least `BACKOFF_TIMES` the seconds waited."""
        now = time.monotonic()
        with self.connecting:
            self.client = None
        if now < self.backs_off_until:  # several concurrent requests failed
            return
        first = current_limits().backoff_seconds
        self.backs_off_until = now + max(min(first * 2**self.num_losses, 60 * first), BACKOFF_TIMES * waited)
        self.num_losses = min(self.num_losses + 1, 10)  # by then, the backoff has reached its maximum

    def close(self) -> None:
        with self.connecting:
            if self.client is not None:
                self.client.close()


class RemoteExecutor(ThreadExecutor):
    """Threads that request mini-batches from sampling servers, singly or several small ones at a time."""

    # A server is considered lost after `timeout` seconds without a response. If all are lost, and one had responded
    # before, `patience` is the number of seconds to wait for one to come back.
    def __init__(
        self,
        servers: Sequence[str],
        token: str | None,
        tls_root_certs: bytes | None,
        num_requests: int,
        timeout: float,
        patience: float = 0.0,
    ) -> None:
        token = check_token(os.environ.get(TOKEN_VARIABLE) if token is None else token)
        connections = [
            RemoteServer(address, token, tls_root_certs, timeout, number) for number, address in enumerate(servers, 1)
        ]
        self.servers = list({server.address: server for server in connections}.values())
        self.choosing = threading.Lock()
        self.patience = patience
        self._has_answered = False
        super().__init__(num_requests, "graphfeed-server")
        self._wanted: deque[Wanted] = deque()
        # Each wanted mini-batch has its own call of `_fetch_some`: both are added under the executor's lock.
        self._changes, self._taking = Changes(self._lock), threading.Lock()

    def make_submit(self, cut: Any, observer: Observer | None) -> Callable[[Any, "Future[Any]"], Any]:  # noqa: ARG002
        # Servers have the pipeline already: (seed, epoch, index) identifies a mini-batch.
        return partial(self.fetch, describe_cut(cut.datapipe), is_measured=cut.is_measured)

    def fetch(
        self, cut: Cut, task: tuple[int, int, int], future: "Future[Any] | None" = None, *, is_measured: bool = False
    ) -> "Future[Any]":
        seed, epoch, index = task
        wanted = Wanted(cut, seed, epoch, is_measured, index, future or Future())
        with self._changes.lock:
            # One call per mini-batch. If another call has already fetched it, this one does nothing.
            self.submit(self._fetch_some)
            self._wanted.append(wanted)
        self._changes.notify_all()
        return wanted.future

    def _fetch_some(self) -> None:
        """Request some of the wanted mini-batches, if there are any left; requeue those that don't arrive."""
        left = self._pop_batch()  # no other variable keeps the futures: tracebacks of errors refer to this frame
        if not left:
            return
        cut, seed, epoch, is_measured, first = left[0][:5]
        try:
            ticket = write_ticket(cut, seed, epoch, [each.number for each in left], is_measured=is_measured)
            # A future stays pending until its mini-batch has arrived, so that it can be cancelled at any time.
            for result in self.ask(ticket, f"mini-batch {first} of epoch {epoch}", len(left)):
                set_result_once(left.popleft().future, result)
                if not left:
                    return
            with self._changes.lock:
                for _ in left:
                    self.submit(self._fetch_some)
                self._wanted.extendleft(reversed(left))
        except BaseException as error:
            while left:
                set_result_once(left.popleft().future, error)

    def _pop_batch(self) -> deque[Wanted]:
        """Remove the first wanted mini-batches for one request; wait shortly until there are enough."""
        with self._taking:
            with self._changes.lock:
                # As many mini-batches as fit into one response, according to the latest one, but at most half of those
                # in flight, so that two requests alternate. For mini-batches of 0.5 MB without production cost, on two
                # cores for both sides, this gives 1.2 times the throughput of one request each. Large or slow
                # mini-batches are requested singly.
                asked = len(self._wanted) + sum(server.num_pending for server in self.servers)
                share = asked // (2 * len(self.servers))
                most = max(1, min(share, max(server.num_at_once for server in self.servers)))
                # A measured mini-batch has a request to itself, whose times it reports.
                if self._wanted and self._wanted[0].is_measured:
                    most = 1
            self._changes.wait_for(
                lambda: not self._wanted or len(self._wanted) >= most, current_limits().answer_seconds
            )
            with self._changes.lock:
                taken = [each for each in self._wanted if each[:4] == self._wanted[0][:4]][:most]
                for each in taken:
                    self._wanted.remove(each)
        return deque(each for each in taken if not each.future.cancelled())

    def describe(self, rank: tuple[int, int]) -> list[tuple[Cut, int]]:
        cuts = next(self.ask(write_question(rank), "the pipeline"))
        if isinstance(cuts, Exception):
            raise cuts
        return unpack_cuts(cuts)

    def ask(self, ticket: bytes, wanted: str, count: int = 1) -> Iterator[Any]:
        """Yield `count` results from the first server that responds; `wanted` describes them in errors."""
        lost: dict[str, LostServerError] = {}
        reasons: dict[str, LostServerError] = {}
        give_up = inf
        while not self._finishing:
            if len(lost) == len(self.servers):
                # Not earlier: waiting for a silent server may take longer, while another one comes back.
                give_up = min(give_up, time.monotonic() + (self.patience if self._has_answered else 0.0))
                if (left := give_up - time.monotonic()) <= 0:
                    break
                time.sleep(min(RETRY_SECONDS, left))
                lost.clear()
                continue
            # If it is lost, another server gets the same request, so every mini-batch arrives exactly once.
            server, begin, has_answered = self.choose(lost, count), time.monotonic(), False
            try:
                for answer in server.ask(ticket):
                    with self.choosing:
                        self._has_answered, server.num_losses, server.backs_off_until = True, 0, 0.0
                        server.num_pending -= 1
                    count, has_answered = count - 1, True
                    yield answer
                return
            except LostServerError as error:
                lost[server.address] = reasons[server.address] = error
                with self.choosing:
                    server.back_off(time.monotonic() - begin)
                # The remaining mini-batches are requeued.
                if has_answered:
                    return
            finally:
                with self.choosing:
                    server.num_pending -= count
        waited = f", and none came back for {self.patience:g} s" if self._has_answered and self.patience else ""
        texts = "; ".join(f"{address}: {error}" for address, error in reasons.items())
        raise ConnectionError(f"no sampling server is left for {wanted}{waited}: {texts}")

    def choose(self, lost: dict[str, LostServerError], count: int) -> RemoteServer:
        """Select the next server for `count` mini-batches: the one with the fewest pending, except lost ones."""
        with self.choosing:
            now = time.monotonic()
            left = [server for server in self.servers if server.address not in lost]

            # Recently lost servers come last. One that was lost earlier gets a single request, and more once it has
            # responded to that.
            def cost(server: RemoteServer) -> tuple[bool, float, int]:
                is_tried = server.num_losses > 0 and server.num_pending > 0
                return is_tried or server.backs_off_until > now, max(server.backs_off_until, now), server.num_pending

            server = min(left, key=cost)
            server.num_pending += count
            return server

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads as in ThreadExecutor: a server that hangs is waited for no longer than a second."""
        if os.getpid() != self._process:  # in a fork, another thread may have held the lock
            return
        with self._changes.lock:
            self._finishing = True  # from here on, nothing more is added to `_wanted`
            dropped = list(self._wanted)
            self._wanted.clear()
        for each in dropped:
            each.future.cancel()
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            for server in self.servers:
                server.close()


class SamplingServers(Servers):
    """Sampling servers (`SamplingServer`) instead of workers: `DataLoader(pipe, executor=SamplingServers(...))`.

    They must have the same pipeline and data as the loader. A server that takes longer than the loader's `timeout` is
    considered lost, and another one produces its mini-batches. The constructor opens no connections. Needs pyarrow
    (extra `serve`).

    Args:
        addresses: Addresses of the servers as "host:port". Without TLS, the address of another machine must be
            written as "grpc://host:port"; use this only on a trusted network.
        token: The token of the servers. The default is the environment variable GRAPHFEED_TOKEN.
        tls_root_certs: Certificates with which to verify the servers, as PEM. None connects without TLS.
        patience: Seconds to wait for a server to come back, if all are lost and one had responded before.

    Raises:
        ValueError: There is no address, or `patience` is negative.
    """

    @checked
    def __init__(
        self,
        addresses: Iterable[str],
        token: str | None = None,
        tls_root_certs: bytes | None = None,
        patience: float = 60.0,
    ) -> None:
        found = () if isinstance(addresses, str) else tuple(dict.fromkeys(addresses))
        if isinstance(addresses, str) or not all(isinstance(each, str) for each in found):
            raise TypeError(f"servers must be a list of addresses such as '10.0.0.2:50051', but is {brief(addresses)}")
        if not found:
            raise ValueError("addresses must name a server, but is empty")
        if patience != 0:
            check_seconds("patience", patience)
        self.addresses = found
        self._token, self._tls_root_certs, self._patience = token, tls_root_certs, patience

    def start(self, num_requests: int, timeout: float) -> RemoteExecutor:
        """Return an executor with up to `num_requests` concurrent requests to the servers."""
        return RemoteExecutor(self.addresses, self._token, self._tls_root_certs, num_requests, timeout, self._patience)

    def longest_wait(self, timeout: float) -> float:
        """Return the maximum number of seconds per mini-batch: the servers may be lost one after another."""
        return timeout * (len(self.addresses) + 1) + self._patience

    def __repr__(self) -> str:
        return f"SamplingServers({list(self.addresses)})"


def set_result_once(future: "Future[Any]", result: Any) -> None:
    if future.set_running_or_notify_cancel():
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
