"""Rows kept in memory by key, of features whose rows are far."""

import os
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from graphfeed.ops import buffers, clear_policy, compact, copy_rows, find_keys, new_policy, policy_bytes, replace_keys
from graphfeed.ops.rows.cache_policy import MOST_SLOTS
from graphfeed.storage.features.row_cache import Reader, RowCache

READ_BYTES = 1 << 22
"""Of missing rows at a time: more would only take memory."""

DEFAULT_POLICY = "sieve"


class LookedUp(NamedTuple):
    """What a cache had of some keys."""

    version: int
    """Of the cache, then."""
    values: torch.Tensor
    """A row for each key, not yet filled in where it is missing."""
    missing_index: torch.Tensor
    """int64: the positions of those."""
    missing_keys: torch.Tensor
    distinct: torch.Tensor
    """The missing keys, each once, in order of first appearance."""
    places: torch.Tensor
    """int64: the positions where they appear first."""
    local: torch.Tensor
    """For each missing key its position among the distinct ones."""


class CPUFeatureCache(RowCache):
    """As many rows as there is room for; a policy decides which stay.

    Any number of threads may use it; one at a time looks up or stores, none holds it while rows are fetched. However
    small it is nothing waits for room: what doesn't fit passes it by. Pickles as an empty cache of the same size, and a
    forked process starts with an empty one.

    Its memory is `max_size_in_bytes`: the rows, which take theirs as they come, and what the policy remembers of them,
    some 25 to 33 bytes a row, and nearly twice that for "s3-fifo". Beside it each query holds the rows that it returns
    and some tens of bytes for each key; `query_and_replace` holds 4 MiB more, of rows that are being read, and the
    stages of `begin` hold all that are missing.

    Args:
        cache_shape: Shape (rows, ...): how many rows, and of what shape. `within` finds how many fit a number of bytes.
        dtype: Of the rows.
        policy: "sieve" if None, "s3-fifo", "lru" or "clock".
        num_parts: Taken for the signature's sake: there is one part, whatever the number.
        pin_memory: Keep the rows in page-locked memory.

    Example:
        >>> cache = CPUFeatureCache((2, 1), torch.float32)
        >>> far = torch.tensor([[0.0], [10.0], [20.0]])
        >>> cache.query_and_replace(torch.tensor([2, 0]), lambda keys: far[keys]).tolist()
        [[20.0], [0.0]]
        >>> cache.query(torch.tensor([1, 2]))[2].tolist()
        [1]
    """

    def __init__(
        self,
        cache_shape: tuple[int, ...] | torch.Size,
        dtype: torch.dtype,
        policy: str | None = None,
        num_parts: int | None = None,
        pin_memory: bool = False,
    ) -> None:
        if num_parts is not None and num_parts < 1:
            raise ValueError(f"num_parts must be at least 1, but is {num_parts}; leave it out")
        if pin_memory and not torch.cuda.is_available():
            raise ValueError("pin_memory is True, but torch finds no CUDA device to pin memory for; leave it out")
        name = DEFAULT_POLICY if policy is None else policy
        self._policy = new_policy(name, cache_shape[0])
        self._policy_bytes = policy_bytes(name, cache_shape[0])
        super().__init__(cache_shape[1:], dtype, buffers.CPU)
        size = cache_shape[0] * self._row_bytes
        if pin_memory or size == 0:
            self._rows = torch.empty(tuple(cache_shape), dtype=dtype, pin_memory=pin_memory)
        else:
            # NumPy asks for huge pages, which random reads need; torch doesn't.
            self._rows = torch.from_numpy(np.empty(size, np.uint8)).view(dtype).reshape(tuple(cache_shape))
        self._arguments = (tuple(cache_shape), dtype, policy, num_parts, pin_memory)
        self._lock = threading.Lock()
        CACHES.add(self)

    @classmethod
    def within(
        cls,
        max_size_in_bytes: int,
        row_shape: Sequence[int],
        dtype: torch.dtype,
        policy: str | None = None,
        num_parts: int | None = None,
        pin_memory: bool = False,
    ) -> Self:
        """Return a cache of as many rows as fit in so many bytes, with all that it remembers of them.

        Args:
            max_size_in_bytes: Bound for the cache's own `max_size_in_bytes`. Where not one row fits, nothing is kept,
                and the cache has the hundred bytes of an empty one.
            row_shape: Shape of a row.
            dtype: As for the class, as what follows.
            policy: As for the class.
            num_parts: As for the class.
            pin_memory: As for the class.

        Example:
            >>> CPUFeatureCache.within(1_000_000, (128,), torch.float32).max_size_in_bytes
            999899
        """
        if max_size_in_bytes < 0:
            raise ValueError(f"max_size_in_bytes must be 0 or more, but is {max_size_in_bytes}")
        row_bytes = prod(row_shape) * dtype.itemsize
        name = DEFAULT_POLICY if policy is None else policy
        most = min(max_size_in_bytes // max(1, row_bytes), MOST_SLOTS)
        rows = bisect_right(
            range(most + 1), max_size_in_bytes, key=lambda rows: rows * row_bytes + policy_bytes(name, rows)
        )
        return cls((max(0, rows - 1), *row_shape), dtype, policy, num_parts, pin_memory)

    def query(
        self, keys: torch.Tensor, offset: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what is known of the rows of some keys.

        Args:
            keys: int32 or int64, 1-D; in any order, and any number of times the same.
            offset: Added to the keys, to keep features apart that share a cache; 0 or more with each key.

        Returns:
            A row for each key, to be filled in where it is missing; the positions of those; their keys; and where
            each part's begin, which is `[0, len(missing_keys)]`.
        """
        found = self._look_up(keys, offset)
        bounds = torch.tensor([0, found.missing_keys.numel()])
        return found.values, found.missing_index, found.missing_keys, bounds

    def query_and_replace(self, keys: torch.Tensor, reader_fn: Reader, offset: int = 0) -> torch.Tensor:
        """Return the rows of some keys, and keep those that had to be read.

        Args:
            keys: As for `query`.
            reader_fn: Called with the missing keys, each once, in order of first appearance; with some after the other
                where their rows take much memory, and not at all where none is missing.
            offset: As for `query`.
        """
        found = self._look_up(keys, offset)
        missing, most = found.distinct.numel(), max(1, READ_BYTES // max(1, self._row_bytes))
        # Parts of one size: a shorter last one would leave a buffer of another size idle after each query.
        step = -(-missing // max(1, -(-missing // most)))
        for start in range(0, missing, max(1, step)):
            part = slice(start, start + step)
            self._fill_in(found, part, reader_fn(found.distinct[part]), offset)
        return repeat_rows(found)

    def begin(self, keys: torch.Tensor, offset: int = 0) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
        """Do the first half of `query_and_replace`: return its second half, and the keys to read for it, each once."""
        found = self._look_up(keys, offset)

        def finish(rows: torch.Tensor) -> torch.Tensor:
            self._fill_in(found, slice(None), rows, offset)
            return repeat_rows(found)

        return finish, found.distinct

    def replace(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        offsets: torch.Tensor | None = None,  # noqa: ARG002
        offset: int = 0,
    ) -> None:
        """Keep rows by key, and overwrite those that are there; of equal keys the last one's row stays.

        Args:
            keys: As for `query`.
            values: A row for each key.
            offsets: What `query` returned last; not needed, for there is one part.
            offset: As for `query`.
        """
        self._check_rows(values, keys)
        self._check_keys(keys, offset)
        self._store(keys, values, offset, None)

    def clear(self) -> None:
        """Forget all rows; the statistics stay."""
        with self._lock:
            self._version += 1
            clear_policy(self._policy)

    @property
    def max_size_in_bytes(self) -> int:
        """What the cache takes in memory when it is full: the rows, and what the policy remembers of them."""
        return self._rows.nbytes + self._policy_bytes

    def is_pinned(self) -> bool:
        """Tell whether the rows lie in page-locked memory."""
        return self._rows.is_pinned()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the shape, not the rows."""
        return type(self), self._arguments

    def _look_up(self, keys: torch.Tensor, offset: int) -> LookedUp:
        self._check_keys(keys, offset)
        wanted = keys.long() + offset
        values = buffers.empty((keys.numel(), *self._rows.shape[1:]), self._rows.dtype)
        with self._lock:
            version = self._version
            found = find_keys(self._policy, wanted)
            copy_rows(self._rows, found.hit_slots, values, found.hit_index)
        missing_keys = keys[found.missing_index]
        distinct, _, local = compact(missing_keys[:0], missing_keys)
        places = found.missing_index
        if distinct.numel() < places.numel():
            places = torch.empty(distinct.numel(), dtype=torch.int64)
            # From the last to the first, so that the first stays.
            places.numpy()[local.numpy()[::-1]] = found.missing_index.numpy()[::-1]
        with self._lock:
            self._misses += distinct.numel()
            self._hits += keys.numel() - distinct.numel()
        return LookedUp(version, values, found.missing_index, missing_keys, distinct, places, local)

    def _fill_in(self, found: LookedUp, part: slice, rows: torch.Tensor, offset: int) -> None:
        """Put the rows of some missing keys where the first of each was asked for, and keep them."""
        keys = found.distinct[part]
        self._check_rows(rows, keys)
        copy_rows(rows, torch.arange(keys.numel()), found.values, found.places[part])
        self._store(keys, rows, offset, found.version)

    def _store(self, keys: torch.Tensor, rows: torch.Tensor, offset: int, version: int | None) -> None:
        """Keep rows, unless others were put in since a version: what was read before may be out of date."""
        with self._lock:
            if version is None:
                self._version += 1
            elif version != self._version:
                return
            slots = replace_keys(self._policy, keys.long() + offset)
            copy_rows(rows, torch.arange(keys.numel()), self._rows, slots)

    def _start_again(self) -> None:
        """Begin anew in a forked process, where another thread of the parent may have left the cache half-changed."""
        self._lock = threading.Lock()
        self.clear()


def repeat_rows(found: LookedUp) -> torch.Tensor:
    """Copy the rows of missing keys that were asked for several times, and return all rows."""
    if found.distinct.numel() < found.missing_index.numel():
        copy_rows(found.values, found.places[found.local.long()], found.values, found.missing_index)
    return found.values


CACHES: "weakref.WeakSet[CPUFeatureCache]" = weakref.WeakSet()


def start_all_again() -> None:
    """Begin anew with every cache of a forked process."""
    for cache in CACHES:
        cache._start_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=start_all_again)
