"""Memory for rows that are read ahead of mini-batches, kept from epoch to epoch."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphfeed.storage.features.feature import ReadsAhead
from graphfeed.storage.features.feature_store import StoreKey
from graphfeed.storage.features.planned_rows import PlannedRows, bytes_of_rows, bytes_with_slots, count_slots
from graphfeed.storage.memory.cache_use import Cache


class User:
    """An epoch that uses the memory as long as it references this object."""


class RowMemory:
    """Memory of at most `max_size_in_bytes` for slow features, shared in proportion to the bytes of their rows.

    The first epoch allocates it, and rows stay for the next one. Concurrent epochs allocate separate memory.
    """

    def __init__(self, features: Mapping[StoreKey, ReadsAhead], max_size_in_bytes: int) -> None:
        self.features = dict(features)
        self.max_size_in_bytes = max_size_in_bytes
        self._start_unused()

    def _start_unused(self) -> None:
        self._process = os.getpid()
        self._kept: dict[StoreKey, PlannedRows] = {}
        self._lending = threading.Lock()
        self._user: Callable[[], User | None] = lambda: None
        """Reference to the epoch that uses the memory, which is free once that object is gone, even after an error."""
        self.late_window = 0
        """Number of mini-batches of the largest window that was waited for; later windows have at least as many."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the arguments, not the rows.
        return RowMemory, (self.features, self.max_size_in_bytes)

    @contextmanager
    def acquire(self) -> Iterator[dict[StoreKey, PlannedRows]]:
        """Return the memory for each feature, for one epoch. If it fails or is left early, the rows are dropped.

        Raises:
            ValueError: The memory is too small for a row.
            RuntimeError: Rows have changed, such as those of a file that was written to since it was opened.
        """
        for feature in self.features.values():
            feature.check_unchanged()
        process = os.getpid()
        if self._process != process:
            self._start_unused()  # the lock may be held, and the threads that read are the parent's
        # A loader may be iterated twice at a time: the second iteration creates its own memory.
        user = User()
        with self._lending:
            is_kept = self._user() is None
            if is_kept:
                self._user = weakref.ref(user)
        taken = (self._kept if is_kept else {}) or self._make()
        try:
            yield taken
        except BaseException:
            # Rows of a failed epoch may be half-read, so the next one starts from scratch.
            taken, kept = {}, taken
            # A forked process has no such threads, and its copies of locks may be held.
            for rows in kept.values() if os.getpid() == process else ():
                rows.cancel()
            raise
        finally:
            if is_kept:
                self._kept = taken
            del user

    def has_room(self) -> bool:
        """Return whether there is memory for a row of each feature, in addition to the bookkeeping."""
        return all(count_slots(self.features[key], share) > 0 for key, share in self._shares().items())

    def _make(self) -> dict[StoreKey, PlannedRows]:
        if not self.has_room():
            least = sum(bytes_with_slots(feature, 1) for feature in self.features.values())
            raise ValueError(
                f"reading rows ahead may take {self.max_size_in_bytes} bytes, but a row of each feature and the "
                f"bookkeeping take {least}; give the DataLoader a larger memory_limit, or window=0"
            )
        return {key: PlannedRows(self.features[key], share) for key, share in self._shares().items()}

    def _shares(self) -> dict[StoreKey, int]:
        # Each feature gets a row and its bookkeeping first; the rest is divided in proportion to the bytes of all rows.
        least = {key: bytes_with_slots(feature, 1) for key, feature in self.features.items()}
        rest = max(0, self.max_size_in_bytes - sum(least.values()))
        sizes = {key: bytes_of_rows(feature) for key, feature in self.features.items()}
        total = sum(sizes.values())
        shares = {key: least[key] + rest * size // total for key, size in sizes.items()}
        return shares if sum(least.values()) <= self.max_size_in_bytes else dict.fromkeys(shares, 0)

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return the rows of each feature, as caches."""
        return [(" ".join(part for part in key if part), rows) for key, rows in self._kept.items()]

    def __repr__(self) -> str:
        return f"RowMemory({len(self.features)} features, {self.max_size_in_bytes} bytes)"
