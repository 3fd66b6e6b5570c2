"""A server that makes the mini-batches of a pipeline for loaders on other machines."""

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
    ANSWER_BYTES,
    ANSWER_SECONDS,
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
from graphfeed.loader.executors import WorkerTask, available_cores, notes_of, summarise
from graphfeed.loader.profile import Span
from graphfeed.loader.stages import InWorkers
from graphfeed.ops.arguments import check_count, check_flags
from graphfeed.ops.process import Closeable

STEP_SECONDS = 1.0
"""How often a request that waits looks whether its reader is still there."""
MOST_WAITING = 1000
"""How many requests may wait until others are made; each of them takes up a thread."""
MOST_TASKS = 64
"""How many readers' cuts are kept, so that their fingerprints need not be read anew."""
LONGEST_EVENT = 1000
"""How many characters the line of an event has; texts of readers may be in it."""


class SamplingServer(Closeable):
    """Makes the mini-batches of a pipeline for loaders elsewhere, which name it by `executor=SamplingServers(...)`.

    The server runs the stages that workers would run: all up to the first one that must run in the main process. A
    request names a seed, an epoch and an index, and nothing is kept of readers, so any number of servers serves any
    number of loaders, and one takes over from another. Only a request with the token is answered, for a pipeline of the
    same fingerprint, over the same data, by the same release. Nothing that comes in is unpickled.

    The token and TLS keep others from reading, and not from being a burden: pyarrow receives a request of any size
    before its token is checked. Use a network that you trust, or a proxy that limits the size of requests. Readers
    should know their servers, by TLS: answers that Arrow has compressed are refused, but pyarrow inflates them before.

    It runs from its creation to `close()`, in threads of Arrow Flight. Stages in Python hold the GIL; for these, start
    a server for each core. Needs pyarrow: `pip install ".[serve]"`.

    Args:
        port: 0 takes a free one, which is then the attribute `port`.
        token: A secret that both sides share.
        tls: A certificate chain and a private key, both as PEM.
        allow_plaintext: Whether to listen on other than loopback addresses without TLS. Then anybody on the way can
            read the token and the mini-batches.
        num_workers: How many mini-batches are made at once. None means one for each core.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The address is taken, or not one of this machine.
        ValueError: The token is missing, the pipeline has nothing that a server could make, or others could reach the
            address and there is no TLS.

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
            raise TypeError(f"pipe must be a pipeline of stages, but is a {type(pipe).__name__}")
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
        self.metrics = ServerMetrics(fingerprint, MOST_WAITING + cores, partial(find_caches, pipe))
        """What the server counts."""
        self.on_event: Callable[[str], None] = lambda _: None
        """Gets a line for each request that was refused, or failed; set it to print or log them."""
        self._server = FlightServer(host, port, token, tls, self.note, do_get=self._do_get)
        self.port, self.address = self._server.port, self._server.address
        self._endpoints: list[Any] = []

    @property
    def num_made(self) -> int:
        """How many mini-batches were made."""
        return self.metrics.num_made

    def serve_health(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve health and metrics over HTTP until the server is closed; return the address.

        `GET /health` is answered by 200, or by 503 with the reason. `GET /metrics` has Prometheus's text format:
        mini-batches, bytes, requests in flight, errors by kind, the uptime, the pipeline's fingerprint, and the size,
        hits and misses of each cache. Neither needs a token, as probes have none. On another address than loopback, the
        endpoint has the server's TLS.

        Args:
            host: The address to listen on; by default, no other machine reaches it.
            port: 0 takes a free one.

        Raises:
            ImportError: prometheus_client is not installed.
            OSError: The address is taken, or not one of this machine.
            ValueError: Others could reach the address, and there is no TLS.

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
        """Return a record batch for each mini-batch, as many as fit into an answer, and how many like these would."""
        received = perf_counter_ns()
        with self.metrics.request():
            try:
                if ticket.startswith(ABOUT):
                    return [to_batch(MADE, self._describe(read_question(ticket)))], 1
                cut, tasks, is_measured = read_ticket(ticket)
                work = self._task_of(cut)
            except ValueError as error:
                self.note("refused", str(error))
                return [to_batch(REFUSED, str(error))], 1
            self._take_slot(has_gone)
            try:
                answers: list[Any] = []
                begin, size, share = monotonic(), 0, 0.0
                for task in tasks:
                    answers.append(self._make(work, task, received if is_measured else None))
                    size += answers[-1].nbytes
                    # How full the answer is, by its bytes or by the time that it took.
                    share = max(size / ANSWER_BYTES, (monotonic() - begin) / ANSWER_SECONDS)
                    if share >= 1:
                        break
                return answers, int(len(answers) / share)
            finally:
                self._slots.release()

    def _make(self, work: WorkerTask, task: tuple[int, int, int], received: int | None) -> Any:
        """Return the answer with a mini-batch, or with the error of its stage."""
        try:
            answer = to_batch(MADE, work(task)) if received is None else measure(work, task, received)
        except Exception as error:
            self.note("failed", f"mini-batch {task[2]} of epoch {task[1]}: {summarise(error)}")
            text = "".join(traceback.format_exception(error))
            return to_batch(FAILED, [summarise(error), notes_of(error), text])
        self.metrics.count_made(answer.nbytes)
        return answer

    def note(self, error: str, reason: str) -> None:
        """Count a request without an answer, and call `on_event`, in one line with escapes for what does not print."""
        self.metrics.count_error(error)
        line = " ".join(f"{'failed' if error == 'failed' else 'refused'}: {reason}".split())[:LONGEST_EVENT]
        try:
            self.on_event("".join(part if part.isprintable() else repr(part)[1:-1] for part in line))
        except Exception:  # it is the program's affair, and no reader's
            traceback.print_exc()

    def close(self) -> None:
        """Stop listening, and wait for the requests at work, 10 seconds at most. Does nothing the second time."""
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
                "give tls=(certificate, key), or allow_plaintext=True where nobody else is on the network"
            )

    def _take_slot(self, has_gone: Callable[[], bool]) -> None:
        flight = import_flight()
        if self.metrics.in_flight > self.metrics.most_in_flight:
            reason = f"{MOST_WAITING} requests wait already"
            self.note("full", reason)
            raise flight.FlightUnavailableError(reason)
        is_mine = False
        while not has_gone():
            # Only once the reader was looked for again: while this waited, it may have gone.
            if is_mine:
                return
            is_mine = self._slots.acquire(timeout=STEP_SECONDS)
        if is_mine:
            self._slots.release()
        self.metrics.count_error("cancelled")
        raise flight.FlightCancelledError("the reader has given up")

    def _describe(self, rank: list[int]) -> list[Any]:
        """Return the cuts for a rank, each with the mini-batches that it has in an epoch, for `unpack_cuts`."""
        ranked = [cut if cut[0].rank is None else of_rank(*cut, rank) for cut in self._cuts]
        return [[asdict(cut), len(work.source)] for cut, work in ranked]  # type: ignore[arg-type]

    def _find_task(self, text: bytes) -> WorkerTask:
        """Return what makes the mini-batches of a reader's cut."""
        asked = read_cut(text)
        if asked.release != RELEASE:
            raise ValueError(
                f"the loader has graphfeed {asked.release}, and the server {RELEASE}; install the same release on both"
            )
        differences = [find_difference(asked.fingerprint, cut.fingerprint) for cut, _ in self._cuts]
        equal = [pair for pair, difference in zip(self._cuts, differences, strict=True) if difference is None]
        if not equal:
            raise ValueError(f"the loader's pipeline is another one than the server's: {differences[0]}")
        # Alike branches of a join differ only in their random streams.
        for cut, work in equal:
            if cut.streams == asked.streams and (cut.rank is None) == (asked.rank is None):
                return work if asked.rank is None else of_rank(cut, work, asked.rank)[1]
        raise ValueError("the loader's pipeline draws from other random streams than the server's")


def measure(work: WorkerTask, task: tuple[int, int, int], received: int) -> Any:
    """Return the answer with a mini-batch, the times of its stages, and how long the request waited for its turn."""
    begun, (_, epoch, index) = perf_counter_ns(), task
    where = (os.getpid(), threading.get_ident())
    queued = Span(0, "SamplingServer", "maker", epoch, index, received, begun, begun - received, 0, *where)
    measured = replace(work, is_measured=True)(task)
    return to_batch(MEASURED, [measured.minibatch, [list(span) for span in (queued, *measured.spans)]])


def find_cuts(pipe: Datapipe) -> list[tuple[Cut, WorkerTask]]:
    """Return the cuts of a pipeline, each with what workers would run there."""
    running = make_plan(pipe, LoaderOptions(num_workers=1)).running
    cuts = [(describe_cut(cut.datapipe), cut.work()) for cut in find(running, InWorkers)]  # type: ignore[attr-defined]
    if not cuts or any(work.source is None for _, work in cuts):
        raise ValueError(
            f"a server makes mini-batches by their index, which this pipeline does not allow: {pipe!r}; begin with an "
            "ItemSampler, and put at least one stage behind it"
        )
    return cuts


def of_rank(cut: Cut, work: WorkerTask, rank: list[int]) -> tuple[Cut, WorkerTask]:
    source: Any = work.source
    return replace(cut, rank=rank), replace(work, source=source.changed(rank=rank[0], world_size=rank[1]))
