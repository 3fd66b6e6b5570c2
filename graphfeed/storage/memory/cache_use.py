"""Hit counts of a cache."""

from typing import Protocol, runtime_checkable


class Cache(Protocol):
    """A cache, and how it was used so far."""

    @property
    def kind(self) -> str:
        """What it keeps, where, and by which policy."""

    @property
    def max_size_in_bytes(self) -> int:
        """How much memory it takes when it is full."""

    @property
    def hits(self) -> int:
        """How many of what was asked for it had."""

    @property
    def misses(self) -> int:
        """How many it lacked."""


@runtime_checkable
class HasCaches(Protocol):
    """A graph, a feature or a store that may read through caches."""

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return its caches, each with the name of what it is for; empty if that needs no name."""
