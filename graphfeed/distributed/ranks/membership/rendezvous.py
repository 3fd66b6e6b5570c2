"""Rendezvous of ranks, in the store of their process group or at an address."""

import json
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import distributed

from graphfeed.distributed.ranks.membership.heartbeat import Heartbeat, LostError
from graphfeed.distributed.ranks.membership.program_end import AT_END, check_program
from graphfeed.distributed.release import RELEASE
from graphfeed.ops.arguments import checked
from graphfeed.ops.process import current_limits, in_one_step, wait_until_done

RankAddress: TypeAlias = tuple[str, int, int, int]
"""Address, port, rank, and number of ranks."""

LAUNCHED = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""Environment variables that launchers set to the same string on all ranks of a job."""
FAILED = "graphfeed failed"
"""Key in the store under which a rank that fails to register is recorded with the reason, as JSON. In the store of a
process group, its program failed or ended; in that of a rendezvous, it can't listen, or another rank has lost it."""
CHECK_SECONDS = 0.1
"""Interval at which waiting threads check whether the program has failed."""
LOOK_SECONDS, SELDOM_SECONDS = 0.02, 0.2
"""Interval at which a rank checks the store for new ranks: at first, and after some seconds."""
TELL_SECONDS = 0.5
"""Time limit for recording a lost rank in the store, and for looking one up."""

Result = TypeVar("Result")


class Presence(NamedTuple):
    """The registration of a rank, as the other ranks see it."""

    host: str
    """Host and process, for messages."""
    address: tuple[str, int]
    """Where it answers other ranks."""
    token: str
    """Token that connections must send in their greeting."""
    encrypted: bool
    """Whether connections use TLS."""


@dataclass
class Visits:
    """State of this process for a rendezvous address where it is a rank, or for its process groups."""

    uses: Iterator[int] = field(default_factory=count)
    """Counts the rendezvous at this address."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    server: Any = None
    """The store of rank 0. It stays open, so that ranks can meet again at the same address."""
    peers: Any = None
    """The latest `Peers` of this address."""


VISITS: defaultdict[RankAddress | None, Visits] = defaultdict(Visits)


@checked
class RendezvousAddress(NamedTuple):
    """The rendezvous address of ranks without a process group: rank 0 listens there."""

    address: str
    port: int
    rank: int
    world_size: int
    job: str = ""
    """A name shared by all ranks of a job, but not by other jobs at the same address. The number of ranks and the job
    ids of torchrun and SLURM distinguish jobs as well."""

    @property
    def rank_address(self) -> RankAddress:
        """The fields without the job."""
        return self[:4]

    @property
    def at(self) -> str:
        """The address and the port as a string."""
        return f"{self.address}:{self.port}"

    def describe_job(self) -> str:
        """Describe this job, to distinguish it from others at the same address."""
        launched = [f"{name}={os.environ[name]}" for name in LAUNCHED if os.environ.get(name)]
        return ", ".join([f"{self.job!r} of {self.world_size} ranks", *launched])

    def open_store(self, seconds: float, use: int = 0) -> Any:
        """Listen as rank 0, or wait for it; return a separate connection to the ranks' store.

        Args:
            seconds: Time limit for waiting for rank 0.
            use: Number of earlier rendezvous at this address.
        """
        give_up = time.monotonic() + seconds
        missing = f"rank 0 did not listen at {self.at} within {seconds:g} s"
        # TCPStore itself would wait uninterruptibly, and print a stack trace for each attempt.
        while self.rank != 0 and not listens(self.address, self.port):
            check_program()
            if time.monotonic() > give_up:
                raise TimeoutError(missing)
            time.sleep(0.1)
        visits = VISITS[self.rank_address]
        try:
            with visits.lock:
                if self.rank == 0 and visits.server is None:
                    visits.server = self._connect(True, max(1.0, give_up - time.monotonic()), missing)
            # A separate connection: a thread that waits for a key of another rank blocks its connection.
            own = self._connect(False, max(1.0, give_up - time.monotonic()), missing)
        except RuntimeError as error:
            if self.rank == 0:
                raise OSError(f"rank 0 can't listen at {self.at}: {error}; choose another port") from error
            raise TimeoutError(missing) from error
        store = distributed.distributed_c10d.PrefixStore(f"graphfeed/{use}", own)
        job = self.describe_job()
        first = store.compare_set("job", "", job).decode()
        if first != job:
            raise ConnectionError(
                f"ranks of the job {first} meet at {self.at}, but this rank belongs to {job}; choose another port"
            )
        return store

    def _connect(self, listen: bool, seconds: float, missing: str) -> Any:
        connect = partial(
            distributed.TCPStore,  # type: ignore[attr-defined]  # torch does not list it
            self.address, self.port, self.world_size, listen,
            timeout=timedelta(seconds=seconds), wait_for_workers=False,
        )  # fmt: skip
        # TCPStore waits forever for a server that accepts the connection but sends nothing.
        return call_within(seconds, connect, missing)


class Rendezvous:
    """One rendezvous, at an address or, without a point, in the default process group. The constructor never blocks."""

    def __init__(self, rank: int, world_size: int, point: RendezvousAddress | None) -> None:
        self.rank, self.world_size, self.point = rank, world_size, point
        self.store: Any = None
        self.shared: Any = None
        """The store of the process group, where ranks that never register are recorded."""
        self._group = distributed.group.WORLD if point is None else None
        self._use = next(VISITS[None if point is None else point.rank_address].uses)
        self._own: SimpleQueue[Presence | None] = SimpleQueue()
        self._found: SimpleQueue[tuple[int, Presence] | Exception] = SimpleQueue()
        self._over = threading.Event()
        self._answered = 0.0
        """Time of the store's last response."""
        # A store whose process is frozen never responds. Start the thread here: a program that is ending can't.
        threading.Thread(target=self._poll_store, name="graphfeed-meeting", daemon=True).start()

    def gather(
        self,
        listen: Callable[[str], tuple[tuple[str, int], str, bool]],
        heartbeat: Heartbeat,
        welcome: Callable[[int, Presence], None],
        seconds: float,
    ) -> None:
        """Wait for all ranks, up to a time limit; `welcome` is called with each as it registers, first with this one.

        `listen` is called with the rendezvous address, and returns the last three fields of `Presence`. In the meantime
        the heartbeat signals this rank to the registered ones; if one is lost, it raises a LostError.
        """
        silence = f"the store of rank 0 did not answer for {seconds:g} s"
        try:
            if self.point is None:
                connect = partial(connect_to_store, self._group, seconds)
                self.shared = call_within(seconds + current_limits().peer_seconds, connect, silence)
                self.store = distributed.distributed_c10d.PrefixStore(f"graphfeed/{self._use}", self.shared)
            else:
                self.store = self.point.open_store(seconds, self._use)
            self._group = None
            toward = os.environ.get("MASTER_ADDR", socket.gethostname()) if self.point is None else self.point.address
            try:
                presence = Presence(f"({socket.gethostname()}, process {os.getpid()})", *listen(toward))
            except OSError as error:
                self._store_loss(self.rank, str(error))  # other ranks would wait for this one
                raise
            welcome(self.rank, presence)
            self._own.put(presence)
            try:
                self._wait_for_ranks(heartbeat, welcome, seconds, silence)
            except LostError as lost:
                self._store_loss(lost.rank, lost.how)  # others may only see that this rank exits because of it
                raise
        finally:
            self._over.set()
            self._own.put(None)

    def _wait_for_ranks(
        self, heartbeat: Heartbeat, welcome: Callable[[int, Presence], None], seconds: float, silence: str
    ) -> None:
        """Wait until all other ranks have registered; see `gather`."""
        missing, give_up = set(range(self.world_size)) - {self.rank}, time.monotonic() + seconds
        while missing:
            check_program()
            found: Any = None
            try:
                heartbeat.beat(leaving=False)
                while missing and not self._found.empty() and isinstance(found := self._found.get(), tuple):
                    missing.remove(found[0])
                    welcome(*found)
            except LostError as lost:
                if lost.rank not in missing or self.reason_of(lost) is not lost:
                    raise
                give_up = 0.0  # another rank has already waited for it as long
            if isinstance(found, Exception):
                raise found
            if time.monotonic() > give_up:
                heartbeat.announce_loss(min(missing))
                is_silent = time.monotonic() - self._answered > current_limits().peer_seconds
                late = f"ranks {sorted(missing)} did not create their Peers within {seconds:g} s"
                raise TimeoutError(silence if is_silent else late)

    def _poll_store(self) -> None:
        """Register this rank in the store; pass other ranks that register, or an error, to `_wait_for_ranks`."""
        presence = self._own.get()
        if presence is None:
            return
        try:
            self._register(presence)
            come, pause = 0, LOOK_SECONDS
            # Not the store's own wait(), which would block the store for other threads of this process.
            while not self._over.is_set():
                if said := self._find_lost():
                    raise said
                self._answered = time.monotonic()
                if self.store.check([f"come/{come + 1}"]):
                    come, rank = come + 1, int(self.store.get(f"come/{come + 1}"))
                    if rank != self.rank:
                        self._found.put((rank, Presence(*json.loads(self.store.get(f"here/{rank}")))))
                else:
                    self._over.wait(pause)
                    pause = min(pause * 1.02, SELDOM_SECONDS)
        except Exception as error:
            self._found.put(error)

    def _register(self, presence: Presence) -> None:
        release = self.store.compare_set("release", "", RELEASE).decode()
        if release != RELEASE:
            raise ConnectionError(
                f"another rank has graphfeed {release}, but rank {self.rank} has {RELEASE}; install the same "
                "release on all ranks"
            )
        own = f"here/{self.rank}"
        if self.store.add(f"taken/{self.rank}", 1) > 1:
            holder = json.loads(self.store.get(own))[0] if self.store.check([own]) else "another process"
            at = "" if self.point is None else f" at {self.point.at}"
            raise ConnectionError(
                f"rank {self.rank}{at} is already {holder}; if another job meets there, choose another port, or give "
                "each job a name (group_name, or RendezvousAddress's job); if a rank was restarted, restart all of them"
            )
        self.store.set(own, json.dumps(presence))
        # Keys count arrivals, so waiting ranks poll a single key, whichever ranks are missing.
        self.store.set(f"come/{self.store.add('come', 1)}", str(self.rank))

    def _store_loss(self, rank: int, how: str) -> None:
        with suppress(Exception):  # the store may be lost together with the rank
            tell = partial(self.store.compare_set, FAILED, "", json.dumps([rank, how]))  # the first record wins
            call_within(TELL_SECONDS, tell, "")

    def _find_lost(self) -> LostError | None:
        for store in [self.store] if self.shared is None else [self.shared, self.store]:
            if store.check([FAILED]):
                return LostError(*json.loads(store.get(FAILED)))
        return None

    def reason_of(self, lost: LostError) -> LostError:
        """Return the rank that the store records as lost first, with the reason; or else the argument."""

        def ask() -> LostError | None:
            # torch would print a stack trace if the store has ended with rank 0.
            at = self.point or (os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", 0)))
            return self._find_lost() if lost.rank or not at[1] or listens(*at[:2]) else None

        with suppress(Exception):
            return call_within(TELL_SECONDS, ask, "") or lost
        return lost


def connect_to_store(group: Any, seconds: float) -> Any:
    """Return a separate connection to the store of a process group."""
    # A thread that waits for a key of another rank blocks its connection.
    if hasattr(group, "get_group_store"):
        store = group.get_group_store()
        return store.clone() if hasattr(store, "clone") else store
    # Older releases of torch don't expose the store. With `env://`, as under torchrun, it listens at this address.
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if address is None or port is None:
        raise ConnectionError(
            f"torch {torch.__version__} doesn't expose the store of a process group, and MASTER_ADDR and "
            "MASTER_PORT are not set; initialise the group by env://, update torch, or give Peers a RendezvousAddress"
        )
    store = distributed.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        address, int(port), timeout=timedelta(seconds=seconds), wait_for_workers=False
    )
    # The store of torchrun's agent outlives the ranks, which torchrun restarts.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") if "TORCHELASTIC_USE_AGENT_STORE" in os.environ else ""
    return distributed.distributed_c10d.PrefixStore(f"graphfeed of attempt {attempt}", store)


def announce_failure(failed: bool) -> None:
    """Record in the store of the process group that this rank never registers, for ranks that wait for it."""
    group: Any = distributed.group.WORLD if distributed.is_available() else None
    # A rank that has registered answers the others until all are done.
    if hasattr(group, "get_group_store") and (failed or None not in VISITS):
        how = "its program failed" if failed else "its program ended"
        with suppress(Exception):  # the store may have ended with rank 0
            group.get_group_store().set(FAILED, json.dumps([distributed.get_rank(), how]))


def call_within(
    seconds: float, function: Callable[[], Result], text: str, meanwhile: Callable[[], object] = lambda: None
) -> Result:
    """Return the result of a function, or raise a TimeoutError after `seconds`, leaving it to a daemon thread."""
    future: Future[Result] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    try:
        in_one_step(threading.Thread(target=call, name="graphfeed-bounded-call", daemon=True).start)
    except RuntimeError:  # a program that is ending can't start threads
        return function()
    left = seconds
    while not wait_until_done(future, min(left, CHECK_SECONDS)):
        check_program()  # raises a ConnectionAbortedError if the program has failed
        meanwhile()
        left -= CHECK_SECONDS
        if left <= 0:
            raise TimeoutError(text)
    return future.result()


def listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


AT_END.append(announce_failure)
