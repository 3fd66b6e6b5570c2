"""How much memory a loader may take, and what of it is for whom."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphfeed.storage.memory import available_memory, ranks_of_machine

ROWS_SHARE = 1 / 3
"""The share of the memory that is left which reading ahead takes where there is no limit."""
WORKERS_SHARE = 1 / 2
"""The same for mini-batches in flight and worker processes, with `num_workers="auto"`."""


@dataclass(frozen=True)
class MemoryBudget:
    """What a loader may take besides its graphs, features and caches, whose size their owner knows."""

    limit: int | None = None
    """In bytes, for all ranks of this machine; None goes by what is available when that is asked first."""
    tunes: bool = False
    """True for `num_workers="auto"`: reading ahead gets half of what it would have, and workers the rest."""

    @cached_property
    def _available(self) -> float:
        # Asked once: the plans for several numbers of workers are to read ahead alike.
        return available_memory()

    def for_rows(self) -> float:
        # In bytes, with the mini-batches that wait for their rows. The ranks of a machine share it alike, so that a
        # limit means the same with any number of them.
        total = ROWS_SHARE * self._available if self.limit is None else self.limit
        return total / ranks_of_machine() / (2 if self.tunes else 1)

    def for_workers(self, rows: float) -> float:
        # In bytes, for mini-batches in flight and worker processes.
        if self.limit is None:
            return WORKERS_SHARE * self._available / ranks_of_machine()
        return self.limit / ranks_of_machine() - rows

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what is available here.
        return MemoryBudget, (self.limit, self.tunes)
