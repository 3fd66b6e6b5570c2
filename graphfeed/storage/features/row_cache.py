"""The base class of caches of rows, for any memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple, Self

import torch

from graphfeed.ops.arguments import brief, check_vector
from graphfeed.ops.memory import is_page_locked
from graphfeed.ops.rows import copy_rows
from graphfeed.storage.memory.stream_order import StreamOrderedLock

Reader = Callable[[torch.Tensor], torch.Tensor]
"""Function from keys to one row for each of them."""


class CacheLookup(NamedTuple):
    """Result of looking up some keys in a cache."""

    version: int
    """The cache's version at the time of the look-up."""
    request: int
    """Number of the look-up."""
    values: torch.Tensor
    """One row per key; missing rows are not filled in yet."""
    missing_index: torch.Tensor
    """int64: positions of the missing rows."""
    missing_keys: torch.Tensor
    distinct: torch.Tensor
    """The missing keys without duplicates, in order of first appearance."""
    local: torch.Tensor
    """Position of each missing key in `distinct`."""


class RowCache(ABC):
    """Base class of caches that keep rows by key."""

    slots_are_distinct: ClassVar[bool]
    """Whether `_assign_slots` never returns the same slot twice."""

    def __init__(
        self,
        rows: torch.Tensor,
        bookkeeping: Sequence[torch.Tensor],
        bookkeeping_bytes: int,
        arguments: tuple[Any, ...],
        **options: Any,
    ) -> None:
        # `rows` has the shape (places, ...).
        self.device = rows.device
        self._rows = rows
        self._row_bytes = prod(rows.shape[1:]) * rows.dtype.itemsize
        self._bookkeeping_bytes = bookkeeping_bytes
        # Pickled form: the arguments that create an empty cache of the same size. The first two are its shape and
        # dtype; `within` also accepts all others, and the options.
        self._arguments, self._options = arguments, options
        # It also protects the other tensors, in which the cache records which rows it has.
        self._lock = StreamOrderedLock(rows, *bookkeeping)
        self._version = 0
        self._request = 0
        self._hits = 0
        self._passed = 0
        self._misses = 0

    @classmethod
    @abstractmethod
    def within(
        cls,
        max_size_in_bytes: int,
        row_shape: Sequence[int],
        dtype: torch.dtype,
        *args: Any,
        **kwargs: Any,
    ) -> Self:
        """Return a cache of at most `most_rows` rows that fits into some bytes, including its bookkeeping."""

    def like(self, max_size_in_bytes: int, row_shape: Sequence[int], dtype: torch.dtype, most_rows: int) -> Self:
        # All except the shape and the dtype.
        rest = self._arguments[2:]
        return type(self).within(max_size_in_bytes, row_shape, dtype, *rest, **self._options, most_rows=most_rows)

    @abstractmethod
    def query_and_replace(self, keys: torch.Tensor, reader_fn: Reader, offset: int = 0) -> torch.Tensor:
        """Return the rows of some keys, and keep those that had to be read."""

    def start_query(self, keys: torch.Tensor, offset: int = 0) -> tuple[Reader, torch.Tensor]:
        """Look up some keys; return a function from the missing rows to all rows, and the distinct missing keys."""
        looked_up = self._look_up(keys, offset)
        # To be called on the same stream.
        return partial(self._finish, looked_up, offset), looked_up.distinct

    @abstractmethod
    def replace(self, keys: torch.Tensor, values: torch.Tensor, *, offset: int = 0) -> None:
        """Keep rows by key and overwrite existing ones. For equal keys, the last row is kept."""

    def clear(self) -> None:
        """Remove all rows. The statistics are kept."""
        with self._lock.acquire():
            # Rows that were looked up before are no longer stored.
            self._version += 1
            self._forget_keys()

    @property
    @abstractmethod
    def kind(self) -> str:
        """Description of the cache's memory and policy."""

    @property
    def max_size_in_bytes(self) -> int:
        """Memory of the full cache: its rows and its bookkeeping."""
        return self._rows.nbytes + self._bookkeeping_bytes

    @property
    def hits(self) -> int:
        """Number of queried rows that were not missing."""
        return self._hits

    @property
    def misses(self) -> int:
        """Number of missing rows. Duplicate keys in a query count once."""
        return self._misses

    @property
    def miss_rate(self) -> float:
        """Misses divided by all queried rows; 0 before the first query."""
        return self._misses / max(1, self._hits + self._misses)

    def count_passed(self, rows: int) -> None:
        """Count rows that were read past the cache, because they were in memory anyway."""
        with self._lock.lock:
            self._passed += rows

    def is_pinned(self) -> bool:
        """Return whether the rows are in page-locked memory."""
        return is_page_locked(self._rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the shape, not the rows: each process has its own cache.
        return partial(type(self), **self._options), self._arguments

    @abstractmethod
    def _forget_keys(self) -> None:
        """Empty the bookkeeping; called with the lock held."""

    @abstractmethod
    def _assign_slots(self, keys: torch.Tensor, request: int) -> torch.Tensor:
        """Return the slot for the row of each key, -1 for rows that are not kept; called with the lock held."""

    @abstractmethod
    def _look_up(self, keys: torch.Tensor, offset: int) -> CacheLookup:
        """Copy the rows that the cache has, and find the missing ones."""

    @abstractmethod
    def _finish(self, looked_up: CacheLookup, offset: int, rows: torch.Tensor) -> torch.Tensor:
        """Fill in the missing rows, keep them, and return all rows."""

    def _count(self, queried: int, missing: int) -> None:
        with self._lock.lock:  # without its streams, as the counts are Python's
            self._misses += missing
            self._hits += queried - missing

    def _store(self, keys: torch.Tensor, rows: torch.Tensor, offset: int, looked_up: CacheLookup | None) -> None:
        """Keep rows, unless the cache was modified since they were looked up: then they may be out of date."""
        wanted, sources = keys.long() + offset, torch.arange(keys.numel(), device=self.device)
        with self._lock.acquire():
            if looked_up is None:
                # Rows are overwritten: results of earlier look-ups must not overwrite them.
                self._version += 1
                self._request += 1
            elif looked_up.version != self._version:
                return
            try:
                slots = self._assign_slots(wanted, self._request if looked_up is None else looked_up.request)
                copy_rows(rows, sources, self._rows, slots, distinct=self.slots_are_distinct)
            except BaseException:
                # An interrupt may leave keys without their rows.
                self._forget_keys()
                raise

    def _check_keys(self, keys: torch.Tensor, offset: int) -> None:
        check_vector("keys", keys)
        if keys.numel() and (least := int(keys.min())) + offset < 0:
            raise out_of_range(least, offset)

    def _check_rows(self, values: torch.Tensor, keys: torch.Tensor) -> None:
        if values.shape[0] != keys.numel():
            raise ValueError(f"values must have one row per key, but has {values.shape[0]} for {keys.numel()} keys")
        if prod(values.shape[1:]) * values.dtype.itemsize != self._row_bytes:
            raise ValueError(
                f"rows of values must have {self._row_bytes} bytes like those of the cache, but are {values.dtype} of "
                f"shape {tuple(values.shape[1:])}"
            )


def out_of_range(key: int, offset: int) -> IndexError:
    return IndexError(f"keys must be 0 or more with the offset {offset}, but one is {key}")


def bytes_of(cache: RowCache, kind: type[RowCache]) -> int:
    """Return the size of a cache in bytes. Raises a TypeError if it is, for example, a number of bytes instead."""
    if not hasattr(cache, "max_size_in_bytes"):
        name = kind.__name__
        raise TypeError(
            f"cache must be a {name}, but is {brief(cache)}; {name[:3].lower()}_cached_feature(feature, "
            "max_cache_size_in_bytes) creates one of that size"
        )
    return cache.max_size_in_bytes
