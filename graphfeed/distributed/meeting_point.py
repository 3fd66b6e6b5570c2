"""The address at which ranks meet that share no process group, and how ranks take their places."""

import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from torch import distributed

from graphfeed.distributed.memory_scope import memory_scope
from graphfeed.distributed.program_end import check_program

Place: TypeAlias = tuple[str, int, int, int]
"""The address, the port, the rank, and the number of ranks."""

LAUNCHED = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""What launchers set to the same text on all ranks of a job."""
STORES: dict[Place, Any] = {}
"""The connections of this process. They stay open, so that ranks can meet again at the same address."""
OPENING = threading.Lock()
USES: defaultdict[Place, Iterator[int]] = defaultdict(count)
"""Counts how often ranks met at an address."""


class MeetingPoint(NamedTuple):
    """Where ranks meet that share no process group: rank 0 listens there."""

    address: str
    port: int
    rank: int
    world_size: int
    job: str = ""
    """A name that all ranks of a job have, and other jobs at the same address don't. The number of ranks, and what
    torchrun and SLURM call the job, tell jobs apart as well."""

    @property
    def place(self) -> Place:
        """All but the job."""
        return self[:4]

    def describe_job(self) -> str:
        """Return what tells this job from others that may use the same address."""
        launched = [f"{name}={os.environ[name]}" for name in LAUNCHED if os.environ.get(name)]
        return ", ".join([f"{self.job!r} of {self.world_size} ranks", *launched])

    def open_store(self, seconds: float, use: int = 0) -> Any:
        """Listen as rank 0, or connect to it, and return the store that the ranks share.

        Args:
            seconds: How long to wait for rank 0.
            use: How often the ranks met here before.

        Raises:
            OSError: Rank 0 can't listen there.
            TimeoutError: It did not listen within so many seconds.
            ConnectionAbortedError: The program of this rank failed meanwhile.
        """
        at, give_up = f"{self.address}:{self.port}", time.monotonic() + seconds
        missing = f"rank 0 did not listen at {at} within {seconds:g} s"
        # A TCPStore would wait where nothing can stop it, and print a trace for each time that it tried.
        while self.rank != 0 and not listens(self.address, self.port):
            check_program()
            if time.monotonic() > give_up:
                raise TimeoutError(missing)
            time.sleep(0.1)
        try:
            with OPENING:
                if self.place not in STORES:
                    wait = timedelta(seconds=max(1.0, give_up - time.monotonic()))
                    STORES[self.place] = distributed.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
                        self.address, self.port, self.world_size, self.rank == 0, timeout=wait, wait_for_workers=False
                    )
        except RuntimeError as error:
            if self.rank == 0:
                raise OSError(f"rank 0 can't listen at {at}: {error}; choose another port") from error
            raise TimeoutError(missing) from error
        store = distributed.distributed_c10d.PrefixStore(f"graphfeed/{use}", STORES[self.place])
        if self.rank == 0:
            store.set("job", self.describe_job())
            return store
        wait_for(store, ["job"], give_up, "rank 0 did not begin")
        if (job := store.get("job").decode()) != self.describe_job():
            raise ConnectionError(
                f"rank 0 at {at} belongs to the job {job}, but this rank to {self.describe_job()}; choose another port"
            )
        return store


def listens(address: str, port: int) -> bool:
    """Tell whether anybody listens at an address."""
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def wait_for(store: Any, names: list[str], give_up: float, text: str) -> None:
    """Wait until all of some names are set.

    Raises:
        TimeoutError: They were not by the time to give up.
        ConnectionAbortedError: The program of this rank failed meanwhile.
    """
    # Not the store's own wait(), which would keep the store from the process's other threads.
    while not store.check(names):
        check_program()
        if time.monotonic() > give_up:
            raise TimeoutError(text)
        time.sleep(0.01)


def meet(store: Any, rank: int, world_size: int, seconds: float) -> tuple[list[str], list[str]]:
    """Take the place of a rank, and wait until all others have taken theirs.

    Returns:
        By rank: its host and process, and what `memory_scope` returned there.

    Raises:
        ConnectionError: Another process has the place.
        TimeoutError: A rank did not come within so many seconds.
        ConnectionAbortedError: The program of this rank failed meanwhile.
    """
    give_up = time.monotonic() + seconds
    names = [f"here/{number}" for number in range(world_size)]
    if store.add(f"taken/{rank}", 1) > 1:
        wait_for(store, names[rank : rank + 1], give_up, f"another process has taken rank {rank}, and gave no name")
        raise ConnectionError(
            f"rank {rank} is already {store.get(names[rank]).decode()}; does another job use the address? Choose "
            "another port; and where a rank was started again, start all of them again"
        )
    store.set(f"scope/{rank}", memory_scope())
    store.set(names[rank], f"({socket.gethostname()}, process {os.getpid()})")
    try:
        wait_for(store, names, give_up, "")
    except TimeoutError:
        missing = [number for number, name in enumerate(names) if not store.check([name])]
        raise TimeoutError(f"ranks {missing} did not make their parts within {seconds:g} s") from None
    hosts = [store.get(name).decode() for name in names]
    return hosts, [store.get(f"scope/{number}").decode() for number in range(world_size)]
