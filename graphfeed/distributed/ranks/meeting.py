"""How the ranks that hold parts find each other, and what they know of each other before they are connected."""

import time
from functools import partial
from itertools import count
from typing import Any

from torch import distributed

from graphfeed.distributed.ranks.bounded_call import call_within
from graphfeed.distributed.ranks.meeting_point import (
    STRANGER,
    USES,
    MeetingPoint,
    clone,
    meet,
    store_of_group,
    two_jobs,
)

NUMBERS = count()
WATCH_SECONDS = 30.0
"""For how long after ranks have met at an address a stranger means that they may be ranks of two jobs."""
LOOK_SECONDS = 0.5
"""How often rank 0 looks for a stranger."""
PATIENCE_SECONDS = 5.0
"""How much longer than it is to wait for ranks the store may take to say that they are missing."""


class Meeting:
    """One time that ranks meet, at an address or in the default process group. Making it waits for nobody.

    Args:
        rank: This rank.
        world_size: The number of ranks.
        point: The address; without one, the process group.
    """

    def __init__(self, rank: int, world_size: int, point: MeetingPoint | None) -> None:
        self.rank, self.world_size, self.point = rank, world_size, point
        self.at = "" if point is None else point.at
        self.store: Any = None
        self._next_look = self._last_look = 0.0
        self._group = distributed.distributed_c10d._get_default_store() if point is None else store_of_group(point)
        self._use = next(NUMBERS if point is None else USES[point.place])

    def gather(self, seconds: float) -> tuple[list[str], list[str]]:
        """Wait for all ranks, and return what `meet` does.

        Raises:
            ConnectionError: Ranks of two jobs have met.
            OSError: Rank 0 can't listen at the address.
            TimeoutError: A rank did not come within so many seconds.
            ConnectionAbortedError: The program of this rank failed meanwhile.
        """
        # A store whose process is frozen never answers.
        text = f"the store of rank 0 did not answer for {seconds:g} s"
        # A thread that waits for a key of another rank holds its connection meanwhile.
        own = call_within(seconds + PATIENCE_SECONDS, partial(clone, self._group), text)
        self._group = None
        if self.point is None:
            self.store = distributed.distributed_c10d.PrefixStore(f"graphfeed/{self._use}", own)
        else:
            self.store = self.point.open_store(seconds, self._use, own)
        come = partial(meet, self.store, self.rank, self.world_size, seconds, self.at)
        found = call_within(seconds + PATIENCE_SECONDS, come, text)
        if self.at and self.rank == 0:
            self._next_look = time.monotonic()
            self._last_look = self._next_look + WATCH_SECONDS
        return found

    def sees_stranger(self) -> bool:
        """Tell, on rank 0 and for a while after the ranks have met, whether a stranger came to the address."""
        now = time.monotonic()
        if not self._next_look <= now <= self._last_look:
            return False
        self._next_look = now + LOOK_SECONDS
        return bool(self.store.check([STRANGER]))

    def two_jobs(self) -> ConnectionError:
        """Return the error of each rank after rank 0 saw a stranger."""
        return two_jobs(self.store, self.at)

    def find_missing(self, seconds: float) -> list[int]:
        """Say that this rank is alive, and return the ranks that don't say so within some seconds.

        Raises:
            TimeoutError: The store does not answer.
        """

        def find() -> list[int]:
            self.store.set(f"alive/{self.rank}", "")
            missing = list(range(self.world_size))
            give_up = time.monotonic() + seconds
            while missing and time.monotonic() < give_up:
                missing = [rank for rank in missing if not self.store.check([f"alive/{rank}"])]
                time.sleep(0.01)
            return missing

        return call_within(seconds + PATIENCE_SECONDS, find, "the store did not answer")
