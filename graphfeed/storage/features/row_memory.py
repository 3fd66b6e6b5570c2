"""Memory for rows that are read ahead of mini-batches, kept from epoch to epoch."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from graphfeed.storage.features.feature import ReadsAhead
from graphfeed.storage.features.feature_store import StoreKey
from graphfeed.storage.features.planned_rows import PlannedRows, bytes_of_rows, bytes_with_slots, count_slots
from graphfeed.storage.memory.cache_use import Cache


class RowMemory:
    """Memory of at most `max_size_in_bytes` for slow features, shared in proportion to the bytes of their rows.

    The first epoch allocates it, and rows stay for the next one. Concurrent epochs allocate separate memory.
    """

    def __init__(self, features: Mapping[StoreKey, ReadsAhead], max_size_in_bytes: int) -> None:
        self.features = dict(features)
        self.max_size_in_bytes = max_size_in_bytes
        self.late_window = 0
        """Number of mini-batches of the largest window that was waited for; later windows have at least as many."""
        self._latest: dict[StoreKey, PlannedRows] = {}
        self._unused: list[dict[StoreKey, PlannedRows]] = []
        """Memory of the latest epoch, unless an epoch uses it."""

    @contextmanager
    def acquire(self) -> Iterator[dict[StoreKey, PlannedRows]]:
        """Return the memory for each feature, for one epoch. If it fails or is left early, the rows are dropped.

        Raises:
            ValueError: The memory is too small for a row.
            RuntimeError: Rows have changed, such as those of a file that was written to since it was opened.
        """
        for feature in self.features.values():
            feature.check_unchanged()
        try:
            kept = self._unused.pop()
        except IndexError:
            # A loader may be iterated twice at a time: the second iteration creates its own memory.
            kept = self._make()
        rows, process = dict(kept), os.getpid()
        self._latest = kept
        try:
            yield rows
        except BaseException:
            # Rows of a failed epoch may be half-read, so the next one starts from scratch.
            self._latest = {}
            # A forked process has no such threads, and its copies of locks may be held.
            if os.getpid() == process:
                cancel_reads(rows)
            raise
        finally:
            # A caller that still has this dict can't cancel a read of the next epoch.
            rows.clear()
        self._latest, self._unused = kept, [kept]

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
        return [(" ".join(part for part in key if part), rows) for key, rows in self._latest.items()]


def cancel_reads(rows: Mapping[StoreKey, PlannedRows]) -> None:
    """Cancel the reads that were started, even while another thread waits for them."""
    for own in list(rows.values()):
        own.cancel()
