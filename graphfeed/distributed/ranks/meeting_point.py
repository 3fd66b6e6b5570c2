"""The address at which ranks meet that share no process group, and how ranks take their places."""

import json
import os
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from torch import distributed

from graphfeed.datapipes.sources.distributed_item_sampler import find_rank
from graphfeed.distributed.one_machine.memory_scope import memory_scope
from graphfeed.distributed.ranks.bounded_call import call_within
from graphfeed.distributed.ranks.program_end import check_program

Place: TypeAlias = tuple[str, int, int, int]
"""The address, the port, the rank, and the number of ranks."""

OTHER_PORT = "choose another port, or give the job a name of its own (group_name, or MeetingPoint's job)"
LAUNCHED = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""What launchers set to the same text on all ranks of a job."""
LISTENING: dict[Place, Any] = {}
"""The stores of which this process is rank 0. They stay open, so that ranks can meet again at the same address."""
OPENING = threading.Lock()
USES: defaultdict[Place, Iterator[int]] = defaultdict(count)
"""Counts how often ranks met at an address."""
STRANGER = "stranger"
"""Names a process whose rank another one had taken."""
GUEST_SECONDS = 1.0
"""How long rank 0 takes to find out who else listens at its address."""


class MeetingPoint(NamedTuple):
    """Where ranks meet that share no process group: rank 0 listens there."""

    address: str
    port: int
    rank: int
    world_size: int
    job: str = ""
    """A name that all ranks of a job have, and other jobs at the same address don't. The number of ranks, what torchrun
    and SLURM call the job, and the process group of its ranks, if there is one, tell jobs apart as well."""

    @property
    def place(self) -> Place:
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

    def open_store(self, seconds: float, use: int = 0, group: Any = None) -> Any:
        """Listen as rank 0, or connect to it, and return a connection of its own to the store that the ranks share.

        Args:
            seconds: How long to wait for rank 0.
            use: How often the ranks met here before.
            group: The store of the ranks' process group. Each group draws an id there, which tells its job from others.

        Raises:
            ConnectionError: Rank 0 belongs to another job.
            OSError: Rank 0 can't listen there.
            TimeoutError: It did not listen within so many seconds.
            ConnectionAbortedError: The program of this rank failed meanwhile.
        """
        give_up = time.monotonic() + seconds
        missing = f"rank 0 did not listen at {self.at} within {seconds:g} s"
        # A TCPStore would wait where nothing can stop it, and print a trace for each time that it tried.
        while self.rank != 0 and not listens(self.address, self.port):
            check_program()
            if time.monotonic() > give_up:
                raise TimeoutError(missing)
            time.sleep(0.1)
        job = Job(self.describe_job(), draw_id(group, seconds), f"{describe_process()} {secrets.token_hex(4)}")
        try:
            with OPENING:
                if self.rank == 0 and self.place not in LISTENING:
                    LISTENING[self.place] = self._connect(True, max(1.0, give_up - time.monotonic()), missing)
            # A connection of its own: a thread that waits for a key of another rank holds it meanwhile.
            own = self._connect(False, max(1.0, give_up - time.monotonic()), missing)
        except RuntimeError as error:
            if self.rank == 0:
                self._warn_others(job)
                raise OSError(f"rank 0 can't listen at {self.at}: {error}; choose another port") from error
            raise TimeoutError(missing) from error
        store = distributed.distributed_c10d.PrefixStore(f"graphfeed/{use}", own)
        if self.rank == 0:
            # Where rank 0 listens at another address of the machine than this one, somebody else may listen here.
            found = Job.read(store.compare_set("job", "", job.write()))
            if found != job:
                raise ConnectionError(f"{found.process} is rank 0 at {self.at}, of the job {found.name}; {OTHER_PORT}")
            return store
        wait_for(store, ["job"], give_up, "rank 0 did not begin")
        found = Job.read(store.get("job"))
        if not found.may_be(job):
            raise ConnectionError(
                f"rank 0 at {self.at} belongs to the job {found.name}, but this rank to {job.name}; {OTHER_PORT}"
            )
        return store

    def _connect(self, listen: bool, seconds: float, missing: str) -> Any:
        """Return torch's store at the address."""

        def connect() -> Any:
            return distributed.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
                self.address,
                self.port,
                self.world_size,
                listen,
                timeout=timedelta(seconds=seconds),
                wait_for_workers=False,
            )

        # It waits for ever for a word of a server that says none.
        return call_within(seconds, connect, missing)

    def _warn_others(self, job: "Job") -> None:
        """Let ranks at this address know that another rank 0 came, if their job can't be told from this one."""
        with suppress(RuntimeError, OSError, ValueError):
            store = distributed.distributed_c10d.PrefixStore("graphfeed/0", self._connect(False, GUEST_SECONDS, ""))
            if store.check(["job"]) and Job.read(store.get("job")).may_be(job):
                store.set(STRANGER, f"another rank 0 {describe_process()}")


class Job(NamedTuple):
    """What ranks know of their job."""

    name: str
    group: str
    """The id of the process group; empty without one."""
    process: str
    """The process of rank 0, and a random number."""

    @classmethod
    def read(cls, content: bytes) -> "Job":
        """Return what `write` wrote."""
        return cls(*json.loads(content))

    def write(self) -> str:
        """Return it as text."""
        return json.dumps(self)

    def may_be(self, other: "Job") -> bool:
        """Tell whether two ranks may be of the same job; only the id of a process group is proof."""
        return self.name == other.name and ("" in (self.group, other.group) or self.group == other.group)


def draw_id(group: Any, seconds: float) -> str:
    """Return the id that the ranks of a process group draw in its store; an empty one without a group.

    Raises:
        TimeoutError: The store does not answer within some seconds.
    """
    if group is None:
        return ""
    draw = partial(group.compare_set, "graphfeed/group", "", secrets.token_hex(8))
    text = f"the store of the process group did not answer for {seconds:g} s"
    found: bytes = call_within(seconds, draw, text)
    return found.decode()


def clone(store: Any) -> Any:
    """Return another connection to a store; the store itself where its kind has no connections, and None for None."""
    return store.clone() if hasattr(store, "clone") else store


def store_of_group(meeting: MeetingPoint) -> Any:
    """Return the store of the process group, if its ranks are those that meet."""
    if find_rank() != meeting.place[2:]:
        return None
    return distributed.distributed_c10d._get_default_store()


def describe_process() -> str:
    """Return what users find this process by."""
    return f"({socket.gethostname()}, process {os.getpid()})"


def listens(address: str, port: int) -> bool:
    """Tell whether anybody listens at an address."""
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def wait_for(store: Any, names: list[str], give_up: float, text: str, at: str = "") -> None:
    """Wait until all of some names are set; where ranks meet at an address, fail if a stranger comes.

    Raises:
        TimeoutError: They were not by the time to give up.
        ConnectionError: A stranger came.
        ConnectionAbortedError: The program of this rank failed meanwhile.
    """
    # Not the store's own wait(), which would keep the store from the process's other threads.
    while not store.check(names):
        check_program()
        if at and store.check([STRANGER]):
            raise two_jobs(store, at)
        if time.monotonic() > give_up:
            raise TimeoutError(text)
        time.sleep(0.01)


def two_jobs(store: Any, at: str) -> ConnectionError:
    """Return the error of a rank after a stranger came."""
    return ConnectionError(
        f"{store.get(STRANGER).decode()} came to {at} while the ranks met there: two jobs use the address, or a rank "
        f"was started twice. Perhaps ranks of both have met; {OTHER_PORT}, and start all ranks again"
    )


def meet(store: Any, rank: int, world_size: int, seconds: float, at: str = "") -> tuple[list[str], list[str]]:
    """Take the place of a rank, and wait until all others have taken theirs.

    Args:
        store: What the ranks share.
        rank: Whose place.
        world_size: The number of ranks.
        seconds: How long to wait for them.
        at: The address where they meet, if any job may use it.

    Returns:
        By rank: its host and process, and what `memory_scope` returned there.

    Raises:
        ConnectionError: Another process has the place, or one came to another rank's.
        TimeoutError: A rank did not come within so many seconds.
        ConnectionAbortedError: The program of this rank failed meanwhile.
    """
    give_up = time.monotonic() + seconds
    names = [f"here/{number}" for number in range(world_size)]
    if store.add(f"taken/{rank}", 1) > 1:
        store.set(STRANGER, f"another rank {rank} {describe_process()}")
        wait_for(store, names[rank : rank + 1], give_up, f"another process has taken rank {rank}, and gave no name")
        place = f" at {at}" if at else ""
        raise ConnectionError(
            f"rank {rank}{place} is already {store.get(names[rank]).decode()}; does another job use the address? "
            f"{OTHER_PORT.capitalize()}; and where a rank was started again, start all of them again"
        )
    store.set(f"scope/{rank}", memory_scope())
    store.set(names[rank], describe_process())
    try:
        wait_for(store, names, give_up, "", at)
    except TimeoutError:
        missing = [number for number, name in enumerate(names) if not store.check([name])]
        raise TimeoutError(f"ranks {missing} did not make their parts within {seconds:g} s") from None
    hosts = [store.get(name).decode() for name in names]
    return hosts, [store.get(f"scope/{number}").decode() for number in range(world_size)]
