"""The ranks of a distributed job: each sends requests to the others, and answers theirs in threads.

Messages go directly from rank to rank: a request and its response take two one-way delays, independently of other
ranks. A further thread sends heartbeats, and detects lost ranks and the end of the job.
"""

import os
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from torch import distributed

from graphfeed.datapipes import find_rank
from graphfeed.distributed.ranks.membership.comparison import RunComparison
from graphfeed.distributed.ranks.membership.heartbeat import RESUME, Heartbeat, LostError, RankLostError
from graphfeed.distributed.ranks.membership.program_end import check_program, watch_program
from graphfeed.distributed.ranks.membership.rendezvous import (
    VISITS,
    Presence,
    Rendezvous,
    RendezvousAddress,
    call_within,
)
from graphfeed.distributed.ranks.transport.connections import Answer, Connections, open_connection
from graphfeed.distributed.ranks.transport.listener import GREETING, Listener, Respond
from graphfeed.distributed.ranks.transport.messages import Tensors, Traffic
from graphfeed.distributed.wire import make_mutual_contexts
from graphfeed.ops.arguments import check_seconds, checked
from graphfeed.ops.process import Changes, renew_in_child, uninterrupted

MOST_CONNECTIONS = 4
"""Number of requests of one rank that another one answers concurrently, if there are few ranks."""
FEW_RANKS, MANY_RANKS = 8, 100
"""With more ranks than the first, each answers two requests of every other rank concurrently; with more than the
second, one: then 200 ranks stay within the usual limit of 1,024 open files per process."""
CONNECT_SECONDS = 30.0
"""Time limit for connecting to another rank."""
FIND_SECONDS = 5.0
"""Time limit for finding out which rank is lost after a connection has failed."""


class Peers:
    """The ranks of the default process group, or those of a rendezvous address; each of them stores a part.

    One object serves any number of graphs and features. Programs rarely need to create one, because graphs and features
    share one by default. All ranks must create their objects in the same order. The constructor does not wait for other
    ranks; it starts a thread that runs until all ranks have ended their programs or called `close`. Until then it
    answers the others, whatever this rank's program does. If an exception ends the program, the thread ends at once,
    and the other ranks fail too. A rank that calls `sys.exit` counts as done, whatever the status, unless that happens
    during an epoch that continues on other ranks: these then fail.

    Args:
        timeout: Seconds without a heartbeat after which another rank is considered lost. The end of a rank is noticed
            at once.
        start_timeout: Seconds that other ranks may be late at the start.
        meeting: Rendezvous address of ranks without a process group. The thread connects to it.
        port: Where this rank listens for the others; 0 selects a free port. Ranks of one machine need different ports.
        tls: A certificate chain and its private key, both as PEM: this rank encrypts its messages and authenticates
            itself with them. Either all ranks have one, or none.
        tls_root_certs: The certificates with which to verify other ranks; by default, the chain of `tls`, which all
            ranks must share then.
        frozen_timeout: Like `timeout`, for a rank whose machine still acknowledges data (detected on Linux). It is
            frozen, or in one call that blocks Python's other threads, such as a long sort, which must fit into the
            limit. None means 30 seconds, or `timeout` if that is less. Other ranks warn after 5 seconds.

    Raises:
        ValueError: A certificate or a key can't be used, or `tls_root_certs` is given without `tls`.
        RuntimeError: A launcher such as torchrun started several ranks, without a process group or a `meeting`.
    """

    @checked
    def __init__(
        self,
        *,
        timeout: float = 30.0,
        start_timeout: float = 600.0,
        meeting: RendezvousAddress | None = None,
        port: int = 0,
        tls: tuple[bytes, bytes] | None = None,
        tls_root_certs: bytes | None = None,
        frozen_timeout: float | None = None,
    ) -> None:
        seconds = {"timeout": timeout, "start_timeout": start_timeout, "frozen_timeout": frozen_timeout}
        for name, value in seconds.items():
            if value is not None:
                check_seconds(name, value)
        if not 0 <= port < 1 << 16:
            raise ValueError(f"port must be in 0 .. 65535, but is {port}")
        if tls is None and tls_root_certs is not None:
            raise ValueError("tls_root_certs is given without tls; pass tls=(certificate, key) too, for other ranks")
        server: ssl.SSLContext | None = None
        self._context: ssl.SSLContext | None = None
        if tls is not None:
            server, self._context = make_mutual_contexts(tls, tls_root_certs)
        self.timeout, self.start_timeout = timeout, start_timeout
        self.rank, self.world_size = rank_and_size() if meeting is None else meeting.rank_address[2:]
        self.traffic = Traffic()
        self._process = os.getpid()
        self._ranks: dict[int, Presence] = {}
        """The ranks that have registered."""
        self._met: bool | Exception = False
        """Whether all ranks are connected, or the error that prevented it."""
        self._connections: dict[int, Connections] = {}
        self._changes = Changes()
        self._closed = False
        self._lost: Exception | None = None
        self._thread: threading.Thread | None = None
        self._heartbeat = Heartbeat(self.rank, timeout, frozen_timeout)
        others = self.world_size - 1
        self._port = port
        self._most = MOST_CONNECTIONS if self.world_size <= FEW_RANKS else 1 + (self.world_size <= MANY_RANKS)
        # A heartbeat connection of each other rank needs a thread too, but only during its greeting.
        self._listener = Listener(others * self._most, self.traffic, self._heartbeat.accept, server)
        self.comparison = RunComparison(self)
        """Checks what all ranks must have in common."""
        if self.world_size > 1:
            try:
                watch_program()
                self._meeting = Rendezvous(self.rank, self.world_size, meeting)
                # Not a daemon: at exit, Python waits until the other ranks no longer need this one's part.
                self._thread = threading.Thread(target=self._run, name="graphfeed-peers", daemon=False)
                with uninterrupted():
                    self._thread.start()
            except BaseException:
                self._listener.close()
                raise
            renew_in_child(self, Peers._close_in_child)

    def serve(self, subject: str, respond: Respond) -> str:
        """Answer requests of other ranks for an object.

        Args:
            subject: Kind of the object, such as "graph".
            respond: Computes the response to a request. It is called in several threads of this object concurrently.

        Returns:
            The name for requests: the subject, and the number of objects of the same subject that were served before.
        """
        self._check_process()
        return self._listener.serve(subject, respond)

    @property
    def leaving(self) -> list[int]:
        """The other ranks that send no more requests."""
        return sorted(self._heartbeat.left)

    @property
    def ended(self) -> bool:
        """Whether this rank has closed the object, or a rank was lost or refused."""
        return self._closed or self._lost is not None

    def refuse(self, error: Exception) -> None:
        """Make all further requests of this rank raise an error; it still answers other ranks."""
        self._lost = self._lost or error

    def check(self) -> None:
        """Raise if a rank was lost or refused, or all ranks have closed their peers."""
        if self._lost is not None:
            raise self._lost

    def wait_until_connected(self) -> None:
        """Wait until all ranks are connected.

        Raises:
            RankLostError: A rank was lost.
            TimeoutError: A rank did not start within `start_timeout`.
        """
        self._check_process()
        met = self._changes.wait_for(lambda: self._met, self.start_timeout + self.timeout)
        if isinstance(met, Exception):
            raise met
        if not met:
            raise TimeoutError

    def gather(
        self, name: str, options: Mapping[str, Any], questions: Mapping[int, Tensors] | None = None
    ) -> Iterator[tuple[int, Tensors]]:
        """Send requests to ranks, after all have connected, and return an iterator that waits for their responses.

        Args:
            name: The result of `serve`.
            options: Options of the request, as JSON types.
            questions: Tensors for each rank to send a request to. By default, all ranks get only the options.

        Returns:
            Pairs of a rank and its response. This rank comes first; its response is computed during the iteration.

        Raises:
            RankLostError: A rank was lost.
            TimeoutError: A rank did not start within `start_timeout`.
        """
        asked = {rank: {} for rank in range(self.world_size)} if questions is None else questions
        others = [rank for rank in asked if rank != self.rank]
        if others:
            self.wait_until_connected()
            self.check()
        answers, sent = {}, 0
        for rank in others:
            try:
                answers[rank], size = self._connections[rank].send_request(
                    {"name": name, "options": options}, asked[rank]
                )
            except OSError as error:
                raise self._find_lost(rank) from error
            sent += size
        if others:
            self.traffic.add(exchanges=1, bytes_sent=sent)

        def collect() -> Iterator[tuple[int, Tensors]]:
            if self.rank in asked:
                yield self.rank, self._listener.responds[name](options, asked[self.rank])
            for rank, answer in answers.items():
                yield rank, self._wait(rank, answer)

        return collect()

    def _wait(self, rank: int, answer: Answer) -> Tensors:
        """Wait for a response.

        Raises:
            RankLostError: The rank was lost.
            RuntimeError: The rank could not answer.
            TimeoutError: The rank did not answer in time, usually because it has not created the object.
        """
        try:
            head, tensors = answer.read()
        except InterruptedError as error:
            raise RuntimeError(str(error)) from error
        except OSError as error:
            # Either the time limit of the socket, or Python's timeout, which has no errno.
            if not isinstance(error, BlockingIOError) and not (isinstance(error, TimeoutError) and error.errno is None):
                raise self._find_lost(rank) from error
            raise TimeoutError(
                f"rank {rank} {self.host(rank)} did not answer for {self.start_timeout + self.timeout:g} s; "
                "all ranks must create their partitioned graphs and features in the same order"
            ) from error
        if "error" in head:
            raise RuntimeError(f"rank {rank} {self.host(rank)} failed: {head['error']}")
        return tensors

    def host(self, rank: int) -> str:
        """Return the host and process of a rank for messages; "" before it has registered."""
        return self._ranks[rank].host if rank in self._ranks else ""

    def close(self) -> None:
        """Announce, without waiting, that this rank sends no more requests. It answers others until all have closed."""
        self._closed = True

    def join(self, timeout: float | None = None) -> None:
        """Wait until all ranks have closed their peers, or the timeout in seconds has passed."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _check_process(self) -> None:
        # A fork lacks the thread that communicates with other ranks.
        if self.world_size > 1 and os.getpid() != self._process:
            raise RuntimeError(f"a fork of process {self._process} can't reach other ranks; sample and fetch there")

    def _run(self) -> None:
        """Connect to the other ranks, then send heartbeats until none of them needs this rank."""
        error: Exception = RuntimeError("the peers are closed; create new ones")
        try:
            self._rendezvous()
            while not self._send_heartbeats():
                pass
        except LostError as noticed:
            lost = self._meeting.reason_of(noticed)
            self._heartbeat.announce_loss(lost.rank)
            early = "" if self._met else " before all ranks have connected"
            who = f"rank {lost.rank} {self.host(lost.rank)}".strip()
            error = RankLostError(f"{who} is lost{early}: {lost.how}; {RESUME}")
        except ConnectionAbortedError as failure:  # the process ends, which the launcher notices
            self._heartbeat.announce_loss(self.rank)
            error = failure
        except Exception as failure:
            error = failure
        self._fail(error)

    def _rendezvous(self) -> None:
        try:
            listen = partial(self._listener.listen, port=self._port)
            self._meeting.gather(listen, self._heartbeat, self._welcome, self.start_timeout)
        except distributed.DistError as error:
            store = "the rank with the store of the process group (rank 0, or torchrun's agent)"
            raise RankLostError(f"{store} is lost: {error}; {RESUME}") from error
        self._met = True
        self._changes.notify_all()

    def _welcome(self, rank: int, presence: Presence) -> None:
        """Connect to a rank that has registered."""
        self._ranks[rank] = presence
        if rank == self.rank:
            return
        if presence.encrypted != (self._context is not None):
            has, lacks = (rank, self.rank) if presence.encrypted else (self.rank, rank)
            raise ConnectionError(f"rank {has} has tls, but rank {lacks} has none; pass Peers(tls=...) on all ranks")
        self._connections[rank] = Connections(partial(self._connect, presence, False), self._most)
        try:
            # Ranks that are connected already must not consider this one frozen.
            connect, beat = partial(self._connect, presence, True), partial(self._heartbeat.beat, leaving=False)
            pulse = call_within(2 * CONNECT_SECONDS, connect, f"no answer for {2 * CONNECT_SECONDS:g} s", beat)
            self._heartbeat.watch(rank, pulse)
        except OSError as error:
            check_program()
            if isinstance(error, ssl.SSLError):
                hint = "give all ranks certificates that the tls_root_certs of all others verify"
            else:
                hint = (
                    "if it has not ended, set GLOO_SOCKET_IFNAME to the name of its interface in the network of the "
                    "ranks, such as eth0"
                )
            raise LostError(rank, f"it can't be reached at {presence.address[0]}: {error}; {hint}") from error

    def _send_heartbeats(self) -> bool:
        """Exchange heartbeats for a short while; return whether this rank may end."""
        check_program()
        self.comparison.check_ended()
        # If the program ended without `close`, this thread answers until the other ranks need nothing more.
        if not threading.main_thread().is_alive() and not self._closed:
            self._closed = True
            self.comparison.report_end()
        if self._closed:
            self._listener.end()
        leaving = self._closed and all(connections.has_all() for connections in self._connections.values())
        return self._heartbeat.beat(leaving)

    def _connect(self, presence: Presence, is_pulse: bool) -> socket.socket:
        if self._lost is not None and not is_pulse:
            raise ConnectionError("the peers have ended")
        greeting = GREETING.pack(bytes.fromhex(presence.token), self.rank, is_pulse)
        seconds = self.start_timeout + self.timeout
        return open_connection(presence.address, greeting, CONNECT_SECONDS, seconds, self._context)

    def _find_lost(self, rank: int) -> Exception:
        # Heartbeats show which rank is lost; a rank that exits because of that may have closed this connection.
        self._changes.wait_for(lambda: self._lost is not None, FIND_SECONDS)
        return self._lost or RankLostError(f"a connection to rank {rank} {self.host(rank)} failed; {RESUME}")

    def _fail(self, error: Exception) -> None:
        """Set the error of all pending and future requests."""
        with self._changes.lock:
            # The first error names the cause; later ones follow from it.
            self._lost = self._lost or error
            self._met = self._met or error
        self._changes.notify_all()
        try:
            for connections in self._connections.values():
                connections.close()
        finally:
            self._heartbeat.close()
            self._listener.close()
            self._heartbeat.close()  # also connections that arrived in the meantime

    def _close_in_child(self) -> None:
        # Other ranks notice the end of a process only after all copies of its sockets are closed.
        self._listener.abandon()
        for connections in self._connections.values():
            connections.abandon()
        self._heartbeat.close()


def rank_and_size() -> tuple[int, int]:
    rank = find_rank()
    if rank is None and (launched := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise RuntimeError(
            f"WORLD_SIZE says that {launched} processes were launched, but no process group is initialised; "
            "call torch.distributed.init_process_group first"
        )
    return rank or (0, 1)


SHARED: "weakref.WeakKeyDictionary[Any, Peers]" = weakref.WeakKeyDictionary()
"""The peers of each process group, the default of graphs and features."""


def peers_at(meeting: RendezvousAddress, timeout: float, frozen_timeout: float | None = None) -> Peers:
    # The timeouts of a later call have no effect until these peers have ended.
    visits = VISITS[meeting.rank_address]
    if visits.peers is None or visits.peers.ended:
        visits.peers = Peers(timeout=timeout, meeting=meeting, frozen_timeout=frozen_timeout)
    peers: Peers = visits.peers
    return peers


def shared_peers(frozen_timeout: float | None = None) -> Peers:
    # The timeout of a later call has no effect until these peers have ended.
    rank_and_size()
    group = distributed.group.WORLD if distributed.is_available() else None
    if group is None:
        return Peers(frozen_timeout=frozen_timeout)
    if group not in SHARED or SHARED[group].ended:
        SHARED[group] = Peers(frozen_timeout=frozen_timeout)
    return SHARED[group]
