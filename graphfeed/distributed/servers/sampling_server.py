"""A server that produces the mini-batches of a pipeline for loaders on other machines."""

import hashlib
import json
import os
import threading
import traceback
import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache, partial
from time import monotonic, perf_counter_ns
from typing import Any

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import find
from graphfeed.distributed.release import RELEASE
from graphfeed.distributed.servers.server_metrics import HealthEndpoint, ServerMetrics
from graphfeed.distributed.servers.tickets import (
    ABOUT,
    AT_ONCE,
    FAILED,
    MADE,
    MEASURED,
    REFUSED,
    Cut,
    describe_cut,
    read_cut,
    read_question,
    read_ticket,
)
from graphfeed.distributed.wire import (
    FlightServer,
    check_token,
    import_arrow,
    import_flight,
    is_loopback,
    join_address,
    to_batch,
)
from graphfeed.loader import LoaderOptions, find_caches, find_difference, make_plan
from graphfeed.loader.executors import WorkerTask, available_cores, notes_of, summarise_error
from graphfeed.loader.profile import Span
from graphfeed.loader.stages import InWorkers, fetch_codes
from graphfeed.ops.arguments import check_count, check_flags, kind_of
from graphfeed.ops.process import Closeable, current_limits

STEP_SECONDS = 1.0
"""How often a waiting request checks whether its reader is still connected."""
MOST_TASKS = 64
"""Number of readers' cuts that are cached, so that their fingerprints are not parsed again."""
LONGEST_EVENT = 1000
"""Maximum length of the line of an event in characters; it may contain strings of readers."""


class SamplingServer(Closeable):
    """Produces the mini-batches of a pipeline for loaders elsewhere, which use it by `executor=SamplingServers(...)`.

    The server runs the stages that workers would run: all stages before the first one that must run in the main
    process. A request contains a random seed, an epoch and an index, and the server keeps no state of readers, so any
    number of servers serves any number of loaders, and one can replace another. It only answers requests with the
    token, for a pipeline with the same fingerprint, over the same data, by the same release. It unpickles nothing.

    The token and TLS keep others from reading, but not from causing load: pyarrow receives requests of any size before
    their token is checked. Use a trusted network, or a proxy that limits the size of requests. Readers should verify
    their servers by TLS: they reject compressed responses, but only after pyarrow has decompressed them.

    It runs in threads of Arrow Flight until `close()`. Stages in Python hold the GIL; for these, start one server per
    core. Needs pyarrow: `pip install ".[serve]"`.

    Args:
        port: 0 selects a free port, which is then the attribute `port`.
        token: A secret shared by both sides.
        tls: A certificate chain and a private key, both as PEM.
        allow_plaintext: Whether to listen on addresses other than loopback without TLS. Others on the network can then
            read the token and the mini-batches.
        num_workers: Number of mini-batches produced concurrently. None means one per core.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The address is in use, or does not belong to this machine.
        ValueError: The token is missing, the pipeline has no stages that a server could run, or other machines could
            reach the address without TLS.

    Example:
        >>> import graphfeed as gf
        >>> pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2).transform()
        >>> with SamplingServer(pipe, token="secret") as server:
        ...     with gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], "secret"), seed=0) as loader:
        ...         [minibatch.seeds.tolist() for minibatch in loader]
        [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        pipe: Datapipe,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str,
        tls: tuple[bytes, bytes] | None = None,
        allow_plaintext: bool = False,
        num_workers: int | None = None,
    ) -> None:
        if not isinstance(pipe, Datapipe):
            raise TypeError(f"pipe must be a pipeline of stages, but is {kind_of(pipe)}")
        check_flags(allow_plaintext=allow_plaintext)
        check_token(token)
        self._tls, self._allow_plaintext = tls, allow_plaintext
        self._check_place(host, port)
        self._cuts = find_cuts(pipe)
        self._task_of = lru_cache(MOST_TASKS)(self._find_task)
        cores = available_cores() if num_workers is None else num_workers
        check_count("num_workers", cores, 1)
        self._slots = threading.BoundedSemaphore(cores)
        fingerprints = json.dumps([cut.fingerprint for cut, _ in self._cuts], sort_keys=True)
        fingerprint = hashlib.sha256(fingerprints.encode()).hexdigest()[:16]
        self.metrics = ServerMetrics(fingerprint, current_limits().waiting_requests + cores, partial(find_caches, pipe))
        """Counters of requests, mini-batches and errors."""
        self.on_event: Callable[[str], None] = lambda _: None
        """Called with a line for each rejected or failed request; assign a function that prints or logs it."""
        self._server = FlightServer(host, port, token, tls, self.count_error, do_get=self._do_get)
        self.port, self.address = self._server.port, self._server.address
        self._endpoints: list[Any] = []

    @property
    def num_made(self) -> int:
        """Number of mini-batches produced."""
        return self.metrics.num_made

    def serve_health(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve health and metrics over HTTP until the server is closed; return the address.

        `GET /health` returns 200, or 503 with the reason. `GET /metrics` returns Prometheus's text format:
        mini-batches, bytes, requests in flight, errors by kind, the uptime, the pipeline's fingerprint, and the size,
        hits and misses of each cache. Neither needs a token, because probes have none. On addresses other than
        loopback, the endpoint uses the server's TLS.

        Args:
            host: The address to listen on; by default, other machines can't reach it.
            port: 0 selects a free port.

        Raises:
            ImportError: prometheus_client is not installed.
            OSError: The address is in use, or does not belong to this machine.
            ValueError: Other machines could reach the address, and there is no TLS.

        Example:
            >>> import graphfeed as gf, urllib.request
            >>> pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2).transform()
            >>> with SamplingServer(pipe, token="secret") as server:
            ...     urllib.request.urlopen(f"http://{server.serve_health()}/health").status
            200
        """
        self._check_place(host, port)
        endpoint = HealthEndpoint(self.metrics, host, port, None if is_loopback(host) else self._tls)
        self._endpoints.append(weakref.finalize(self, endpoint.close))
        return join_address(host, endpoint.port)

    def answer(self, ticket: bytes, has_gone: Callable[[], bool]) -> tuple[list[Any], int]:
        """Return a record batch per mini-batch, as many as fit into one response, and how many similar ones would."""
        received = perf_counter_ns()
        with self.metrics.request():
            try:
                if ticket.startswith(ABOUT):
                    return [to_batch(MADE, self._describe(read_question(ticket)))], 1
                cut, tasks, is_measured = read_ticket(ticket)
                work = self._task_of(cut)
            except ValueError as error:
                self.count_error("refused", str(error))
                return [to_batch(REFUSED, str(error))], 1
            self._acquire_slot(has_gone)
            try:
                answers: list[Any] = []
                begin, size, share, limits = monotonic(), 0, 0.0, current_limits()
                for task in tasks:
                    answers.append(self._make(work, task, received if is_measured else None))
                    size += answers[-1].nbytes
                    # Fill level of the response, by its size or by the time that it took.
                    share = max(size / limits.answer_bytes, (monotonic() - begin) / limits.answer_seconds)
                    if share >= 1:
                        break
                return answers, int(len(answers) / share)
            finally:
                self._slots.release()

    def _make(self, work: WorkerTask, task: tuple[int, int, int], received: int | None) -> Any:
        """Return the response with a mini-batch, or with the error of its stage."""
        try:
            answer = to_batch(MADE, work(task)) if received is None else time_stages(work, task, received)
        except Exception as error:
            self.count_error("failed", f"mini-batch {task[2]} of epoch {task[1]}: {summarise_error(error)}")
            text = "".join(traceback.format_exception(error))
            return to_batch(FAILED, [summarise_error(error), notes_of(error), text])
        self.metrics.count_made(answer.nbytes)
        return answer

    def count_error(self, error: str, reason: str) -> None:
        """Count a request without a mini-batch, and call `on_event` with one line of printable characters."""
        self.metrics.count_error(error)
        line = " ".join(f"{'failed' if error == 'failed' else 'refused'}: {reason}".split())[:LONGEST_EVENT]
        try:
            self.on_event("".join(part if part.isprintable() else repr(part)[1:-1] for part in line))
        except Exception:  # an error of the program's callback must not reach the reader
            traceback.print_exc()

    def close(self) -> None:
        """Stop listening, and wait at most 10 seconds for requests in progress. Has no effect if called again."""
        self.metrics.is_closed = True
        self._server.close()
        for end in self._endpoints:
            end()

    def _do_get(self, context: Any, ticket: Any) -> Any:
        batches, most = self.answer(ticket.ticket, context.is_cancelled)
        table = import_arrow().Table.from_batches(batches)
        return import_flight().RecordBatchStream(table.replace_schema_metadata({AT_ONCE: str(most)}))

    def _check_place(self, host: str, port: int) -> None:
        join_address(host, port)
        if self._tls is None and not self._allow_plaintext and not is_loopback(host):
            raise ValueError(
                f"others can reach host {host!r}, and without TLS they can read the token and the mini-batches; "
                "pass tls=(certificate, key), or allow_plaintext=True on a trusted network"
            )

    def _acquire_slot(self, has_gone: Callable[[], bool]) -> None:
        flight = import_flight()
        if self.metrics.in_flight > self.metrics.most_in_flight:
            reason = f"{current_limits().waiting_requests} requests are waiting already"
            self.count_error("full", reason)
            raise flight.FlightUnavailableError(reason)
        is_mine = False
        while not has_gone():
            # Only after checking the reader again, as it may have disconnected while this waited.
            if is_mine:
                return
            is_mine = self._slots.acquire(timeout=STEP_SECONDS)
        if is_mine:
            self._slots.release()
        self.metrics.count_error("cancelled")
        raise flight.FlightCancelledError("the reader has disconnected")

    def _describe(self, rank: list[int]) -> list[Any]:
        """Return the cuts for a rank, each with its number of mini-batches per epoch, for `unpack_cuts`."""
        ranked = [cut if cut[0].rank is None else of_rank(*cut, rank) for cut in self._cuts]
        return [[asdict(cut), len(work.source)] for cut, work in ranked]  # type: ignore[arg-type]

    def _find_task(self, text: bytes) -> WorkerTask:
        """Return the task that produces the mini-batches of a reader's cut."""
        asked = read_cut(text)
        if asked.release != RELEASE:
            raise ValueError(
                f"the loader has graphfeed {asked.release}, and the server {RELEASE}; install the same release on both"
            )
        differences = [find_difference(asked.fingerprint, cut.fingerprint) for cut, _ in self._cuts]
        equal = [pair for pair, difference in zip(self._cuts, differences, strict=True) if difference is None]
        if not equal:
            raise ValueError(f"the pipelines of the loader and of the server differ: {differences[0]}")
        # Equal branches of a join differ only in their random streams.
        for cut, work in equal:
            if cut.streams == asked.streams and (cut.rank is None) == (asked.rank is None):
                return work if asked.rank is None else of_rank(cut, work, asked.rank)[1]
        raise ValueError("the pipelines of the loader and of the server use different random streams")


def time_stages(work: WorkerTask, task: tuple[int, int, int], received: int) -> Any:
    """Return the response with a mini-batch, the times of its stages, and the waiting time of the request."""
    begun, (_, epoch, index) = perf_counter_ns(), task
    where = (os.getpid(), threading.get_ident())
    queued = Span(0, "SamplingServer", "maker", epoch, index, received, begun, begun - received, 0, *where)
    measured = replace(work, is_measured=True)(task)
    return to_batch(MEASURED, [measured.minibatch, [list(span) for span in (queued, *measured.spans)]])


def find_cuts(pipe: Datapipe) -> list[tuple[Cut, WorkerTask]]:
    """Return the cuts of a pipeline, each with the task that workers would run."""
    codes = fetch_codes(pipe)  # which readers decode
    running = make_plan(pipe if codes is None else codes[0], LoaderOptions(num_workers=1)).running
    cuts = [(describe_cut(cut.datapipe), cut.work()) for cut in find(running, InWorkers)]  # type: ignore[attr-defined]
    if not cuts or any(work.source is None for _, work in cuts):
        raise ValueError(
            f"a server must be able to produce mini-batches by their index, but the pipeline is {pipe!r}; begin "
            "with an ItemSampler, and add at least one stage after it"
        )
    return cuts


def of_rank(cut: Cut, work: WorkerTask, rank: list[int]) -> tuple[Cut, WorkerTask]:
    source: Any = work.source
    return replace(cut, rank=rank), replace(work, source=source.changed(rank=rank[0], world_size=rank[1]))
