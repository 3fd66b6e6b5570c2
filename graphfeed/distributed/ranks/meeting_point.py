"""Rendezvous of ranks, in the store of their process group or at an address."""

import json
import os
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import distributed

from graphfeed.distributed.ranks.heartbeat import Heartbeat, LostError
from graphfeed.distributed.ranks.program_end import WHEN_FAILED, check_program
from graphfeed.distributed.release import RELEASE
from graphfeed.ops.arguments import checked

RankAddress: TypeAlias = tuple[str, int, int, int]
"""The address, the port, the rank, and the number of ranks."""

LAUNCHED = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""What launchers set to the same text on all ranks of a job."""
FAILED = "graphfeed failed"
"""The key under which a rank whose program failed says so in the store of the process group; in that of a meeting, one
that can't listen."""
STORE_SECONDS = 5.0
"""How much longer than it is to wait for ranks the store may take to say that they are missing."""
CHECK_SECONDS = 0.1
"""How often a wait looks whether the program has failed."""

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
        """Listen as rank 0, or connect to it, and return a connection of its own to the store that the ranks share.

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

    def gather(
        self,
        listen: Callable[[str], tuple[tuple[str, int], str, bool]],
        heartbeat: Heartbeat,
        welcome: Callable[[int, Presence], None],
        seconds: float,
    ) -> None:
        """Wait some seconds for all ranks; `welcome` gets each as it comes, this one first.

        `listen` returns what a `Presence` ends with, for the address at which ranks meet.
        """
        # A store whose process is frozen never answers.
        text = f"the store of rank 0 did not answer for {seconds:g} s"
        if self.point is None:
            self.shared = call_within(seconds + STORE_SECONDS, partial(connect_to_store, self._group, seconds), text)
            self.store = distributed.distributed_c10d.PrefixStore(f"graphfeed/{self._use}", self.shared)
        else:
            self.store = self.point.open_store(seconds, self._use)
        self._group = None
        toward = os.environ.get("MASTER_ADDR", socket.gethostname()) if self.point is None else self.point.address
        host = f"({socket.gethostname()}, process {os.getpid()})"
        try:
            presence = Presence(host, *listen(toward))
        except OSError as error:
            self.store.set(FAILED, json.dumps([self.rank, str(error)]))  # others would wait for this rank
            raise
        welcome(self.rank, presence)
        # The heartbeat gives signs of life to those that have come, and raises a LostError if one is lost meanwhile.
        call_within(seconds + STORE_SECONDS, partial(self._meet, presence, heartbeat, welcome, seconds), text)

    def _meet(
        self, presence: Presence, heartbeat: Heartbeat, welcome: Callable[[int, Presence], None], seconds: float
    ) -> None:
        """Register this rank in the store, and wait until all others have registered; see `gather`."""
        give_up = time.monotonic() + seconds
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
        missing = deque(rank for rank in range(self.world_size) if rank != self.rank)
        # Not the store's own wait(), which would keep the store from the process's other threads.
        while missing:
            # First, as other ranks end by it too.
            if self.shared is not None and self.shared.check([FAILED]):
                raise LostError(int(self.shared.get(FAILED)), "its program failed")
            if self.store.check([FAILED]):
                raise LostError(*json.loads(self.store.get(FAILED)))
            name = f"here/{missing[0]}"
            if self.store.check([name]):
                welcome(missing.popleft(), Presence(*json.loads(self.store.get(name))))
                continue
            if time.monotonic() > give_up:
                heartbeat.tell_lost(missing[0])
                raise TimeoutError(f"ranks {sorted(missing)} did not make their parts within {seconds:g} s")
            missing.rotate(-1)  # ranks come in any order
            try:
                heartbeat.beat(leaving=False)
            except LostError as lost:
                if lost.rank not in missing:
                    raise
                give_up = 0.0  # another rank has waited for it for so many seconds


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


def tell_ranks() -> None:
    group: Any = distributed.group.WORLD if distributed.is_available() else None
    if hasattr(group, "get_group_store"):
        with suppress(Exception):  # the store may have ended with rank 0
            group.get_group_store().set(FAILED, str(distributed.get_rank()))


def call_within(seconds: float, function: Callable[[], Result], text: str) -> Result:
    """Return the result of a function; after some seconds raise a TimeoutError, and leave it to a daemon thread."""
    future: Future[Result] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=call, name="graphfeed-bounded-call", daemon=True).start()
    except RuntimeError:  # a program that ends starts no thread
        return function()
    left = seconds
    while not wait([future], min(left, CHECK_SECONDS)).done:
        check_program()  # which may raise a ConnectionAbortedError
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


WHEN_FAILED.append(tell_ranks)
