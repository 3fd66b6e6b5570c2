"""Hit counts of a cache."""

from typing import Protocol


class Cache(Protocol):
    """A cache with usage statistics."""

    @property
    def kind(self) -> str:
        """Description of the cached entries, their location and the eviction policy."""

    @property
    def max_size_in_bytes(self) -> int:
        """Memory that the full cache occupies, in bytes."""

    @property
    def hits(self) -> int:
        """Number of requested entries found in the cache."""

    @property
    def misses(self) -> int:
        """Number of requested entries not found in the cache."""
