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

from graphfeed.distributed.ranks.heartbeat import Heartbeat, LostError
from graphfeed.distributed.ranks.program_end import AT_END, check_program
from graphfeed.distributed.release import RELEASE
from graphfeed.ops.arguments import checked
from graphfeed.ops.process import in_one_step, wait_until_done

RankAddress: TypeAlias = tuple[str, int, int, int]
"""The address, the port, the rank, and the number of ranks."""

LAUNCHED = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""What launchers set to the same text on all ranks of a job."""
FAILED = "graphfeed failed"
"""The key under which a store has a rank that does not come, and how that was noticed, as JSON: that of the process
group one whose program failed or ended, and that of a meeting one that can't listen, or is lost to another one."""
STORE_SECONDS = 5.0
"""How much longer than it is to wait for ranks the store may take to say that they are missing."""
CHECK_SECONDS = 0.1
"""How often a wait looks whether the program has failed."""
LOOK_SECONDS, SELDOM_SECONDS = 0.02, 0.2
"""How often a rank looks in the store whether another one has come: at first, and after some seconds."""
TELL_SECONDS = 0.5
"""How long it may take to say in the store who is lost, and to find there what another rank has said."""

Result = TypeVar("Result")


class Presence(NamedTuple):
    """What a rank says of itself as it comes."""

    host: str
    """Its host and process, for people."""
    address: tuple[str, int]
    """Where it answers other ranks."""
    token: str
    """What it wants to be told there first."""
    encrypted: bool
    """Whether it speaks TLS there."""


@dataclass
class Visits:
    """The state that this process keeps of an address where it is a rank, or of its process groups."""

    uses: Iterator[int] = field(default_factory=count)
    """Counts how often ranks met there."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    server: Any = None
    """The store of rank 0. It stays open, so that ranks can meet again at the same address."""
    peers: Any = None
    """The `Peers` that were made there last."""


VISITS: defaultdict[RankAddress | None, Visits] = defaultdict(Visits)


@checked
class MeetingPoint(NamedTuple):
    """The rendezvous address of ranks without a process group: rank 0 listens there."""

    address: str
    port: int
    rank: int
    world_size: int
    job: str = ""
    """A name that all ranks of a job have, and other jobs at the same address don't. The number of ranks, and what
    torchrun and SLURM call the job, tell jobs apart as well."""

    @property
    def rank_address(self) -> RankAddress:
        """All but the job."""
        return self[:4]

    @property
    def at(self) -> str:
        """The address and the port."""
        return f"{self.address}:{self.port}"

    def describe_job(self) -> str:
        """Return what tells this job from others that may use the same address."""
        launched = [f"{name}={os.environ[name]}" for name in LAUNCHED if os.environ.get(name)]
        return ", ".join([f"{self.job!r} of {self.world_size} ranks", *launched])

    def open_store(self, seconds: float, use: int = 0) -> Any:
        """Listen as rank 0, or connect to it, and return an own connection to the ranks' store.

        Args:
            seconds: How long to wait for rank 0.
            use: How often the ranks met here before.
        """
        give_up = time.monotonic() + seconds
        missing = f"rank 0 did not listen at {self.at} within {seconds:g} s"
        # A TCPStore would wait where nothing can stop it, and print a trace for each time that it tried.
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
            # A connection of its own: a thread that waits for a key of another rank holds it meanwhile.
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
        # It waits for ever for a word of a server that says none.
        return call_within(seconds, connect, missing)


class Meeting:
    """One rendezvous, at an address or, without a point, in the default process group. Making one waits for nobody."""

    def __init__(self, rank: int, world_size: int, point: MeetingPoint | None) -> None:
        self.rank, self.world_size, self.point = rank, world_size, point
        self.store: Any = None
        self.shared: Any = None
        """The store of the process group, where ranks that never come say so."""
        self._group = distributed.group.WORLD if point is None else None
        self._use = next(VISITS[None if point is None else point.rank_address].uses)
        self._own: SimpleQueue[Presence | None] = SimpleQueue()
        self._found: SimpleQueue[tuple[int, Presence] | Exception] = SimpleQueue()
        self._over = threading.Event()
        self._answered = 0.0
        """When the store last answered."""
        # A store whose process is frozen never answers. The thread is begun here, as a program that ends begins none.
        threading.Thread(target=self._look, name="graphfeed-meeting", daemon=True).start()

    def gather(
        self,
        listen: Callable[[str], tuple[tuple[str, int], str, bool]],
        heartbeat: Heartbeat,
        welcome: Callable[[int, Presence], None],
        seconds: float,
    ) -> None:
        """Wait some seconds for all ranks; `welcome` gets each as it comes, this one first.

        `listen` returns what a `Presence` ends with, for the address at which ranks meet. Meanwhile the heartbeat gives
        signs of life to those that have come, and raises a LostError if one is lost.
        """
        silence = f"the store of rank 0 did not answer for {seconds:g} s"
        try:
            if self.point is None:
                connect = partial(connect_to_store, self._group, seconds)
                self.shared = call_within(seconds + STORE_SECONDS, connect, silence)
                self.store = distributed.distributed_c10d.PrefixStore(f"graphfeed/{self._use}", self.shared)
            else:
                self.store = self.point.open_store(seconds, self._use)
            self._group = None
            toward = os.environ.get("MASTER_ADDR", socket.gethostname()) if self.point is None else self.point.address
            try:
                presence = Presence(f"({socket.gethostname()}, process {os.getpid()})", *listen(toward))
            except OSError as error:
                self._tell_lost(self.rank, str(error))  # others would wait for this rank
                raise
            welcome(self.rank, presence)
            self._own.put(presence)
            try:
                self._meet(heartbeat, welcome, seconds, silence)
            except LostError as lost:
                self._tell_lost(lost.rank, lost.how)  # others may only see that this rank ends by it
                raise
        finally:
            self._over.set()
            self._own.put(None)

    def _meet(
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
                give_up = 0.0  # another rank has waited for it for so many seconds
            if isinstance(found, Exception):
                raise found
            if time.monotonic() > give_up:
                heartbeat.tell_lost(min(missing))
                is_silent = time.monotonic() - self._answered > STORE_SECONDS
                late = f"ranks {sorted(missing)} did not make their parts within {seconds:g} s"
                raise TimeoutError(silence if is_silent else late)

    def _look(self) -> None:
        """Register this rank in the store, and put the others, as they come, or what failed, where `_meet` takes it."""
        presence = self._own.get()
        if presence is None:
            return
        try:
            self._register(presence)
            come, pause = 0, LOOK_SECONDS
            # Not the store's own wait(), which would keep the store from the process's other threads.
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
                "each job a name (group_name, or MeetingPoint's job); if a rank was started again, start all of them "
                "again"
            )
        self.store.set(own, json.dumps(presence))
        # The n-th to come, so that who waits asks for one key, whoever is missing.
        self.store.set(f"come/{self.store.add('come', 1)}", str(self.rank))

    def _tell_lost(self, rank: int, how: str) -> None:
        with suppress(Exception):  # the store may be lost with the rank
            tell = partial(self.store.compare_set, FAILED, "", json.dumps([rank, how]))  # the first word stands
            call_within(TELL_SECONDS, tell, "")

    def _find_lost(self) -> LostError | None:
        for store in [self.store] if self.shared is None else [self.shared, self.store]:
            if store.check([FAILED]):
                return LostError(*json.loads(store.get(FAILED)))
        return None

    def reason_of(self, lost: LostError) -> LostError:
        """Return what the store says of who was lost first, or else what is given."""

        def ask() -> LostError | None:
            # Of a store that has ended with rank 0, torch would print a trace.
            at = self.point or (os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", 0)))
            return self._find_lost() if lost.rank or not at[1] or listens(*at[:2]) else None

        with suppress(Exception):
            return call_within(TELL_SECONDS, ask, "") or lost
        return lost


def connect_to_store(group: Any, seconds: float) -> Any:
    """Return a connection of its own to the store of a process group."""
    # A thread that waits for a key of another rank holds its connection meanwhile.
    if hasattr(group, "get_group_store"):
        store = group.get_group_store()
        return store.clone() if hasattr(store, "clone") else store
    # Older releases of torch don't show it. Where `env://` initialised the group, as under torchrun, it listens here.
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if address is None or port is None:
        raise ConnectionError(
            f"torch {torch.__version__} doesn't show the store of a process group, and MASTER_ADDR and "
            "MASTER_PORT are not set; initialise the group by env://, update torch, or give Peers a MeetingPoint"
        )
    store = distributed.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        address, int(port), timeout=timedelta(seconds=seconds), wait_for_workers=False
    )
    # The store of torchrun's agent outlives the ranks, which torchrun starts again.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") if "TORCHELASTIC_USE_AGENT_STORE" in os.environ else ""
    return distributed.distributed_c10d.PrefixStore(f"graphfeed of attempt {attempt}", store)


def tell_ranks(failed: bool) -> None:
    """Tell ranks that wait for this one, in the store of the process group, that it never comes."""
    group: Any = distributed.group.WORLD if distributed.is_available() else None
    # One that has come answers the others until all are done.
    if hasattr(group, "get_group_store") and (failed or None not in VISITS):
        how = "its program failed" if failed else "its program ended"
        with suppress(Exception):  # the store may have ended with rank 0
            group.get_group_store().set(FAILED, json.dumps([distributed.get_rank(), how]))


def call_within(
    seconds: float, function: Callable[[], Result], text: str, meanwhile: Callable[[], object] = lambda: None
) -> Result:
    """Return the result of a function; after some seconds raise a TimeoutError, and leave it to a daemon thread."""
    future: Future[Result] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    try:
        in_one_step(threading.Thread(target=call, name="graphfeed-bounded-call", daemon=True).start)
    except RuntimeError:  # a program that ends starts no thread
        return function()
    left = seconds
    while not wait_until_done(future, min(left, CHECK_SECONDS)):
        check_program()  # which may raise a ConnectionAbortedError
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


AT_END.append(tell_ranks)
