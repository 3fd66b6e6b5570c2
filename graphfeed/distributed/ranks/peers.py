"""The ranks that hold the parts of a graph: each asks the others, and answers them in threads of its own.

Questions and answers go straight from rank to rank: two one-way delays, whatever other ranks do. A further thread gives
signs of life, and notices when another rank is lost, or when all are done.
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
from graphfeed.distributed.ranks.agreement import Agreement
from graphfeed.distributed.ranks.connections import Answer, Connections, open_connection
from graphfeed.distributed.ranks.heartbeat import RESUME, Heartbeat, LostError, RankLostError
from graphfeed.distributed.ranks.listener import GREETING, Listener, Respond
from graphfeed.distributed.ranks.meeting_point import VISITS, Meeting, MeetingPoint, Presence, call_within
from graphfeed.distributed.ranks.messages import Tensors, Traffic
from graphfeed.distributed.ranks.program_end import check_program, watch_program
from graphfeed.distributed.wire import make_mutual_contexts
from graphfeed.ops.arguments import check_seconds, checked
from graphfeed.ops.process import Changes, renew_in_child, uninterrupted

MOST_CONNECTIONS = 4
"""How many questions of one rank another one answers at the same time, where there are few ranks."""
FEW_RANKS, MANY_RANKS = 8, 100
"""With more ranks than the first, each answers two questions of every other one at the same time; with more than the
second, one: 200 ranks then need no more than the 1,024 files that a process may usually open."""
CONNECT_SECONDS = 30.0
"""How long another rank may take to accept a connection."""
FIND_SECONDS = 5.0
"""How long it may take to find which rank is lost, once a connection has failed."""


class Peers:
    """The ranks of the default process group, or those that meet at an address; each of them holds a part.

    One object serves any number of graphs and features. Programs rarely need to make one: those that name none share
    one. All ranks must make their objects in the same order. The constructor does not wait for other ranks; it starts a
    thread, which ends when all ranks have ended their programs or called `close`. Until then it answers the others,
    whatever this rank's program does; only if an exception ends this rank's program, it ends at once, and the other
    ranks fail too. A rank that calls `sys.exit` counts as done whatever the status; but if it was in the middle of an
    epoch in which others go on, it is lost to them.

    Args:
        timeout: After how many seconds without a sign of life another rank counts as lost. One that ended is noticed at
            once.
        start_timeout: How many seconds late another rank may be at the start.
        meeting: Where ranks without a process group meet. Connecting is left to the thread.
        port: Where this rank listens for the others; 0 takes a free port. Ranks of one machine need ports of their own.
        tls: A certificate chain and its private key, both as PEM, with which this rank encrypts what it sends, and
            shows others that it is one of them. All ranks have one, or none has.
        tls_root_certs: The certificates that those of other ranks are checked against; by default, the chain of `tls`,
            which all ranks share then.
        frozen_timeout: The same as `timeout` where the rank's machine answers, as Linux tells: the rank is frozen then,
            or in one call that keeps Python's other threads from running, such as a sort, for which this must be long
            enough. None means 30 seconds, or `timeout` if that is less. The others warn of the rank after 5 seconds.

    Raises:
        ValueError: A certificate or a key that can't be used, or certificates to check against and none to show.
        RuntimeError: A launcher such as torchrun started several ranks, but there is no process group, nor a `meeting`.
    """

    @checked
    def __init__(
        self,
        *,
        timeout: float = 30.0,
        start_timeout: float = 600.0,
        meeting: MeetingPoint | None = None,
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
            raise ValueError(f"port must lie in 0 .. 65535, but is {port}")
        if tls is None and tls_root_certs is not None:
            raise ValueError("tls_root_certs is given without tls; give tls=(certificate, key) too, as ranks show one")
        server: ssl.SSLContext | None = None
        self._context: ssl.SSLContext | None = None
        if tls is not None:
            server, self._context = make_mutual_contexts(tls, tls_root_certs)
        self.timeout, self.start_timeout = timeout, start_timeout
        self.rank, self.world_size = rank_and_size() if meeting is None else meeting.rank_address[2:]
        self.traffic = Traffic()
        self._process = os.getpid()
        self._ranks: dict[int, Presence] = {}
        """Those that have come."""
        self._met: bool | Exception = False
        """Whether all ranks have begun, or why they did not."""
        self._connections: dict[int, Connections] = {}
        self._changes = Changes()
        self._closed = False
        self._lost: Exception | None = None
        self._thread: threading.Thread | None = None
        self._heartbeat = Heartbeat(self.rank, timeout, frozen_timeout)
        others = self.world_size - 1
        self._port = port
        self._most = MOST_CONNECTIONS if self.world_size <= FEW_RANKS else 1 + (self.world_size <= MANY_RANKS)
        # One more of each other rank carries its signs of life, and needs a thread only until it has begun.
        self._listener = Listener(others * self._most, self.traffic, self._heartbeat.take, server)
        self.agreement = Agreement(self)
        """What all ranks must have in common."""
        if self.world_size > 1:
            try:
                watch_program()
                self._meeting = Meeting(self.rank, self.world_size, meeting)
                # Not a daemon: at the end of a program, Python waits until the other ranks need its part no more.
                self._thread = threading.Thread(target=self._run, name="graphfeed-peers", daemon=False)
                with uninterrupted():
                    self._thread.start()
            except BaseException:
                self._listener.close()
                raise
            renew_in_child(self, Peers._close_in_child)

    def serve(self, subject: str, respond: Respond) -> str:
        """Answer requests of other ranks, of one subject.

        Args:
            subject: What it is, such as "graph".
            respond: Answers a question. It is called in threads of this object, in several at the same time.

        Returns:
            The name by which all ranks ask for it: the subject, and how many of the same subject there were before.
        """
        self._check_process()
        return self._listener.serve(subject, respond)

    @property
    def leaving(self) -> list[int]:
        """The other ranks that ask nothing any more."""
        return sorted(self._heartbeat.left)

    @property
    def ended(self) -> bool:
        """Whether this rank has closed it, or another one was lost."""
        return self._closed or self._lost is not None

    def refuse(self, error: Exception) -> None:
        """Let whatever asks other ranks from now on fail by an error; this rank still answers them."""
        self._lost = self._lost or error

    def check(self) -> None:
        """Raise if a rank was lost or refused, or all have closed theirs."""
        if self._lost is not None:
            raise self._lost

    def meet(self) -> None:
        """Wait until all ranks have begun.

        Raises:
            RankLostError: A rank was lost.
            TimeoutError: A rank did not begin within `start_timeout`.
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
        """Send requests to ranks, once all have begun, and return an iterator that waits for their answers.

        Args:
            name: What `serve` returned.
            options: What is asked, in what JSON can hold.
            questions: What each rank is asked for. By default, all ranks get the options alone.

        Returns:
            Pairs of a rank and its answer. This rank comes first; its answer is computed in the iteration.

        Raises:
            RankLostError: A rank was lost.
            TimeoutError: A rank did not begin within `start_timeout`.
        """
        asked = {rank: {} for rank in range(self.world_size)} if questions is None else questions
        others = [rank for rank in asked if rank != self.rank]
        if others:
            self.meet()
            self.check()
        answers, sent = {}, 0
        for rank in others:
            try:
                answers[rank], size = self._connections[rank].ask({"name": name, "options": options}, asked[rank])
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
        """Return an answer.

        Raises:
            RankLostError: The rank was lost.
            RuntimeError: The rank could not answer.
            TimeoutError: The rank has not made, within `start_timeout`, what it was asked for.
        """
        try:
            head, tensors = answer.read()
        except InterruptedError as error:
            raise RuntimeError(str(error)) from error
        except OSError as error:
            # The time limit of the socket, or Python's own, which has no number.
            if not isinstance(error, BlockingIOError) and not (isinstance(error, TimeoutError) and error.errno is None):
                raise self._find_lost(rank) from error
            raise TimeoutError(
                f"rank {rank} {self.host(rank)} did not answer for {self.start_timeout + self.timeout:g} s; "
                "all ranks must make their graphs and features in parts, in the same order"
            ) from error
        if "error" in head:
            raise RuntimeError(f"rank {rank} {self.host(rank)} failed: {head['error']}")
        return tensors

    def host(self, rank: int) -> str:
        """Return the host and the process of a rank, as far as it has come, for people."""
        return self._ranks[rank].host if rank in self._ranks else ""

    def close(self) -> None:
        """Announce, without waiting, that this rank sends no more requests. It answers others until all have closed."""
        self._closed = True

    def join(self, timeout: float | None = None) -> None:
        """Wait until all ranks have closed theirs, or some seconds have passed."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _check_process(self) -> None:
        # A fork lacks the thread that reaches other ranks.
        if self.world_size > 1 and os.getpid() != self._process:
            raise RuntimeError(f"a fork of process {self._process} can't reach other ranks; sample and fetch there")

    def _run(self) -> None:
        """Meet the other ranks, and give signs of life until nobody needs this rank any more."""
        error: Exception = RuntimeError("the peers are closed; make others")
        try:
            self._begin()
            while not self._give_sign():
                pass
        except LostError as noticed:
            lost = self._meeting.reason_of(noticed)
            self._heartbeat.tell_lost(lost.rank)
            early = "" if self._met else " before all ranks have met"
            who = f"rank {lost.rank} {self.host(lost.rank)}".strip()
            error = RankLostError(f"{who} is lost{early}: {lost.how}; {RESUME}")
        except ConnectionAbortedError as failure:  # the process ends, which the launcher notices
            self._heartbeat.tell_lost(self.rank)
            error = failure
        except Exception as failure:
            error = failure
        self._fail(error)

    def _begin(self) -> None:
        try:
            listen = partial(self._listener.listen, port=self._port)
            self._meeting.gather(listen, self._heartbeat, self._welcome, self.start_timeout)
        except distributed.DistError as error:
            store = "the rank with the store of the process group (rank 0, or torchrun's agent)"
            raise RankLostError(f"{store} is lost: {error}; {RESUME}") from error
        self._met = True
        self._changes.notify_all()

    def _welcome(self, rank: int, presence: Presence) -> None:
        """Connect to a rank that has come."""
        self._ranks[rank] = presence
        if rank == self.rank:
            return
        if presence.encrypted != (self._context is not None):
            has, lacks = (rank, self.rank) if presence.encrypted else (self.rank, rank)
            raise ConnectionError(f"rank {has} has tls, but rank {lacks} has none; give Peers(tls=...) on all ranks")
        self._connections[rank] = Connections(partial(self._connect, presence, False), self._most)
        try:
            # Those that have come already shall not take this rank for frozen.
            connect, beat = partial(self._connect, presence, True), partial(self._heartbeat.beat, leaving=False)
            pulse = call_within(2 * CONNECT_SECONDS, connect, f"no answer for {2 * CONNECT_SECONDS:g} s", beat)
            self._heartbeat.begin(rank, pulse)
        except OSError as error:
            check_program()
            if isinstance(error, ssl.SSLError):
                hint = "give all ranks certificates that the tls_root_certs of all others know"
            else:
                hint = (
                    "if it has not ended, set GLOO_SOCKET_IFNAME to the name of its interface in the network of the "
                    "ranks, such as eth0"
                )
            raise LostError(rank, f"it can't be reached at {presence.address[0]}: {error}; {hint}") from error

    def _give_sign(self) -> bool:
        """Give signs of life for a short while; return whether this rank may end."""
        check_program()
        self.agreement.check_ended()
        # The program has ended without `close`; this thread answers until the other ranks need nothing any more.
        if not threading.main_thread().is_alive() and not self._closed:
            self._closed = True
            self.agreement.tell_end()
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
        # Signs of life tell which rank is lost; one that ended because of that may have closed this connection.
        self._changes.wait_for(lambda: self._lost is not None, FIND_SECONDS)
        return self._lost or RankLostError(f"a connection to rank {rank} {self.host(rank)} failed; {RESUME}")

    def _fail(self, error: Exception) -> None:
        """Set an error for all questions that wait, and for those to come."""
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
            self._heartbeat.close()  # and what came meanwhile

    def _close_in_child(self) -> None:
        # Others notice the end of a process only once no other one has its sockets open.
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
"""The peers of each process group, for graphs and features that name none."""


def peers_at(meeting: MeetingPoint, timeout: float, frozen_timeout: float | None = None) -> Peers:
    # The timeouts of a later call hold only once these peers have ended.
    visits = VISITS[meeting.rank_address]
    if visits.peers is None or visits.peers.ended:
        visits.peers = Peers(timeout=timeout, meeting=meeting, frozen_timeout=frozen_timeout)
    peers: Peers = visits.peers
    return peers


def shared_peers(frozen_timeout: float | None = None) -> Peers:
    # The timeout of a later call holds only once these peers have ended.
    rank_and_size()
    group = distributed.group.WORLD if distributed.is_available() else None
    if group is None:
        return Peers(frozen_timeout=frozen_timeout)
    if group not in SHARED or SHARED[group].ended:
        SHARED[group] = Peers(frozen_timeout=frozen_timeout)
    return SHARED[group]
