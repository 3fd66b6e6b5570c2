"""Which ranks are still there while others are waited for."""

import json
import os
import socket
import time
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from graphfeed.distributed.one_machine.memory_scope import memory_scope
from graphfeed.distributed.ranks.program_end import check_program

RESUME = (
    "start all ranks again, as torchrun --max-restarts does, and give what loader.state_dict() returned last to "
    "load_state_dict: each epoch goes on at the next mini-batch, with any number of ranks"
)


class RankLostError(ConnectionError):
    """Another rank ended, froze or could not be reached, so that its part can't be read any more."""


class Presence(NamedTuple):
    """What a rank says of itself as it comes."""

    host: str
    """Its host and process, for people."""
    scope: str
    """What `memory_scope` returned there."""
    process: int
    address: tuple[str, int] = ("", 0)
    """Where it answers other ranks."""
    token: str = ""
    """What it wants to be told there first."""

    @classmethod
    def here(cls, address: tuple[str, int] = ("", 0), token: str = "") -> "Presence":
        """Return that of this process."""
        return cls(f"({socket.gethostname()}, process {os.getpid()})", memory_scope(), os.getpid(), address, token)

    def has_ended(self, scope: str) -> bool:
        """Return whether the process has ended, as far as that can be seen from another one, by its scope."""
        if self.scope != scope or not scope:
            return False  # on another machine, where this process id means nothing
        try:
            state = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        return state in "ZX"  # that nobody has waited for is still listed


class RankWatch:
    """Looks whether ranks are there, in the store where they meet.

    Args:
        store: Where each of them has written its `Presence`.
    """

    def __init__(self, store: Any, rank: int, world_size: int) -> None:
        self.store, self.rank, self.world_size = store, rank, world_size
        self._scope = memory_scope()
        # Each begins behind itself, so that all ranks together soon look at each of them.
        self._next = cycle((rank + 1 + number) % world_size for number in range(world_size))
        self._present: dict[int, Presence] = {}
        self._signs: dict[int, tuple[int, float]] = {}
        """How often each rank has looked, and when that was seen to change."""

    def presence(self, rank: int) -> Presence:
        """Return what a rank that has come said of itself."""
        if rank not in self._present:
            self._present[rank] = Presence(*json.loads(self.store.get(f"here/{rank}")))
        return self._present[rank]

    def check_own(self) -> None:
        """Raise if the program of this rank failed, which the others are told. This asks the store for nothing."""
        try:
            check_program()
        except ConnectionAbortedError:
            self._leave_word(self.rank, "its program failed")
            raise

    def look(self, silent_seconds: float) -> None:
        """Give a sign of life while ranks are waited for, and raise if one of those that have come is lost.

        Each look costs the store a few requests, however many ranks there are: it is at the next one of them. Who finds
        that a rank is lost leaves word for the others.

        Args:
            silent_seconds: After how long without a sign a rank counts as lost.
        """
        self.check_own()
        if self.store.check(["lost"]):
            raise RankLostError(self.store.get("lost").decode())
        self.store.add(f"signs/{self.rank}", 1)
        rank = next(self._next)
        if rank == self.rank or not (rank in self._present or self.store.check([f"here/{rank}"])):
            return
        if self.presence(rank).has_ended(self._scope):
            raise RankLostError(self._leave_word(rank, "its process has ended"))
        signs, now = self.store.add(f"signs/{rank}", 0), time.monotonic()
        if signs != self._signs.get(rank, (-1, now))[0]:
            self._signs[rank] = signs, now
        if now - self._signs[rank][1] > silent_seconds:
            raise RankLostError(self._leave_word(rank, f"it gave no sign of life for {silent_seconds:g} s"))

    def _leave_word(self, rank: int, how: str) -> str:
        """Tell the others that a rank is lost; return the text."""
        text = f"rank {rank} {self.presence(rank).host} is lost before all ranks have met: {how}; {RESUME}"
        self.store.set("lost", text)
        return text
