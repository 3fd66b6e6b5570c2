"""What the caches of rows have in common, whichever memory they keep the rows in."""

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
"""Takes keys and returns one row for each of them."""


class LookedUp(NamedTuple):
    """What a cache had of some keys."""

    version: int
    """The cache's version at the time of the look-up."""
    request: int
    """The number of the look-up."""
    values: torch.Tensor
    """One row for each key; missing rows are not filled in yet."""
    missing_index: torch.Tensor
    """int64: the positions of the missing rows."""
    missing_keys: torch.Tensor
    distinct: torch.Tensor
    """The missing keys, each once, in order of first appearance."""
    local: torch.Tensor
    """For each missing key, its position in `distinct`."""


class RowCache(ABC):
    """Base of caches that keep rows by key."""

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
        # What the cache is pickled as: the arguments that create an empty cache of the same size. The first two are its
        # shape and dtype; all others, and the options, `within` takes as well.
        self._arguments, self._options = arguments, options
        # It also protects the other tensors, in which the cache remembers which rows it holds.
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
        """Return a cache of as many rows as fit into some bytes, its bookkeeping included; at most `most_rows`."""

    def like(self, max_size_in_bytes: int, row_shape: Sequence[int], dtype: torch.dtype, most_rows: int) -> Self:
        # All but the shape and the dtype.
        rest = self._arguments[2:]
        return type(self).within(max_size_in_bytes, row_shape, dtype, *rest, **self._options, most_rows=most_rows)

    @abstractmethod
    def query_and_replace(self, keys: torch.Tensor, reader_fn: Reader, offset: int = 0) -> torch.Tensor:
        """Return the rows of some keys, and keep those that had to be read."""

    def begin(self, keys: torch.Tensor, offset: int = 0) -> tuple[Reader, torch.Tensor]:
        """Look up some keys, as `query_and_replace` does; return what completes it, and the missing keys, each once."""
        # What completes it takes the missing rows, and must run on the same stream.
        looked_up = self._look_up(keys, offset)
        return partial(self._finish, looked_up, offset), looked_up.distinct

    @abstractmethod
    def replace(self, keys: torch.Tensor, values: torch.Tensor, *, offset: int = 0) -> None:
        """Keep rows by key and overwrite existing ones. If a key occurs several times, its last row is kept."""

    def clear(self) -> None:
        """Forget all rows. The statistics stay."""
        with self._lock.acquire():
            # Rows that were looked up before are not kept any more.
            self._version += 1
            self._forget_keys()

    @property
    @abstractmethod
    def kind(self) -> str:
        """Where the rows are kept, and by which policy."""

    @property
    def max_size_in_bytes(self) -> int:
        """How much memory the cache takes when it is full: its rows and its bookkeeping."""
        return self._rows.nbytes + self._bookkeeping_bytes

    @property
    def hits(self) -> int:
        """How many of the queried rows were not missing."""
        return self._hits

    @property
    def misses(self) -> int:
        """How many rows were missing; a key that occurs several times in one query counts once."""
        return self._misses

    @property
    def miss_rate(self) -> float:
        """Misses divided by all queried rows; 0 before the first query."""
        return self._misses / max(1, self._hits + self._misses)

    def count_passed(self, rows: int) -> None:
        """Note that rows were read past the cache, because they were in memory anyway."""
        with self._lock.lock:
            self._passed += rows

    def is_pinned(self) -> bool:
        """Tell whether the rows lie in page-locked memory."""
        return is_page_locked(self._rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # The shape, not the rows: each process has a cache of its own.
        return partial(type(self), **self._options), self._arguments

    @abstractmethod
    def _forget_keys(self) -> None:
        """Empty the bookkeeping; called with the lock held."""

    @abstractmethod
    def _assign_slots(self, keys: torch.Tensor, request: int) -> torch.Tensor:
        """Return the slot for the row of each key, -1 for rows that are not kept; called with the lock held."""

    @abstractmethod
    def _look_up(self, keys: torch.Tensor, offset: int) -> LookedUp:
        """Copy the rows that are there, and find out which are missing."""

    @abstractmethod
    def _finish(self, looked_up: LookedUp, offset: int, rows: torch.Tensor) -> torch.Tensor:
        """Fill in the missing rows, keep them, and return all rows."""

    def _count(self, queried: int, missing: int) -> None:
        with self._lock.lock:  # without its streams, as the counts are Python's
            self._misses += missing
            self._hits += queried - missing

    def _store(self, keys: torch.Tensor, rows: torch.Tensor, offset: int, looked_up: LookedUp | None) -> None:
        """Keep rows, unless the cache was overwritten since they were looked up: they may be out of date then."""
        wanted, sources = keys.long() + offset, torch.arange(keys.numel(), device=self.device)
        with self._lock.acquire():
            if looked_up is None:
                # Rows are overwritten: what was looked up before must not overwrite them.
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
                f"rows of values must have {self._row_bytes} bytes as those of the cache, but are {values.dtype} of "
                f"shape {tuple(values.shape[1:])}"
            )


def out_of_range(key: int, offset: int) -> IndexError:
    return IndexError(f"keys must be 0 or more with the offset {offset}, but one is {key}")


def bytes_of(cache: RowCache, kind: type[RowCache]) -> int:
    """Return the bytes of a cache of rows, or raise a TypeError: it may be their number alone."""
    if not hasattr(cache, "max_size_in_bytes"):
        name = kind.__name__
        raise TypeError(
            f"cache must be a {name}, but is {brief(cache)}; {name[:3].lower()}_cached_feature(feature, "
            "max_cache_size_in_bytes) makes a cache of so many bytes"
        )
    return cache.max_size_in_bytes
